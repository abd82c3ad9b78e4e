"""Groups of ranks, their collective calls, and work that runs while the program goes on."""
from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple, Union

import numpy

from . import _c
from ._c import byref, lib, make
from ._core import (Box, Handle, address_of, configure, constant, dense, dtype_number, elements, numpy_dtype, query, readable, sizes,
                    stats, view)

Array = numpy.ndarray
AllGather = Callable[[bytes], Sequence[bytes]]


class Work(Handle):
    """A function that was submitted to a group (zro_submit)."""

    def __init__(self, group: "Group", function: Callable[[], Any]) -> None:
        self.result: Any = None

        def call(_: Any) -> None:
            self.result = function()

        self._callback = _c.Callback(_c.zro_work_fn, call)
        # The work goes on when this object is gone, so the group keeps the function.
        group.submitted.append(self._callback)
        self._box = Box(lib.zro_work_destroy, make(lib.zro_submit, group.box, self._callback, None), group.box)
        self._submitted = group.submitted

    def done(self) -> bool:
        """Whether it has finished.  Local."""
        return bool(query(lib.zro_work_test, ctypes.c_int, self.box))

    def wait(self) -> Any:
        """What the function returned, when it has; raises what it raised.  Local."""
        with self._callback:
            lib.zro_work_wait(self.box)
        if self._callback in self._submitted:
            self._submitted.remove(self._callback)
        return self.result


