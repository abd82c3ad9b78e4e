#!/usr/bin/env python3
"""zro's sharded optimizer side by side with PyTorch's ZeroRedundancyOptimizer:  bench/torch_zero.py build/lib/libzro.so

Two processes are both a gloo group of PyTorch's and a group of zro's, with one thread each, and step equal sets of torch's own
tensors with Adam.  What is measured, by name (--only):

  gpt2-step         a step of the 148 tensors of GPT-2 124M
  gpt2-consolidate  the whole state on rank 0, and how much memory grows on either rank
  tiny-create       construction for 100,000 tensors of 16 to 127 floats
  tiny-step         a step of them

"in place": parameters stay in torch's tensors.  "bucket views": they move into buckets (parameters_as_bucket_view).
"handed out once": they lie in memory that exists once for both ranks (zro_params_alloc).

Times on a shared machine are not comparable from one second to the next.  So in each repetition every contender takes one
sample, beginning with another one each time; both ranks begin it together, and the slower one counts.  Before steps are timed,
three with changing gradients must give all of them the same parameters, within the tolerance of the golden vectors.
"""
import argparse
import ctypes
import gc
import json
import mmap
import os
import sys
import tempfile

sys.dont_write_bytecode = True
from zro_ctypes import (about, check_memory, distance, elements, fail, gpt2_shapes, heading, make_set, names_of,
                        pointer, progress, ref, summary, tensor_at, timed, times, tiny_shapes, torch)
from ranks import RANKS, Bed, Contender, first_times, merge, take_turns, tensors_of
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer

MB = 1 << 20

# ---- contenders ----


def torch_optim(tensors, views, fused):
    how = {"fused": True} if fused else {}
    return ZeroRedundancyOptimizer(tensors, optimizer_class=torch.optim.Adam, parameters_as_bucket_view=views, **how)


def zro_contender(bed, shapes, grads, where):
    """An optimizer of zro's on a set of its own, and what must be undone at the end."""
    tensors = make_set(shapes, grads)
    params = bed.zro.params(tensors, data=where != "handed out once")
    if where == "handed out once":
        config = bed.zro.new(bed.zro.c.zro_alloc_config, grads=0)
        bed.zro.lib.zro_params_alloc(bed.group, params, len(params), ref(config))
        if bed.rank == 0:
            for to, tensor in zip(tensors_of(params), tensors):
                to.copy_(tensor.detach())
        bed.barrier()
        tensors = None
    optim = bed.optim(params, where == "bucket views").create()

    def close():
        optim.destroy()
        bed.zro.lib.zro_params_free(params, len(params))
    return Contender(optim.step, tensors=lambda keep=tensors: tensors_of(params)), close


def verify(bed, contenders, grads):
    """Three steps, each with other gradients: the worst difference from the first contender / tolerance over all parameters."""
    for step in range(3):
        for tensor in grads:
            tensor.grad.mul_(-0.75 if step else 1)
        for contender in contenders.values():
            contender.call()
    bed.barrier()
    worst, first = 0.0, next(iter(contenders.values())).tensors()
    for name, contender in contenders.items():
        off = max(map(distance, first, contender.tensors()))
        if not off <= 1:
            fail(f"after three steps the parameters of {name} are {off:.3g} tolerances away from torch's")
        worst = max(worst, off)
    return max(bed.everywhere(worst))


# ---- samples ----


def measure(bed, contenders, title):
    """Rows of contenders by name.  Slow ones get fewer samples."""
    options, wanted = bed.options, {}
    for name, seconds in first_times(bed, contenders, title).items():
        wanted[name] = options.slow_samples if seconds > options.slow else options.samples
    rows = {name: summary(taken) for name, taken in take_turns(bed, contenders, wanted, title).items()}
    for base in ("zro in place", "zro bucket views"):
        for row in rows.values():
            row[f"of {base}"] = round(row["median_ms"] / rows[base]["median_ms"], 4)
    return rows


# ---- what is measured ----


