"""What programs share that measure on two ranks: a bed, in which each process is a rank of a gloo group of PyTorch's and of a
group of zro's; contenders; and samples that contenders take in turn.

In each repetition every contender takes one sample, beginning with another one each time; both ranks begin it together, and the
slower one counts.
"""
import ctypes
import gc
import os

from zro_ctypes import Zro, ZroOptim, pointer, progress, ref, tensor_at, timed, torch
import torch.distributed as dist

RANKS = 2

# ---- both groups ----


class Bed:
    """What a rank has: its number, the options, and the group of either side."""

    def __init__(self, rank, store, options):
        self.rank, self.options = rank, options
        torch.set_num_threads(1)
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
        self.zro, self.group = Zro(options.library), None

    def open_group(self):
        """Each part has a group of its own, and with it counts of memory that begin at 0."""
        ticket = ctypes.create_string_buffer(self.zro.c.ZRO_TICKET_BYTES)
        lib, self.group = self.zro.lib, pointer()
        config = self.zro.new(self.zro.c.zro_group_config)
        lib.zro_group_ticket(ref(config), self.rank, RANKS, ticket)
        tickets = b"".join(self.everywhere(ticket.raw))
        lib.zro_group_create_tickets(ref(config), self.rank, RANKS, tickets, ref(self.group))

    def close_group(self):
        self.barrier()
        self.zro.lib.zro_group_destroy(self.group)

    def everywhere(self, mine):
        """All ranks' values in rank order."""
        values = [None] * RANKS
        dist.all_gather_object(values, mine)
        return values

    def barrier(self):
        self.zro.lib.zro_barrier(self.group)

    def timed(self, call):
        return timed(call, self.barrier)

    def stats(self, optim=None):
        stats = self.zro.new(self.zro.c.zro_stats)
        if optim is not None:
            self.zro.lib.zro_optim_stats(optim.handle, ref(stats))
        else:
            self.zro.lib.zro_group_stats(self.group, ref(stats))
        return stats

    def progress(self, line):
        if self.rank == 0:
            progress(line)

    def optim(self, params, views=False):
        return ZroOptim(self.zro, "adam", params, {}, group=self.group, views=views)


# ---- contenders ----


class Contender:
    """call is timed; undo, if there is one, is not.  tensors() are its parameters as they are."""

    def __init__(self, call, undo=None, tensors=None):
        self.call, self.undo, self.tensors = call, undo, tensors


def tensors_of(params, what="data"):
    """zro's parameters, or with "grad" their gradients, as torch's tensors."""
    return [tensor_at(getattr(p, what), p.shape[:p.n_dims]) for p in params]


# ---- samples ----


def merge(bed, samples):
    """Of each sample the slower rank's time, and how often a thread of either lost its processor."""
    both = bed.everywhere(samples)
    return {name: [(max(s for s, _ in pair), sum(lost for _, lost in pair)) for pair in zip(*(mine[name] for mine in both))]
            for name in samples}


def sample(bed, contender):
    taken = bed.timed(contender.call)
    if contender.undo is not None:
        contender.undo()
    return taken


def first_times(bed, contenders, title):
    """The seconds of each one's second call: state comes into being in the first."""
    seconds = {}
    for name, contender in contenders.items():
        bed.progress(f"{title}, {name}, first time")
        sample(bed, contender)
        seconds[name] = max(bed.everywhere(sample(bed, contender)[0]))
    return seconds


def take_turns(bed, contenders, wanted, title):
    """As many samples of each contender as wanted says by name, of both ranks together."""
    samples, names = {name: [] for name in contenders}, list(contenders)
    gc.collect()
    gc.disable()
    for repetition in range(max(wanted.values())):
        bed.progress(f"{title}, {repetition + 1} of {max(wanted.values())}")
        turn = repetition % len(names)
        for name in names[turn:] + names[:turn]:
            if len(samples[name]) < wanted[name]:
                samples[name].append(sample(bed, contenders[name]))
    gc.enable()
    return merge(bed, samples)
