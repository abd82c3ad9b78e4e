"""The ranks of bench/compare: what a training step does beyond forward and backward, by zro and by a rival, in turn.

A process is one of two ranks, with one thread; each is started by bench/compare, or by mpirun for the rivals with MPI.  All
contenders train GPT-2 124M (with --quick: its two embeddings of a tenth of the words) with Adam in f32.  Timed are forward,
backward and step of a model whose forward and backward do nothing: gradients lie already where a backward would have written
them.  What remains is to average the gradients, to update and to publish the parameters.

  zro        a ddp with an attached optimizer.  Handed out: parameters once per machine, gradients one array per rank.  Private
             gradients: those are PyTorch's tensors.  In place: both are.
  torch      DistributedDataParallel with gradients as bucket views, its faster form, and ZeroRedundancyOptimizer, or a full fused
             Adam on each rank.  Backward is an autograd function without gradients, so DDP finds those that lie in its buckets.
             All of its contenders share one model, and the forms of Adam one state: the form is an option read in each step.
  deepspeed  stage 1 with PyTorch's fused Adam.
  mpi        allreduce_adam.c, with the whole gradient in one call and in buckets of 25 MB.

Before anything is timed, three steps with other gradients on each rank must give all the same parameters, within the tolerance
of the golden vectors.
"""
import argparse
import ctypes
import itertools
import json
import logging
import os
import sys

sys.dont_write_bytecode = True
from zro_ctypes import (ZroDdp, about, check_memory, distance, elements, fail, gpt2_shapes, ref, torch)
from ranks import RANKS, Bed, Contender, first_times, take_turns, tensors_of
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

BUCKET = (25 << 20) // 4  # elements
ADAM_FORMS = {"default": {}, "foreach": {"foreach": True}, "fused": {"fused": True}}


class Step(Contender):
    """A contender with the tensors that hold its parameters and this rank's gradients.  once: the parameters exist once.
    fresh: its state is its own.  refresh: makes values known that were written into the parameters.  keep: what owns the
    memory of the tensors."""

    def __init__(self, call, params, grads, undo=None, once=False, fresh=True, refresh=None, keep=None):
        super().__init__(call, undo, tensors=lambda: params)
        self.grads, self.once, self.fresh, self.refresh, self.keep = grads, once, fresh, refresh, keep

    def begin(self, bed, values):
        if bed.rank == 0 or not self.once:
            for param, value in zip(self.tensors(), values):
                param.detach().copy_(value)
        bed.barrier()
        if self.refresh is not None:
            self.refresh()

    def verify_step(self, bed, slopes, scale):
        for grad, slope in zip(self.grads, slopes):
            torch.mul(slope, scale, out=grad)
        bed.barrier()
        self.call()
        if self.undo is not None:
            self.undo()


def random_set(shapes, seed, scale):
    generator = torch.Generator().manual_seed(seed)
    return [torch.empty(shape).normal_(0, scale, generator=generator) for shape in shapes]


def parameters(shapes):
    return [torch.nn.Parameter(torch.zeros(shape)) for shape in shapes]


# ---- zro ----


def zro_steps(bed, shapes):
    own = parameters(shapes)
    for tensor in own:
        tensor.grad = torch.zeros_like(tensor)
    for name, data, grads in (("handed out", 1, 1), ("private gradients", 1, 0), ("in place", 0, 0)):
        params = bed.zro.params(own, data=not data)
        if data:
            config = bed.zro.new(bed.zro.c.zro_alloc_config, data=data, grads=grads)
            if grads:
                for param in params:
                    param.grad = None
            bed.zro.lib.zro_params_alloc(bed.group, params, len(params), ref(config))
        ddp = ZroDdp(bed.zro, bed.group, params)
        yield f"zro, {name}", Step(ddp.step, tensors_of(params), tensors_of(params, "grad"), once=bool(data), keep=own)


# ---- PyTorch ----


class Nothing(torch.autograd.Function):
    """A loss whose backward gives the parameters what `given` has, or no gradients at all."""
    given = None

    @staticmethod
    def forward(ctx, *params):
        ctx.count = len(params)
        return torch.zeros(())

    @staticmethod
    def backward(ctx, _):
        return tuple(Nothing.given) if Nothing.given is not None else (None,) * ctx.count


class Model(torch.nn.Module):
    def __init__(self, params):
        super().__init__()
        self.params = torch.nn.ParameterList(params)

    def forward(self):
        return Nothing.apply(*self.params)


def torch_steps(bed, shapes):
    params = parameters(shapes)
    ddp = DistributedDataParallel(Model(params), gradient_as_bucket_view=True)
    Nothing.given = [torch.zeros(shape) for shape in shapes]
    for _ in range(3):  # buckets are formed anew after the first one; then gradients are views of them
        ddp().backward()
    Nothing.given = None

    def step(optimizer, form=None):
        if form is not None:
            for group in optimizer.param_groups:
                group.update({"foreach": None, "fused": None}, **form)
        ddp().backward()
        optimizer.step()

    grads = [param.grad for param in params]
    for views in (False, True):
        zero = ZeroRedundancyOptimizer(params, torch.optim.Adam, parameters_as_bucket_view=views)
        for name, form in ADAM_FORMS.items():
            yield (f"PyTorch ZeRO{', bucket views' if views else ''}, {name} Adam",
                   Step(lambda zero=zero, form=form: step(zero, form), params, grads, fresh=not form))
    full = torch.optim.Adam(params, fused=True)
    yield "PyTorch DDP, full fused Adam", Step(lambda: step(full), params, grads)