class Group(Handle):
    """Ranks that talk to each other (zro_group).

    `Group()` is the group that the environment describes: the ranks of `zro run`, or a group of one.  `Group.from_tickets` is one of
    any processes or threads.  Settings are the fields of zro_group_config and zro_settings: threads, kernels, fast, log_level, log,
    warn_ms, timeout_ms, cells, machine, link, trace; texts stand for constants (kernels="avx2").

    Calls are collective: all ranks make them, in the same order.  Arrays are NumPy's, in any shape.
    """

    def __init__(self, **settings: Any) -> None:
        config = configure(_c.zro_group_config, settings)
        self._own(make(lib.zro_group_create_env, byref(config)), config)

    def _own(self, handle: Optional[int], *kept: Any) -> None:
        self.submitted: List[Any] = []
        self._box = Box(lib.zro_group_destroy, handle, self.submitted, *kept)

    @classmethod
    def _from(cls, handle: Optional[int], *kept: Any) -> "Group":
        group = cls.__new__(cls)
        group._own(handle, *kept)
        return group

    @classmethod
    def borrowed(cls, handle: int) -> "Group":
        """A group that somebody else destroys, after the last use of this object."""
        group = cls.__new__(cls)
        group.submitted, group._box = [], Box(lambda _: None, handle)
        return group

    @classmethod
    def from_tickets(cls, rank: int, size: int, all_gather: AllGather, **settings: Any) -> "Group":
        """A group of any processes or threads, whoever started them.

        `all_gather` brings this rank's bytes to all ranks by any means, and returns those of all ranks in rank order.
        """
        config = configure(_c.zro_group_config, settings)
        ticket = ctypes.create_string_buffer(_c.ZRO_TICKET_BYTES)
        lib.zro_group_ticket(byref(config), rank, size, ticket)
        try:
            tickets = all_gather(ticket.raw)
            if len(tickets) != size or any(len(each) != _c.ZRO_TICKET_BYTES for each in tickets):
                raise ValueError(f"all_gather returned {len(tickets)} values of {[len(each) for each in tickets]} bytes, must be {size} "
                                 f"of {_c.ZRO_TICKET_BYTES}, one from each rank")
            handle = make(lib.zro_group_create_tickets, byref(config), rank, size, b"".join(map(bytes, tickets)))
        except BaseException:
            lib.zro_group_ticket_drop(ticket)
            raise
        return cls._from(handle, config)

    def sub(self, ranks: Sequence[int]) -> Optional["Group"]:
        """The group of these ranks, renumbered in this order; None on the others, which take part in the call."""
        handle = make(lib.zro_group_create_sub, self.box, (ctypes.c_int * len(ranks))(*ranks), len(ranks))
        return None if handle is None else self._from(handle, self.box)

    def members(self, ranks: Sequence[int]) -> "Group":
        """The same, called by the members alone."""
        return self._from(make(lib.zro_group_create_members, self.box, (ctypes.c_int * len(ranks))(*ranks), len(ranks)), self.box)

    def duplicate(self) -> "Group":
        """A second group of the same ranks, with an order of calls of its own."""
        return self._from(make(lib.zro_group_duplicate, self.box), self.box)

    # ---- local ----

    @property
    def rank(self) -> int:
        """The number of this rank."""
        return lib.zro_group_rank(self.box)

    @property
    def size(self) -> int:
        """The number of ranks."""
        return lib.zro_group_size(self.box)

    def label(self, rank: int) -> int:
        """A rank's number in the first group, from which this one was made."""
        return lib.zro_group_label(self.box, rank)

    def check(self) -> None:
        """Raises what has broken the group; nothing while it is whole."""
        lib.zro_group_status(self.box)

    def stats(self) -> Any:
        """Operations, bytes, waits and memory so far, as a named tuple (zro_stats)."""
        return stats(lib.zro_group_stats, self.box)

    @contextlib.contextmanager
    def trace(self, name: str) -> Iterator[None]:
        """Records the block as a slice of the trace, if there is one (the setting `trace`)."""
        mark = lib.zro_trace_begin(self.box)
        try:
            yield
        finally:
            lib.zro_trace_end(self.box, mark, name)

    def flush_trace(self) -> None:
        """Writes what has not been written yet."""
        lib.zro_trace_flush(self.box)

    # ---- collective calls ----

    def barrier(self) -> None:
        """Waits until all ranks are here."""
        lib.zro_barrier(self.box)

    def stop_requested(self, mine: bool) -> bool:
        """Whether any rank wants to stop."""
        any_ = ctypes.c_int()
        lib.zro_group_stop_requested(self.box, int(mine), byref(any_))
        return bool(any_.value)

    def all_reduce(self, array: Array, op: str = "sum") -> Array:
        """The sum ("avg", "min", "max") over all ranks, in place; returns the array."""
        dense("array", array)
        lib.zro_all_reduce(self.box, address_of(array), array.size, dtype_number(array.dtype), constant("op", op))
        return array

    def reduce(self, array: Array, root: int = 0, op: str = "sum") -> Optional[Array]:
        """The sum over all ranks as a new array on rank `root`; None on the others."""
        array = readable(array)
        out = numpy.empty_like(array) if self.rank == root else None
        lib.zro_reduce(self.box, address_of(array), out if out is None else address_of(out), array.size, dtype_number(array.dtype),
                       constant("op", op), root)
        return out

    def broadcast(self, array: Array, root: int = 0) -> Array:
        """root's values on all ranks, in place; returns the array."""
        dense("array", array)
        lib.zro_broadcast(self.box, address_of(array), array.size, dtype_number(array.dtype), root)
        return array

    def all_gather(self, array: Array, counts: Optional[Sequence[int]] = None) -> Array:
        """All ranks' arrays: a new one of shape (size, ...).

        With `counts`, the number of elements of each rank: all elements one after another, in one dimension.
        """
        array = readable(array)
        number = dtype_number(array.dtype)
        out = self._gathered(array, counts)
        if counts is None:
            lib.zro_all_gather(self.box, address_of(array), address_of(out), array.size, number)
        else:
            lib.zro_all_gather_v(self.box, address_of(array), address_of(out), sizes(counts), number)
        return out

    def gather(self, array: Array, root: int = 0, counts: Optional[Sequence[int]] = None) -> Optional[Array]:
        """The same on rank `root`; None on the others."""
        array = readable(array)
        number = dtype_number(array.dtype)
        out = self._gathered(array, counts) if self.rank == root else None
        into = None if out is None else address_of(out)
        if counts is None:
            lib.zro_gather(self.box, address_of(array), into, array.size, number, root)
        else:
            lib.zro_gather_v(self.box, address_of(array), into, sizes(counts), number, root)
        return out

    def _gathered(self, array: Array, counts: Optional[Sequence[int]]) -> Array:
        if counts is not None and (len(counts) != self.size or counts[self.rank] != array.size):
            raise ValueError(f"counts = {list(counts)} on rank {self.rank} of {self.size}, whose array has {array.size} elements")
        return numpy.empty((self.size, *array.shape) if counts is None else sum(counts), array.dtype)

    def reduce_scatter(self, array: Array, op: str = "sum", counts: Optional[Sequence[int]] = None) -> Array:
        """This rank's piece of the sum over all ranks: array[rank] of it; with `counts` that many of its elements."""
        array = readable(array)
        number, op_number = dtype_number(array.dtype), constant("op", op)
        if counts is None:
            if array.ndim == 0 or array.shape[0] != self.size:
                raise ValueError(f"an array of shape {array.shape} has no piece for each of {self.size} ranks; its first dimension must be "
                                 f"{self.size}, or pass counts")
            out = numpy.empty(array.shape[1:], array.dtype)
            lib.zro_reduce_scatter(self.box, address_of(array), address_of(out), out.size, number, op_number)
        else:
            if len(counts) != self.size or sum(counts) != array.size:
                raise ValueError(f"counts = {list(counts)}, must be {self.size} numbers whose sum is {array.size}")
            out = numpy.empty(counts[self.rank], array.dtype)
            lib.zro_reduce_scatter_v(self.box, address_of(array), address_of(out), sizes(counts), number, op_number)
        return out

    def broadcast_bytes(self, data: Optional[bytes], root: int = 0) -> bytes:
        """root's bytes on all ranks; what the others pass does not count."""
        data = (data or b"") if self.rank == root else b""
        out, count = ctypes.c_void_p(), ctypes.c_size_t()
        lib.zro_broadcast_bytes(self.box, data, len(data), root, byref(out), byref(count))
        try:
            return ctypes.string_at(out, count.value)
        finally:
            lib.zro_bytes_free(out)

    def broadcast_object(self, value: Any = None, root: int = 0) -> Any:
        """root's value on all ranks, by pickle."""
        return pickle.loads(self.broadcast_bytes(pickle.dumps(value) if self.rank == root else None, root))

    def all_gather_object(self, value: Any) -> List[Any]:
        """All ranks' values in rank order, by pickle."""
        mine = numpy.frombuffer(pickle.dumps(value), numpy.uint8)
        counts = [int(count) for count in self.all_gather(numpy.array(mine.size))]
        everything, values = self.all_gather(mine, counts).tobytes(), []
        for count in counts:
            values.append(pickle.loads(everything[:count]))
            everything = everything[count:]
        return values

    # ---- more ----

    def submit(self, function: Callable[[], Any]) -> Work:
        """Runs a function as one operation in the group's order, on the group's own thread, while the caller goes on."""
        return Work(self, function)

    def zeros(self, shape: Union[int, Tuple[int, ...]], dtype: Any = "f32", kind: str = "each") -> Array:
        """An array in group memory, which collective calls reach without copies; kind="once": one array per machine for all its ranks.

        Its memory is given back when nothing refers to the array any more.
        """
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        number = dtype_number(dtype)
        handle = make(lib.zro_memory_alloc, self.box, constant("data_kind", kind), elements(shape) * numpy_dtype(number).itemsize)
        return view(lib.zro_memory_data(handle), shape, number, Box(lib.zro_memory_free, handle))

    def __repr__(self) -> str:
        return "<zro.Group, closed>" if self.closed else f"<zro.Group, rank {self.rank} of {self.size}, process {os.getpid()}>"
