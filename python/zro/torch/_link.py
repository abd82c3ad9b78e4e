"""A link of zro over a torch process group: messages between ranks that share no memory, such as those of several machines.

A message travels as two sends of the process group, under a tag of our own: a head with channel and length, and the bytes.  For each
peer there is one thread that sends what is queued, in order, and one that receives whatever arrives and sorts it by channel, so
that no channel waits for another.  The library's calls never wait: they queue, and look at what the threads have done.

A rank that closes its link says good-bye to its peers, and they answer, so that its threads end: a thread that is still inside torch
when Python ends would take the process down with it.
"""
import atexit
import collections
import ctypes
import datetime
import os
import queue
import threading
import weakref
from typing import Any, Deque, Dict, List, Tuple

import torch

from .. import _c

TAG = 0x7A72
BYE = -1  # as a channel: the peer has closed its link, and nothing comes behind it
GOOD_BYE_SECONDS = 10  # how long the end of a process waits for its peers' answers
FOREVER = datetime.timedelta(days=365)  # zro has deadlines of its own


def _at(address: int, count: int) -> torch.Tensor:
    return torch.frombuffer((ctypes.c_char * count).from_address(address), dtype=torch.uint8)


_links: "weakref.WeakSet[Link]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for link in list(_links):
        link.end()


class Link:
    """`table` is the zro_link.  The object must stay until the last group that uses it is gone."""

    def __init__(self, process_group: Any, rank: int, size: int) -> None:
        self._process_group, self._rank, self._size = process_group, rank, size
        self._lock = threading.Lock()
        self._numbers = 0
        self._done: Deque[Tuple[Any, str]] = collections.deque()  # requests that have ended, and why if they failed
        self._arrived: Dict[Tuple[int, int], Deque[bytes]] = {}  # by peer and channel: messages without a receive
        self._posted: Dict[Tuple[int, int], Deque[Tuple[Any, int, int]]] = {}  # receives without a message
        self._lost: Dict[int, str] = {}  # peers that cannot be reached any more, and why
        self._texts: List[bytes] = []  # kept: requests have their addresses
        peers = [peer for peer in range(size) if peer != rank]
        self._queues: Dict[int, "queue.SimpleQueue[Any]"] = {peer: queue.SimpleQueue() for peer in peers}
        self.table = _c.new(_c.zro_link, channels=1 << 40, message_bytes=1 << 20)
        for name, function in (("send", self._send), ("recv", self._recv), ("poll", self._poll), ("cancel", self._cancel),
                               ("number", self._number), ("close", self._close)):
            setattr(self.table, name, dict(_c.zro_link._fields_)[name](function))
        self._threads = [threading.Thread(target=work, args=(peer,), name=f"zro link to rank {peer}", daemon=True)
                         for peer in peers for work in (self._send_all, self._receive_all)]
        for thread in self._threads:
            thread.start()
        _links.add(self)

    # ---- threads ----

    def _send_all(self, peer: int) -> None:
        while True:
            channel, data, count, request = self._queues[peer].get()
            text = self._lost.get(peer, "")
            try:
                if not text or channel == BYE:
                    self._process_group.send([torch.tensor([channel, count])], peer, TAG).wait(FOREVER)
                    if count > 0:
                        self._process_group.send([_at(data, count)], peer, TAG).wait(FOREVER)
            except RuntimeError as error:
                text = self._lose(peer, error)
            if channel == BYE:
                return
            self._done.append((request, text))

    def _receive_all(self, peer: int) -> None:
        head = torch.empty(2, dtype=torch.int64)
        try:
            while True:
                self._process_group.recv([head], peer, TAG).wait(FOREVER)
                channel, count = head.tolist()
                if channel == BYE:
                    self._lost.setdefault(peer, "the rank has closed its group")
                    self._queues[peer].put((BYE, 0, 0, None))
                    return
                body = torch.empty(count, dtype=torch.uint8)
                if count > 0:
                    self._process_group.recv([body], peer, TAG).wait(FOREVER)
                with self._lock:
                    self._arrived.setdefault((peer, channel), collections.deque()).append(body)
        except RuntimeError as error:
            self._lose(peer, error)

    def _lose(self, peer: int, error: Exception) -> str:
        return self._lost.setdefault(peer, f"torch's process group: {str(error).splitlines()[0]}")

    # ---- calls of the library, one at a time ----

    def _end(self, request: Any, text: str = "") -> None:
        if text:
            self._texts.append(text.encode())
            request.text = self._texts[-1]
        request.state = _c.ZRO_LINK_FAILED if text else _c.ZRO_LINK_DONE

    def _send(self, _: Any, peer: int, channel: int, data: int, count: int, _held: int, request: Any) -> None:
        self._queues[peer].put((channel, data, count, request.contents))

    def _recv(self, _: Any, peer: int, channel: int, data: int, count: int, request: Any) -> None:
        self._posted.setdefault((peer, channel), collections.deque()).append((request.contents, data, count))
        self._match((peer, channel))

    def _match(self, key: Tuple[int, int]) -> None:
        """Gives messages that have arrived to the receives that were posted first."""
        posted, arrived = self._posted[key], self._arrived.get(key)
        while posted and arrived:
            request, data, room = posted.popleft()
            with self._lock:
                body = arrived.popleft()
            if body.numel() > room:
                self._end(request, f"a message of {body.numel()} bytes for a receive of {room}")
                continue
            if body.numel() > 0:
                ctypes.memmove(data, body.data_ptr(), body.numel())
            request.bytes = body.numel()
            self._end(request)
        if posted and key[0] in self._lost:
            for request, _, _ in posted:
                self._end(request, self._lost[key[0]])
            posted.clear()
        if not posted:
            del self._posted[key]
        if arrived is not None and not arrived:
            with self._lock:
                if not arrived:
                    self._arrived.pop(key, None)

    def _poll(self, _: Any) -> None:
        while self._done:
            self._end(*self._done.popleft())
        for key in [key for key in self._posted if key in self._arrived or key[0] in self._lost]:
            self._match(key)
        os.sched_yield()  # also lets the threads run Python

    def _cancel(self, _: Any, request: Any) -> None:
        address = ctypes.addressof(request.contents)
        for key, posted in list(self._posted.items()):
            for entry in list(posted):
                if ctypes.addressof(entry[0]) == address:
                    posted.remove(entry)
                    self._end(entry[0], "cancelled")
            if not posted:
                del self._posted[key]

    def _number(self, _: Any) -> int:
        self._numbers += 1
        return self._numbers * self._size + self._rank

    def _close(self, _: Any) -> None:
        for waiting in self._queues.values():
            waiting.put((BYE, 0, 0, None))

    def end(self) -> None:
        """Closes the link, and waits a while for its threads."""
        self._close(None)
        for thread in self._threads:
            thread.join(GOOD_BYE_SECONDS)
