"""What tests with several ranks of PyTorch share: each case runs in fresh processes that are forked, each a rank of a gloo group.

A case is a function case(rank, size).  It passes if all ranks end with status 0 within the deadline; a rank that it means to end
itself says so (`@ends(rank)`).
"""
import os
import signal
import sys
import tempfile
import time
import traceback

import torch
import torch.distributed as dist

DEADLINE = 60  # seconds per case


def ends(rank):
    """The case ends this rank by a signal."""

    def mark(case):
        case.ended = rank
        return case

    return mark


def _be_rank(case, rank, size, store):
    status = 1
    try:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        torch.set_num_threads(1)
        signal.alarm(DEADLINE)
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
        case(rank, size)
        status = 0
    except BaseException:  # pylint: disable=broad-except  # it is what the case found
        sys.stderr.write(f"{case.__name__}, rank {rank} of {size}:\n{traceback.format_exc()}")
        sys.stderr.flush()
    os._exit(status)  # what PyTorch would do at exit is nobody's business


def run_case(case, size):
    with tempfile.TemporaryDirectory() as folder:
        ranks = {}
        for rank in range(size):
            pid = os.fork()
            if pid == 0:
                _be_rank(case, rank, size, os.path.join(folder, "store"))
            ranks[pid] = rank
        good = True
        for _ in range(size):
            pid, status = os.wait()
            rank = ranks[pid]
            good &= os.WIFSIGNALED(status) if rank == getattr(case, "ended", None) else status == 0
            if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
                sys.stderr.write(f"{case.__name__}, rank {rank} of {size}: not done in {DEADLINE} s\n")
    return good


def run_cases(cases, only=""):
    """cases: (function, numbers of ranks).  Returns the exit code."""
    failed = total = 0
    sys.stdout.flush()
    for case, sizes in cases:
        for size in sizes:
            if only not in case.__name__:
                continue
            begun = time.monotonic()
            total += 1
            if not run_case(case, size):
                failed += 1
                print(f"FAIL {case.__name__}.{size} ({time.monotonic() - begun:.1f} s)", flush=True)
    print(f"{total - failed} passed, {failed} failed")
    return 1 if failed or not total else 0


def fails_with(kinds, call, *parts):
    """The call raises one of these, with all these parts in its text."""
    try:
        call()
    except kinds as error:
        for part in parts:
            assert part in str(error), f"{part!r} is not in: {error}"
        return
    raise AssertionError(f"no error; expected {kinds}")