def measure_steps(bed, title, shapes, torch_forms):
    """torch_forms: pairs of views and fused.  Each contender has parameters of its own; gradients are everybody's."""
    grads = make_set(shapes)
    contenders, closing = {}, []
    for views, fused in torch_forms:
        tensors = make_set(shapes, grads)
        name = f"torch {'bucket views' if views else 'in place'}{', fused' if fused else ''}"
        contenders[name] = Contender(torch_optim(tensors, views, fused).step, tensors=lambda keep=tensors: keep)
    for where in ("in place", "bucket views", "handed out once"):
        contenders[f"zro {where}"], close = zro_contender(bed, shapes, grads, where)
        closing.append(close)
    bed.progress(f"{title}: do they agree?")
    worst = verify(bed, contenders, grads)
    rows = measure(bed, contenders, title)
    for close in closing:
        close()
    return {"rows": rows, "worst": round(worst, 4)}


def gpt2_step(bed):
    shapes = gpt2_shapes(bed.options.layers)
    check_memory("gpt2-step", elements(shapes) * 4 * RANKS * 17)
    return measure_steps(bed, "gpt2-step", shapes, [(False, False), (False, True), (True, False), (True, True)])


def tiny_step(bed):
    return measure_steps(bed, "tiny-step", tiny_shapes(bed.options.tensors), [(True, True)])


def tiny_create(bed):
    """Populating group memory is also measured apart: as much of it as bucket views take."""
    shapes = tiny_shapes(bed.options.tensors)
    grads = make_set(shapes)
    contenders, held, memory = {}, {}, pointer()

    def drop():
        held.clear()
        gc.collect()

    for views in (False, True):
        where, tensors = "bucket views" if views else "in place", make_set(shapes, grads)
        optim = bed.optim(bed.zro.params(tensors), views)
        contenders[f"zro {where}"] = Contender(optim.create, optim.destroy, lambda keep=tensors: keep)
        theirs = make_set(shapes, grads)
        contenders[f"torch {where}"] = Contender(lambda t=theirs, v=views: held.update(optim=torch_optim(t, v, True)), drop)
    before = bed.stats().shared_bytes
    contenders["zro bucket views"].call()
    shared = bed.stats().shared_bytes - before
    contenders["zro bucket views"].undo()
    contenders["zro group memory alone"] = Contender(
        lambda: bed.zro.lib.zro_memory_alloc(bed.group, bed.zro.c.ZRO_MEMORY_EACH, shared, ref(memory)),
        lambda: bed.zro.lib.zro_memory_free(memory))
    rows = measure(bed, contenders, "tiny-create")
    rest = rows["zro bucket views"]["median_ms"] - rows["zro group memory alone"]["median_ms"]
    return {"rows": rows, "group_memory_bytes": shared, "views_less_memory_ms": round(rest, 4)}


# ---- consolidation ----


