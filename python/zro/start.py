"""Starts ranks from a program: processes of multiprocessing, or threads, that are a group."""
from __future__ import annotations

import multiprocessing
import signal
import traceback
from multiprocessing.connection import Connection
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import _c
from ._c import byref, lib
from ._core import configure
from .group import Group


def _rank(function: Callable[..., Any], rank: int, size: int, pipe: Connection, settings: Dict[str, Any],
          arguments: Tuple[Any, ...]) -> None:
    """What a process does: the group, the function, and its result or its error to the one that started it."""

    def all_gather(ticket: bytes) -> List[bytes]:
        pipe.send(ticket)
        return pipe.recv()

    try:
        with Group.from_tickets(rank, size, all_gather, **settings) as group:
            pipe.send((True, function(group, *arguments)))
    except EOFError:
        raise SystemExit(1) from None  # another rank has not come so far, and spawn says so
    except Exception as error:  # pylint: disable=broad-except  # it is raised again by spawn
        secondary = isinstance(error, (_c.PeerError, _c.LostError))
        pipe.send((False, (secondary, traceback.format_exc())))
        raise SystemExit(1) from None


def _receive(pipe: Connection) -> Any:
    try:
        return pipe.recv()
    except (EOFError, OSError):
        return None  # the process is gone


def _ending(code: Optional[int]) -> str:
    if code is not None and code < 0:
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    return f"ended with exit code {code}"


def spawn(function: Callable[..., Any], size: int, *arguments: Any, method: str = "spawn", **settings: Any) -> List[Any]:
    """Calls `function(group, *arguments)` on `size` ranks and returns what they returned, in rank order; the caller is not a rank.

    `method` is how multiprocessing starts a process: "spawn" (the function must be one that pickle can find), "fork" (faster, and
    takes any function, but not safe if other threads of this process hold locks), "forkserver"; or "threads": the ranks are threads
    of this process.  Settings are those of Group.

    If a rank fails, PeerError has its traceback; if it is killed, LostError says so.
    """
    if size < 1:
        raise ValueError(f"size = {size}, must be at least 1")
    if method == "threads":
        return _spawn_threads(function, size, arguments, settings)
    if method not in multiprocessing.get_all_start_methods():
        known = ", ".join([*multiprocessing.get_all_start_methods(), "threads"])
        raise ValueError(f"method = {method!r}, must be one of {known}")
    context: Any = multiprocessing.get_context(method)
    pipes, processes = [], []
    for rank in range(size):
        ours, theirs = context.Pipe()
        process = context.Process(target=_rank, args=(function, rank, size, theirs, settings, arguments), name=f"zro rank {rank}")
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    try:
        results = [_receive(pipe) for pipe in pipes]  # tickets first
        if all(isinstance(result, bytes) for result in results):
            for pipe in pipes:
                pipe.send(results)
            results = [_receive(pipe) for pipe in pipes]
    finally:
        for pipe in pipes:
            pipe.close()  # a rank that waits for tickets ends
        for process in processes:
            process.join()
    _raise_first(results, processes)
    return [value for _, value in results]


def _raise_first(results: List[Any], processes: List[Any]) -> None:
    """Raises the error that came first, as far as one can tell: not that of a rank which only lost another one."""
    failed = [(rank, *result[1]) for rank, result in enumerate(results) if isinstance(result, tuple) and not result[0]]
    for wanted in (False, True):
        for rank, secondary, text in failed:
            if secondary == wanted and (secondary is False or all(isinstance(result, tuple) for result in results)):
                raise _c.PeerError(f"rank {rank} failed:\n{text}")
    for rank, (result, process) in enumerate(zip(results, processes)):
        if not isinstance(result, tuple) and not (isinstance(result, bytes) and process.exitcode == 1):
            raise _c.LostError(f"rank {rank} {_ending(process.exitcode)} before its function returned")


def _spawn_threads(function: Callable[..., Any], size: int, arguments: Tuple[Any, ...], settings: Dict[str, Any]) -> List[Any]:
    results: List[Any] = [None] * size
    errors: List[Tuple[int, BaseException]] = []
    config = configure(_c.zro_group_config, settings)

    def call(_: Any, handle: int) -> int:
        group = Group.borrowed(handle)
        try:
            results[group.rank] = function(group, *arguments)
            return 0
        except BaseException as error:  # pylint: disable=broad-except  # it is raised below
            errors.append((isinstance(error, (_c.PeerError, _c.LostError)), error))
            return 1
        finally:
            group.close()

    try:
        lib.zro_spawn_threads(byref(config), size, _c.zro_rank_fn(call), None)
    except _c.PeerError:
        if not errors:
            raise
        raise sorted(errors, key=lambda entry: entry[0])[0][1] from None
    return results
