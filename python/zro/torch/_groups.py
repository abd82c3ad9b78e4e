"""zro's groups for torch's process groups: `group_of(process_group)`.

A group is made at its first use, by all ranks of the process group together: tickets go through that process group's
all_gather_object, so no other rank takes part.  It is kept as long as somebody uses it or the process group exists.  Ranks of one
machine share memory; ranks of several machines exchange messages through torch's process group (_link.py).

Settings come from the environment, under the names that `zro run` uses: ZRO_THREADS, ZRO_FAST, ZRO_LOG, ZRO_TIMEOUT_MS, ZRO_MACHINE,
ZRO_TRACE.  Without ZRO_THREADS each rank computes with torch's number of threads, but all ranks of a machine together with no more
than there are processors; without ZRO_TIMEOUT_MS ranks wait for each other as long as the process group does.
"""
import ctypes
import os
import weakref
from typing import Any, List, Optional, Tuple

import torch
import torch.distributed as dist

from .. import _c
from .._c import lib

# What the library advises in its log, where the program has other means than calls of zro's.
ADVICE = {
    "after backward call zro_params_mark_grads or zro_param_set_grad, or set grad_present": "call loss.backward() before the step",
    "zro_params_all_reduce": "wrap the model in DistributedDataParallel",
    "zro_param_publish": "DistributedDataParallel(model)",
}
SAY = _c.log_to(_c.say, _c.translator({**_c.WORDS, **ADVICE}))
LOG_LEVELS = {"off": 0, "warn": 1, "info": 2, "debug": 3}
SWITCHES = {"off": 0, "on": 1}


class Handle:
    """A handle of the library's that is destroyed with this object, unless that happens in a forked child."""

    def __init__(self, value: Optional[int], destroy: Any, *keeps: Any) -> None:
        self._as_parameter_ = ctypes.c_void_p(value)
        self._destroy = destroy
        self._keeps = keeps  # objects that must not go before the handle
        self._pid = os.getpid()

    def close(self) -> None:
        """Destroys the handle now; nothing if that was done already."""
        value, self._as_parameter_ = self._as_parameter_, ctypes.c_void_p(None)
        if value and self._pid == os.getpid():
            self._destroy(value)
        self._keeps = ()

    def __bool__(self) -> bool:
        return bool(self._as_parameter_)

    def __del__(self) -> None:
        try:
            self.close()
        except (AttributeError, TypeError):  # the interpreter ends, and half of it is gone
            pass


class Group(Handle):
    """A zro group of the ranks of a torch process group."""

    def __init__(self, value: int, rank: int, size: int, *keeps: Any) -> None:
        super().__init__(value, lib.zro_group_destroy, *keeps)
        self.rank, self.size = rank, size

    def is_whole(self) -> bool:
        """Whether calls can be made on it: it is open, nothing has broken it, and this process is its rank."""
        try:
            if self and self._pid == os.getpid():
                lib.zro_group_status(self)
                return True
        except _c.Error:
            pass
        return False


def _choice(name: str, values: dict, default: int) -> int:
    text = os.environ.get(name)
    if not text:
        return default
    if text not in values:
        raise ValueError(f"{name}={text}: must be one of {', '.join(values)}")
    return values[text]


def _number(name: str, default: int, low: int) -> int:
    text = os.environ.get(name)
    if not text:
        return default
    if not text.lstrip("-").isdigit() or int(text) < low:
        raise ValueError(f"{name}={text}: must be a whole number, at least {low}")
    return int(text)


def _timeout_ms(process_group: Any) -> int:
    try:
        backend = process_group._get_backend(torch.device("cpu"))
        return max(1, int(backend.options._timeout.total_seconds() * 1000))
    except (AttributeError, RuntimeError):
        return 1800000


def _machine() -> Tuple[str, int]:
    """What ranks of one machine have in common, and the number that ZRO_MACHINE gives the machine (or AUTO)."""
    number = _number("ZRO_MACHINE", _c.ZRO_MACHINE_AUTO, 0)
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip(), number
    except OSError:
        return os.uname().nodename, number


def _config(process_group: Any, local_ranks: int, machine: int) -> Any:
    config = _c.new(_c.zro_group_config, timeout_ms=_number("ZRO_TIMEOUT_MS", _timeout_ms(process_group), 1), machine=machine)
    processors = len(os.sched_getaffinity(0))
    config.settings.threads = _number("ZRO_THREADS", max(1, min(torch.get_num_threads(), processors // max(1, local_ranks))), 1)
    config.settings.fast = _choice("ZRO_FAST", SWITCHES, config.settings.fast)
    config.settings.log, config.settings.log_level = SAY, _choice("ZRO_LOG", LOG_LEVELS, config.settings.log_level)
    trace = os.environ.get("ZRO_TRACE")
    config.trace = os.fsencode(trace) if trace else None
    return config


def _tickets(process_group: Any, config: Any, rank: int, size: int) -> Any:
    """All ranks' tickets, in their order; what keeps a rank from writing one is raised on all ranks."""
    ticket = (ctypes.c_char * _c.ZRO_TICKET_BYTES)()
    problem: Optional[str] = None
    try:
        lib.zro_group_ticket(ctypes.byref(config), rank, size, ticket)
    except _c.Error as error:
        problem = str(error)
    gathered: List[Any] = [None] * size
    dist.all_gather_object(gathered, (bytes(ticket), problem), group=process_group)
    for number, (_, text) in enumerate(gathered):
        if text is not None:
            if problem is None:
                lib.zro_group_ticket_drop(ticket)
            raise RuntimeError(f"zro cannot make a group: rank {number}: {text}")
    return (ctypes.c_char * (_c.ZRO_TICKET_BYTES * size)).from_buffer_copy(b"".join(bytes_ for bytes_, _ in gathered))


def _create(process_group: Any) -> Group:
    rank, size = dist.get_rank(process_group), dist.get_world_size(process_group)
    mine = _machine()
    machines: List[Any] = [None] * size
    dist.all_gather_object(machines, mine, group=process_group)
    config = _config(process_group, machines.count(mine), mine[1])
    if len(set(machines)) == 1:
        tickets = _tickets(process_group, config, rank, size)
        try:
            return Group(_c.make(lib.zro_group_create_tickets, ctypes.byref(config), rank, size, tickets), rank, size)
        except _c.UnsupportedError:  # on all ranks: they are on one machine, but in containers that share no memory
            pass
    from ._link import Link  # only where it is needed: it starts threads

    link = Link(process_group, rank, size)
    config.link = ctypes.pointer(link.table)
    tickets = _tickets(process_group, config, rank, size)
    return Group(_c.make(lib.zro_group_create_tickets, ctypes.byref(config), rank, size, tickets), rank, size, link)


_groups: "weakref.WeakKeyDictionary[Any, Group]" = weakref.WeakKeyDictionary()


def group_of(process_group: Any = None) -> Group:
    """The zro group of a process group (None: torch's default one).

    The first call for a process group is collective over it; others return the same group at once.  A group that has broken is made
    anew, which is collective, too.
    """
    if process_group is None:
        process_group = dist.group.WORLD
    group = _groups.get(process_group)
    if group is None or not group.is_whole():
        group = _groups[process_group] = _create(process_group)
    return group
