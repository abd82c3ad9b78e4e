#!/usr/bin/env python3
"""What one import gains a PyTorch program on CPUs: the part of a training step beyond forward and backward, by PyTorch and by zro.torch.

    bench/torch_dropin.py [build/lib/libzro.so] [--samples N] [--json FILE] [--quick] [--default-malloc]

Two ranks, each a process with one thread on a processor of its own, train GPT-2 124M (148 tensors, f32) with Adam.  The model is a
chain of layers of which each has one parameter; its forward does nothing, and its backward makes each gradient as autograd does: a
new tensor, written once.  A step is zero_grad, forward, backward and step.

  backward   the same model without any DDP and without a step: the time that is subtracted from all others
  torch      DistributedDataParallel(gradient_as_bucket_view=True) and ZeroRedundancyOptimizer(parameters_as_bucket_view=True) with
             fused Adam: PyTorch's fastest form of both
  default    zro.torch's classes in place of these
  attached   DistributedDataParallel(attached=True) and ZeroRedundancyOptimizer(ddp=...)

All take a sample in turn, and the slower rank counts.  Both sides keep freed memory (zro.torch.keep_freed_memory), as `python -m zro.torch.check` advises;
--default-malloc leaves that out.  Before anything is timed, three steps with other gradients on each rank must agree: default and
attached in all bits, and both with PyTorch within the tolerance of the golden vectors.

Then consolidate_state_dict to rank 0, once by PyTorch and three times by zro.torch; and what Python costs per parameter, of 2,000
small ones: in a backward of the default form, library included, and in a step, which takes turns with the library's own.  A backward of
the same model comes right before each of these steps, as in a training.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from zro_ctypes import about, check_memory, distance, elements, fail, gpt2_shapes, timed, torch, Zro
import torch.distributed as dist

RANKS, ROOT = 2, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
FORMS = ("torch", "default", "attached")
SMALL = 2000

# ---- the model ----


class Layer(torch.autograd.Function):
    """Its gradient is the parameter times a number of the rank's: written once, to new memory."""
    factor = 0.5

    @staticmethod
    def forward(ctx, x, p):
        ctx.save_for_backward(p)
        return x + 1

    @staticmethod
    def backward(ctx, g):
        return g, ctx.saved_tensors[0] * Layer.factor


class Chain(torch.nn.Module):
    def __init__(self, shapes):
        super().__init__()
        values = torch.Generator().manual_seed(2)
        self.params = torch.nn.ParameterList([torch.nn.Parameter(torch.empty(shape).normal_(0, 0.02, generator=values))
                                              for shape in shapes])

    def forward(self, x):
        for p in self.params:
            x = Layer.apply(x, p)
        return x.sum()


class Contender:
    """A model, wrapped or not, and perhaps an optimizer."""

    def __init__(self, name, shapes):
        self.model, self.optimizer = Chain(shapes), None
        self.params, self.x = list(self.model.parameters()), torch.ones(4, requires_grad=True)
        if name == "torch":
            from torch.distributed.optim import ZeroRedundancyOptimizer
            from torch.nn.parallel import DistributedDataParallel
            self.model = DistributedDataParallel(self.model, gradient_as_bucket_view=True)
            self.optimizer = ZeroRedundancyOptimizer(self.params, torch.optim.Adam, parameters_as_bucket_view=True, fused=True)
        elif name != "backward":
            from zro.torch import DistributedDataParallel, ZeroRedundancyOptimizer
            self.model = DistributedDataParallel(self.model, attached=name == "attached")
            attached = {"ddp": self.model} if name == "attached" else {"parameters_as_bucket_view": True}
            self.optimizer = ZeroRedundancyOptimizer(self.params, torch.optim.Adam, **attached)

    ready = staticmethod(dist.barrier)  # before a step is timed

    def backward(self):
        for p in self.params:
            p.grad = None
        self.model(self.x).backward()

    def step(self):
        self.backward()
        if self.optimizer is not None:
            self.optimizer.step()


# ---- samples ----


def everywhere(mine):
    values = [None] * RANKS
    dist.all_gather_object(values, mine)
    return values


def verify(contenders):
    """The worst difference from PyTorch's parameters after three steps, in tolerances."""
    for factor in (0.5, -0.3, 1):
        for contender in contenders.values():
            Layer.factor = factor * (1 + dist.get_rank())
            contender.step()
    Layer.factor = 0.5
    theirs, ours, attached = (contenders[name].params for name in FORMS)
    if not all(torch.equal(a, b) for a, b in zip(ours, attached)):
        fail("the parameters of the default and the attached form differ in their bits")
    worst = max(map(distance, theirs, ours))
    if not worst <= 1:
        fail(f"after three steps the parameters are {worst:.3g} tolerances away from PyTorch's")
    return max(everywhere(worst))


def take_turns(contenders, samples):
    taken, names = {name: [] for name in contenders}, list(contenders)
    for contender in contenders.values():
        contender.step()
    for repetition in range(samples):
        turn = repetition % len(names)
        for name in names[turn:] + names[:turn]:
            taken[name].append(timed(contenders[name].step, contenders[name].ready)[0] * 1e3)
    both = everywhere(taken)
    return {name: [max(pair) for pair in zip(*(mine[name] for mine in both))] for name in names}


