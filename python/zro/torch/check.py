"""Says whether this machine and this environment let zro.torch run at full speed, and if not, why:  python -m zro.torch.check

Each line is "ok", "advice" (it works, and could be faster) or "wrong" (it does not work).  The exit code is 1 if something is wrong.
"""
import ctypes
import os
import platform
import signal
import sys
import tempfile
import time
from typing import Any, Callable, List, Tuple

import torch
import torch.distributed

from .. import _c
from ._malloc import keep_freed_memory

SAMPLE = 64 << 20  # bytes of an array by which malloc is measured
TIMES = 7
RANKS = 2

Line = Tuple[str, str, str]  # "ok", "advice" or "wrong"; what; text


def library() -> List[Line]:
    """Where libzro is, its version and its instruction set."""
    lines = [("ok", "library", f"zro {_c.lib.zro_version()}, {_c.path}")]
    flags: set = set()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            flags = next((set(line.split(":", 1)[1].split()) for line in file if line.startswith("flags")), flags)
    except OSError:
        pass
    wide = {"avx512f", "avx512vl", "avx512bw", "avx512dq"} <= flags
    found = "avx512" if wide else "avx2" if {"avx2", "fma"} <= flags else "base"
    asked = os.environ.get("ZRO_KERNELS") or "auto"
    if found == "base":
        lines.append(("advice", "instructions", f"this processor ({platform.machine()}) has no AVX2: kernels of the base are used"))
    else:
        lines.append(("ok" if asked in ("auto", found) else "advice", "instructions", f"{found}; ZRO_KERNELS is {asked}"))
    return lines


def pytorch() -> List[Line]:
    """PyTorch and its version; zro.torch itself refuses one that is too old."""
    about = f"{torch.__version__}, Python {platform.python_version()}"
    if not torch.distributed.is_gloo_available():
        return [("wrong", "PyTorch", f"{about}: it was built without gloo, by which ranks find each other")]
    return [("ok", "PyTorch", about)]


def threads() -> List[Line]:
    """How many processors there are for how many threads."""
    processors = len(os.sched_getaffinity(0))
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("WORLD_SIZE") or 1)
    each = torch.get_num_threads()
    if ranks > 1:
        text = f"{processors} processors; {ranks} ranks on this machine, in each of which PyTorch uses {each} thread{'s' if each > 1 else ''}"
    else:
        text = (f"{processors} processors; PyTorch uses {each} thread{'s' if each > 1 else ''} in this process (under torchrun 1 per rank, "
                "unless OMP_NUM_THREADS is set)")
    if ranks * each > processors:
        return [("advice", "threads", f"{text}: more threads than processors; set OMP_NUM_THREADS={max(1, processors // ranks)}")]
    return [("ok", "threads", text)]


def _be_rank(rank: int, tickets: List[Any], out: Any) -> None:
    """Makes a group with the other processes, and shares an array with them."""
    config = _c.new(_c.zro_group_config, timeout_ms=20000)
    try:
        ticket = (ctypes.c_char * _c.ZRO_TICKET_BYTES)()
        _c.lib.zro_group_ticket(ctypes.byref(config), rank, RANKS, ticket)
        for writer in tickets[rank][1]:
            os.write(writer, bytes(ticket))
        everyone = b"".join(os.read(reader, _c.ZRO_TICKET_BYTES) for reader in tickets[rank][0])
        group = _c.make(_c.lib.zro_group_create_tickets, ctypes.byref(config), rank, RANKS, everyone)
        memory = _c.make(_c.lib.zro_memory_alloc, group, _c.ZRO_MEMORY_EACH, 1 << 20)
        near = all(_c.lib.zro_memory_peer(memory, other) for other in range(RANKS))
        text = "" if near else "ranks of one machine do not see each other's memory"
    except _c.Error as error:
        text = str(error)
    os.write(out, text.encode()[:1000] or b"ok")
    os._exit(0)


def shared_memory() -> List[Line]:
    """Whether two processes can share memory: made and tried."""
    pipes = [[os.pipe() for _ in range(RANKS)] for _ in range(RANKS)]  # [from][to]
    ends = [([pipes[other][rank][0] for other in range(RANKS)], [pipes[rank][other][1] for other in range(RANKS)])
            for rank in range(RANKS)]
    answer, out = os.pipe()
    pids = []
    for rank in range(RANKS):
        pid = os.fork()
        if pid == 0:
            signal.alarm(30)
            _be_rank(rank, ends, out)
        pids.append(pid)
    os.close(out)
    for pid in pids:
        os.waitpid(pid, 0)
    texts = os.read(answer, 4096).decode()
    for pair in [pipe for row in pipes for pipe in row] + [(answer,)]:
        for end in pair:
            os.close(end)
    if texts != "ok" * RANKS:
        return [("wrong", "shared memory", texts.replace("ok", "") or "the processes that tried it died")]
    limit = ""
    try:
        room = os.statvfs("/dev/shm")
        limit = f"; /dev/shm has {room.f_bavail * room.f_frsize >> 20} MB, which zro does not use"
    except OSError:
        pass
    return [("ok", "shared memory", f"{RANKS} processes share memory{limit}")]


def _touch(libc: Any) -> float:
    """Milliseconds per GB to take an array from malloc, to write to each page of it, and to give it back."""
    begun = time.perf_counter()
    block = libc.malloc(SAMPLE)
    libc.memset(block, 1, SAMPLE)
    libc.free(block)
    return (time.perf_counter() - begun) * 1e3 * (1e9 / SAMPLE)


def _in_child(measure: Callable[[], float]) -> float:
    """A measurement in a process of its own, since mallopt cannot be taken back."""
    with tempfile.TemporaryFile() as file:
        pid = os.fork()
        if pid == 0:
            os.write(file.fileno(), repr(measure()).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        file.seek(0)
        return float(file.read() or "nan")


def malloc() -> List[Line]:
    """What keeping freed memory would gain: gradients are freed and made anew in every step."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.memset.argtypes, libc.free.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t], [ctypes.c_void_p]

    def measure(keeps: bool) -> float:
        if keeps:
            keep_freed_memory()
        _touch(libc)
        return min(_touch(libc) for _ in range(TIMES))  # what other processes do is no part of it

    if not hasattr(libc, "mallopt"):
        return [("ok", "malloc", "this C library has no mallopt, so there is nothing to set")]
    now, kept = _in_child(lambda: measure(False)), _in_child(lambda: measure(True))
    text = f"new memory costs {now:.0f} ms per GB, memory that was kept {kept:.0f}"
    if now < 1.5 * kept:
        return [("ok", "malloc", f"{text}: freed memory is kept already")]
    return [("advice", "malloc", f"{text}: keeping it gains {now - kept:.0f} ms per GB of gradients in each step; call "
             "zro.torch.keep_freed_memory() at the beginning of the program")]


def main() -> int:
    """Prints a line for each thing that was looked at."""
    lines: List[Line] = []
    for part in (library, pytorch, threads, shared_memory, malloc):
        if any(kind == "wrong" for kind, _, _ in lines):
            break  # what follows needs what is missing
        lines += part()
    for kind, what, text in lines:
        print(f"{kind:6}   {what}: {text}")
    wrong, advice = ([line for line in lines if line[0] == kind] for kind in ("wrong", "advice"))
    if wrong:
        print("zro.torch does not work here")
    elif advice:
        print("zro.torch works here, and could be faster")
    else:
        print("zro.torch is set up for full speed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