# ---- DeepSpeed ----


def deepspeed_steps(bed, shapes):
    os.environ["LOCAL_RANK"] = str(bed.rank)
    logging.disable(logging.WARNING)
    import deepspeed
    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, verbose=False)
    params = parameters(shapes)
    grads = [torch.zeros(shape) for shape in shapes]
    config = {"train_micro_batch_size_per_gpu": 1, "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False, "gradient_clipping": 0.0,
              "zero_optimization": {"stage": 1}}
    engine = deepspeed.initialize(model=Model(params), optimizer=torch.optim.Adam(params, fused=True), config=config)[0]

    def prepare():
        for param, grad in zip(params, grads):
            param.grad = grad

    def step():
        engine.backward(engine())
        engine.step()

    def refresh():
        engine.optimizer.refresh_fp32_params()
        for state in engine.optimizer.optimizer.state.values():  # its making has counted a step
            state["step"].zero_()

    prepare()
    yield "DeepSpeed ZeRO 1, fused Adam", Step(step, params, grads, undo=prepare, refresh=refresh)


# ---- MPI ----


def mpi_steps(bed, shapes):
    lib, count = bed.mpi, elements(shapes)
    p, g, m, v = (torch.zeros(count) for _ in range(4))
    views = [[part.view(shape) for part, shape in zip(flat.split([elements([s]) for s in shapes]), shapes)] for flat in (p, g)]
    numbers, size_t = itertools.count(1), ctypes.c_size_t

    def step(bucket):
        addresses = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (p, g, m, v)]
        if lib.mpi_step(*addresses, size_t(count), size_t(bucket), next(numbers)) != 0:
            fail("MPI_Allreduce failed")

    yield "one all-reduce", Step(lambda: step(count), *views)
    yield "25 MB buckets", Step(lambda: step(BUCKET), *views, fresh=False)


RIVALS = {"torch": torch_steps, "deepspeed": deepspeed_steps, "mpi": mpi_steps}
MEMORY = {"torch": 14, "deepspeed": 12, "mpi": 8}  # arrays of all parameters, on both ranks together

# ---- the run ----


def verify(bed, contenders, shapes):
    """Three steps of all whose state is fresh: the worst difference from the first one / tolerance."""
    values, slopes, first, worst = random_set(shapes, 1, 0.02), random_set(shapes, 2 + bed.rank, 0.01), None, 0.0
    for name, contender in contenders.items():
        if not contender.fresh:
            continue
        contender.begin(bed, values)
        for scale in (1, -0.75, 0.5):
            contender.verify_step(bed, slopes, scale)
        bed.barrier()
        if first is None:
            first = [tensor.detach().clone() for tensor in contender.tensors()]
        off = max(map(distance, first, contender.tensors()))
        if not off <= 1:
            fail(f"after three steps the parameters of {name} are {off:.3g} tolerances away from zro's")
        worst = max(worst, off)
    return max(bed.everywhere(worst))


def shapes_of(options):
    return gpt2_shapes(12) if not options.quick else [(5025, 768), (1024, 768)]


def run(rank, store, options, mpi=None):
    bed = Bed(rank, store, options)
    bed.mpi = mpi
    bed.open_group()
    shapes = shapes_of(options)
    check_memory("compare", elements(shapes) * 4 * (14 + sum(MEMORY[rival] for rival in options.rivals)))
    contenders = dict(zro_steps(bed, shapes))
    for rival in options.rivals:
        contenders.update(RIVALS[rival](bed, shapes))
    bed.progress("do they agree?")
    worst = verify(bed, contenders, shapes)
    first_times(bed, contenders, "compare")
    samples = take_turns(bed, contenders, dict.fromkeys(contenders, options.samples), "compare")
    bed.progress("")
    if rank == 0:
        name = ctypes.create_string_buffer(8192)
        if mpi is not None:
            mpi.mpi_name(name)
        result = {**about(bed.zro), "mpi": name.value.decode(), "elements": elements(shapes),
                  "worst": worst, "samples": {key: [seconds * 1e3 for seconds, _ in taken] for key, taken in samples.items()}}
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
    bed.barrier()
    dist.destroy_process_group()
    if mpi is not None:
        mpi.mpi_finish()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # what PyTorch, DeepSpeed and MPI would do at exit is nobody's time


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("library", help="libzro.so")
    parser.add_argument("store", help="a file that does not exist yet: where the ranks meet")
    parser.add_argument("json", help="the file for the samples")
    parser.add_argument("--rank", type=int, help="of this process; MPI knows it without")
    parser.add_argument("--mpi", metavar="LIBRARY", help="allreduce_adam.c, built with an MPI")
    parser.add_argument("--rivals", type=lambda line: line.split(","), required=True, help=f"of {', '.join(RIVALS)}")
    parser.add_argument("--samples", type=int, default=11)
    parser.add_argument("--quick", action="store_true", help="a small model")
    options = parser.parse_args()
    mpi = ctypes.CDLL(options.mpi) if options.mpi else None
    run(mpi.mpi_start() if mpi is not None else options.rank, options.store, options, mpi)


if __name__ == "__main__":
    main()