def consolidate(contenders):
    """Seconds until rank 0 has the whole state."""
    taken = {}
    for name, often in (("torch", 1), ("default", 3)):
        call = contenders[name].optimizer.consolidate_state_dict
        taken[name] = [max(pair) for pair in zip(*everywhere([timed(call, dist.barrier)[0] for _ in range(often)]))]
    return taken


class Side:
    """The step alone, after a backward: through Python, or of the library, which has been told beforehand where gradients are."""

    def __init__(self, contender, optimizer, in_python):
        from zro._c import lib
        self.backward, self.refresh = contender.backward, None if in_python else optimizer._parts[0].refresh
        self.step = optimizer.step if in_python else lambda: lib.zro_optim_step(optimizer._parts[0].handle, None)

    def ready(self):
        self.backward()
        if self.refresh is not None:
            self.refresh()
        dist.barrier()


def step_sides(contender, optimizer):
    optimizer.step()
    return {"library": Side(contender, optimizer, False), "python": Side(contender, optimizer, True)}


def measure(options, rank):
    shapes = gpt2_shapes(12) if not options.quick else [(502, 768), (1024, 768)] + [(768,)] * 20
    check_memory("torch_dropin", elements(shapes) * 4 * 30)
    contenders = {name: Contender(name, shapes) for name in ("backward",) + FORMS}
    result = {"worst": verify(contenders), "elements": elements(shapes), "tensors": len(shapes)}
    result["samples"] = take_turns(contenders, options.samples)
    result["consolidate"] = consolidate(contenders)
    contenders.clear()
    small = {name: Contender(name, [(16,)] * SMALL) for name in ("backward", "default")}
    optimizer, small["default"].optimizer = small["default"].optimizer, None
    times = take_turns(small, options.samples)
    result["hook_us"] = [(ours - plain) * 1e3 / SMALL for plain, ours in zip(times["backward"], times["default"])]
    times = take_turns(step_sides(small["default"], optimizer), 20 * options.samples)
    result["step_us"] = [(ours - plain) * 1e3 / SMALL for plain, ours in zip(times["library"], times["python"])]
    return result


def be_rank(options, rank):
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank % os.cpu_count()]})
    torch.set_num_threads(1)
    if not options.default_malloc:
        from zro.torch import keep_freed_memory
        keep_freed_memory()
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{options.store}", rank=rank, world_size=RANKS)
    result = measure(options, rank)
    if rank == 0:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({**about(Zro(options.library)), "malloc": "default" if options.default_malloc else "keeps freed memory", **result},
                      file, indent=1)
    dist.barrier()
    sys.stderr.flush()
    os._exit(0)  # what PyTorch would do at exit is nobody's time


# ---- the report ----


def quartiles(values):
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return f"{middle:8.1f} [{low:.1f}-{high:.1f}]"


def report(result):
    samples = result["samples"]
    beyond = {name: [a - b for a, b in zip(samples[name], samples["backward"])] for name in FORMS}
    print(f"zro {result['zro']}, PyTorch {result['torch']}, {result['machine']}; malloc: {result['malloc']}")
    print(f"{result['tensors']} tensors, {result['elements'] / 1e6:.1f} M elements; ms, medians [quartiles] of {len(samples['torch'])}")
    print(f"{'':10} {'whole step':>22} {'beyond backward':>22} {'times as fast as torch':>26}")
    print(f"{'backward':10} {quartiles(samples['backward']):>22}")
    for name in FORMS:
        ratios = [theirs / ours for theirs, ours in zip(beyond["torch"], beyond[name])]
        print(f"{name:10} {quartiles(samples[name]):>22} {quartiles(beyond[name]):>22} {quartiles(ratios):>26}")
    theirs, ours = (statistics.median(result["consolidate"][name]) for name in ("torch", "default"))
    print(f"consolidate_state_dict to rank 0: PyTorch {theirs:.1f} s, zro {ours:.3f} s, {theirs / ours:.0f} times as fast")
    print(f"Python per parameter: in a backward of the default form {quartiles(result['hook_us']).strip()} us, in a step "
          f"{statistics.median(result['step_us']):.2f} us; parameters agree with PyTorch's to {result['worst']:.2g} tolerances")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("library", nargs="?", default=os.path.join(ROOT, "build", "lib", "libzro.so"), help="libzro.so")
    parser.add_argument("--samples", type=int, default=11)
    parser.add_argument("--json", metavar="FILE", help="where all samples go")
    parser.add_argument("--quick", action="store_true", help="a small model")
    parser.add_argument("--default-malloc", action="store_true", help="malloc as it is")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        be_rank(options, options.rank)
    with tempfile.TemporaryDirectory() as folder:
        path = options.json or os.path.join(folder, "samples.json")
        command = [sys.executable, *sys.argv, "--store", os.path.join(folder, "store"), "--json", path]
        environment = {**os.environ, "ZRO_LIBRARY": os.path.abspath(options.library),
                       "PYTHONPATH": os.path.join(ROOT, "python") + os.pathsep + os.environ.get("PYTHONPATH", "")}
        ranks = [subprocess.Popen([*command, "--rank", str(rank)], env=environment) for rank in range(RANKS)]
        try:
            if any([rank.wait() != 0 for rank in ranks]):
                fail("a rank failed")
        finally:
            for rank in ranks:
                rank.kill()
        with open(path, encoding="utf-8") as file:
            report(json.load(file))


if __name__ == "__main__":
    main()