class Growth:
    """How much larger than at its making the process has been, and is."""

    def __init__(self):
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")  # VmHWM begins anew
        self.before = self.read("VmRSS")

    @staticmethod
    def read(field):
        with open("/proc/self/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(field + ":")) * 1024

    def peak(self):
        return max(0, self.read("VmHWM") - self.before)

    def now(self):
        return self.read("VmRSS") - self.before


def give_back_memory():
    """What is free goes back to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def keep_freed_memory(on):
    """Whether free() keeps even large blocks, and malloc() hands them out again."""
    trim_threshold, mmap_max = -1, -4
    ctypes.CDLL(None).mallopt(trim_threshold, 2**31 - 1 if on else 128 * 1024)
    ctypes.CDLL(None).mallopt(mmap_max, 0 if on else 65536)


def touch(count):
    """A sample of writing so many bytes of fresh memory, in huge pages where the system has them."""
    with mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
        block.madvise(mmap.MADV_HUGEPAGE)
        array = ctypes.c_char.from_buffer(block)
        taken = timed(lambda: ctypes.memset(ref(array), 1, count))
        del array
    return taken


POPULATED = "zro, memory populated"


class Consolidation:
    """Both sides' optimizers with state, and the rows that come of them."""

    def __init__(self, bed, shapes):
        grads = make_set(shapes)
        self.bed, self.shapes, self.state, self.rows, self.growth, self.stats = bed, shapes, pointer(), {}, {}, []
        self.state_bytes = elements(shapes) * 2 * 4  # two moments
        self.ours_set = make_set(shapes, grads)
        self.ours = bed.optim(bed.zro.params(self.ours_set)).create()
        self.theirs = torch_optim(make_set(shapes, grads), False, True)
        self.ours.step()
        self.theirs.step()

    def touch(self, name):
        self.growth[name] = {"peak": 0, "after": 0}
        self.rows.setdefault(name, []).append(touch(self.state_bytes) if self.bed.rank == 0 else (0.0, 0))

    def consolidate_ours(self):
        self.bed.zro.lib.zro_optim_consolidate(self.ours.handle, 0, ref(self.state))

    def take(self, name, call):
        self.bed.progress(f"gpt2-consolidate, {name}")
        if name != POPULATED:
            give_back_memory()
        growth, before = Growth(), self.bed.stats(self.ours)
        self.rows.setdefault(name, []).append(self.bed.timed(call))
        worst = self.growth.setdefault(name, {"peak": 0, "after": 0})
        worst["peak"], worst["after"] = max(worst["peak"], growth.peak()), max(worst["after"], growth.now())
        after = self.bed.stats(self.ours)
        if call == self.consolidate_ours:
            self.stats.append({"heap_bytes": before.heap_bytes, "heap_peak_bytes_before": before.heap_peak_bytes,
                               "heap_peak_bytes": after.heap_peak_bytes, "shared_bytes_before": before.shared_bytes,
                               "shared_bytes": after.shared_bytes})

    def take_ours(self, name):
        self.take(name, self.consolidate_ours)

    def take_theirs(self):
        self.take("torch", lambda: self.theirs.consolidate_state_dict(to=0))

    def drop(self):
        self.bed.zro.lib.zro_state_destroy(self.state)
        self.state = pointer()
        self.theirs._all_state_dicts.clear()

    def compare(self):
        """Both states, on rank 0, scaled to 1: the worst difference / tolerance."""
        worst, slot = 0.0, self.bed.zro.c.zro_slot()
        for i, values in (self.theirs.state_dict()["state"] if self.bed.rank == 0 else {}).items():
            for name in ("exp_avg", "exp_avg_sq"):
                self.bed.zro.lib.zro_state_slot(self.state, i, name, ref(slot))
                scale = 1 / values[name].abs().max()
                worst = max(worst, distance(values[name] * scale, tensor_at(slot.data, self.shapes[i]) * scale))
        if not worst <= 1:
            fail(f"the consolidated states are {worst:.3g} tolerances apart")
        return max(self.bed.everywhere(worst))

    def populated(self, samples):
        """With memory that the process already has; the first of them gets it."""
        keep_freed_memory(True)
        for i in range(samples + 1):
            self.take_ours(POPULATED)
            self.drop()
            if i == 0:
                del self.rows[POPULATED], self.growth[POPULATED]
        keep_freed_memory(False)

    def result(self, worst):
        rows = {name: summary(taken) for name, taken in merge(self.bed, self.rows).items()}
        growth = self.bed.everywhere(self.growth)
        for name, row in rows.items():
            row["of zro, again"] = round(row["median_ms"] / rows["zro, again"]["median_ms"], 4)
            row["target_peak_bytes"], row["sender_peak_bytes"] = (side[name]["peak"] for side in growth)
            row["target_after_bytes"], row["sender_after_bytes"] = (side[name]["after"] for side in growth)
        return {"rows": rows, "worst": round(worst, 4), "state_bytes": self.state_bytes,
                "sender_stats": self.bed.everywhere(self.stats)[1]}


def gpt2_consolidate(bed):
    shapes = gpt2_shapes(bed.options.layers)
    check_memory("gpt2-consolidate", elements(shapes) * 4 * (RANKS * 5 + 20))
    both = Consolidation(bed, shapes)
    both.touch("memset alone, first time")  # a virtual machine's host may have to find the memory: that is nobody's time
    both.take_ours("zro, first time")
    both.take_theirs()
    worst = both.compare()
    both.drop()
    for i in range(max(bed.options.consolidate_samples, bed.options.torch_consolidate_samples - 1)):
        if i < bed.options.consolidate_samples:
            both.take_ours("zro, again")
            both.drop()
            both.touch("memset alone")
        if i < bed.options.torch_consolidate_samples - 1:
            both.take_theirs()
            both.drop()
    both.populated(bed.options.consolidate_samples)
    result = both.result(worst)
    both.ours.destroy()
    return result


PARTS = {"gpt2-step": gpt2_step, "gpt2-consolidate": gpt2_consolidate, "tiny-create": tiny_create, "tiny-step": tiny_step}

# ---- the command line ----


def read_options():
    parser = argparse.ArgumentParser(description="zro's sharded optimizer side by side with PyTorch's.")
    parser.add_argument("library", help="libzro.so")
    parser.add_argument("--only", type=names_of(PARTS), default=list(PARTS), metavar="NAME", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="few samples")
    parser.add_argument("--samples", type=int, help="of each contender; default: 21, or 3")
    parser.add_argument("--slow", type=float, default=1.0, help="what takes more seconds than this is slow; default: 1")
    parser.add_argument("--slow-samples", type=int, help="of slow contenders; default: 5, or 1")
    parser.add_argument("--consolidate-samples", type=int, help="of zro's consolidation; default: 5, or 2")
    parser.add_argument("--torch-consolidate-samples", type=int, help="of PyTorch's, of 20 s and 5 GB; default: 2, or 1")
    parser.add_argument("--layers", type=int, default=12, help="of gpt2; fewer make a smaller list")
    parser.add_argument("--tensors", type=int, default=100000, help="of tiny")
    parser.add_argument("--json", metavar="FILE", help="write the numbers there, too")
    options = parser.parse_args()
    for name, full, quick in (("samples", 21, 3), ("slow_samples", 5, 1), ("consolidate_samples", 5, 2),
                              ("torch_consolidate_samples", 2, 1)):
        if getattr(options, name) is None:
            setattr(options, name, quick if options.quick else full)
        if getattr(options, name) < 1:
            parser.error("there must be at least 1 sample")
    if options.tensors < 1 or options.layers < 0:
        parser.error("tensors must be at least 1, layers not negative")
    return options


def print_part(name, part):
    rows = part["rows"]
    bases = [key for key in next(iter(rows.values())) if key.startswith("of ")]
    memory = ["target_peak_bytes", "sender_peak_bytes"] if name == "gpt2-consolidate" else []
    columns = ["contender", "median ms", "quartiles", *(f"time / {base[3:]}" for base in bases),
               *(f"{key.split('_')[0]} grows, MB" for key in memory), "samples"]
    print(f"\n## {name}\n\n| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for contender, row in rows.items():
        time_columns, samples = times(row)
        middle = [f"{row[base]:.2f}" for base in bases] + [f"{row[key] / MB:.1f}" for key in memory]
        print(f"| {contender} | {time_columns} | {' | '.join(middle)} | {samples} |")
    if "worst" in part:
        print(f"\nThe results differed by at most {part['worst']:.2f} of the tolerance.")


def print_notes(parts):
    create, state = parts.get("tiny-create"), parts.get("gpt2-consolidate")
    if create is not None:
        print(f"\ntiny-create: zro bucket views without the populating of {create['group_memory_bytes'] / MB:.1f} MB of group "
              f"memory: {create['views_less_memory_ms']:.2f} ms.")
    if state is not None:
        last = state["sender_stats"][-1]
        print(f"\ngpt2-consolidate: the state has {state['state_bytes'] / MB:.1f} MB; \"memset alone\" is the writing of so "
              "many fresh bytes at the target.  By zro's own count (zro_stats) the sender's heap grew from "
              f"{last['heap_bytes'] / MB:.1f} to at most {last['heap_peak_bytes'] / MB:.1f} MB (peak since its making), its "
              f"group memory from {last['shared_bytes_before'] / MB:.1f} to {last['shared_bytes'] / MB:.1f} MB.")


def run(rank, store, options):
    bed, parts = Bed(rank, store, options), {}
    for name in options.only:
        bed.open_group()
        parts[name] = PARTS[name](bed)
        bed.close_group()
        gc.collect()
    dist.destroy_process_group()
    if rank != 0:
        return
    progress("")
    facts = about(bed.zro)
    print(f"{heading(facts)}, {RANKS} ranks with one thread each, Adam")
    for name, part in parts.items():
        print_part(name, part)
    print_notes(parts)
    if options.json is not None:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({**facts, "ranks": RANKS, "parts": parts}, file, indent=1)


def main():
    options = read_options()
    with tempfile.TemporaryDirectory() as folder:
        try:
            torch.multiprocessing.spawn(run, (os.path.join(folder, "store"), options), RANKS)
        except torch.multiprocessing.ProcessExitedException:  # which has said why
            sys.exit(1)


if __name__ == "__main__":
    main()
