#!/usr/bin/env python3
"""zro.torch.ZeroRedundancyOptimizer and its hooks against PyTorch itself:  test_torch_optim.py [PART OF A NAME]...

Every case runs on ranks that torch starts, on gloo.  The ranks of a world run its cases one after another; a failure on any rank is a
failure, with rank, case and trace.  ZRO_LIBRARY names the library."""
import contextlib
import copy
import datetime
import io
import itertools
import os
import re
import sys
import tempfile
import traceback
import warnings

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, fp16_compress_hook
from torch.distributed.algorithms.join import Join, Joinable, JoinHook
from torch.distributed.optim import ZeroRedundancyOptimizer as TorchZero
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "python"))
import zro  # noqa: E402
import zro.torch._groups  # noqa: E402
from zro.torch import ZeroRedundancyOptimizer, hook_with_zero_step, hook_with_zero_step_interleaved  # noqa: E402

CASES = []


def case(*worlds):
    def add(function):
        CASES.extend((world, function) for world in worlds)
        return function

    return add


def same(a, b, what="", **tolerance):
    torch.testing.assert_close(a, b, msg=lambda text: f"{what}: {text}", **tolerance)


def check_params(mine, theirs, what="", **tolerance):
    for i, (p, q) in enumerate(zip(mine, theirs)):
        same(p.detach(), q.detach(), f"{what} parameter {i}", **tolerance)


def check_states(mine, theirs, what=""):
    """Two state dicts have the same keys, types and numbers."""
    assert mine["state"].keys() == theirs["state"].keys(), (what, mine["state"].keys(), theirs["state"].keys())
    for i, state in theirs["state"].items():
        assert mine["state"][i].keys() == state.keys(), (what, i, mine["state"][i].keys(), state.keys())
        for name, value in state.items():
            if torch.is_tensor(value):
                same(mine["state"][i][name], value, f"{what} state {name} of {i}")
            else:
                assert mine["state"][i][name] == value
    for a, b in zip(mine["param_groups"], theirs["param_groups"]):
        assert {k: v for k, v in a.items()} == {k: v for k, v in b.items()}, (what, a, b)


def model(dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(10, 21), torch.nn.Tanh(), torch.nn.Linear(21, 7), torch.nn.Linear(7, 3)).to(dtype)


def backward(net, step, dtype=torch.float32):
    """The same gradients on all ranks."""
    generator = torch.Generator().manual_seed(1000 + step)
    net(torch.randn(8, 10, generator=generator).to(dtype)).tanh().mean().backward()


def train(pairs, steps, first=0, dtype=torch.float32):
    for step in range(first, first + steps):
        for net, optim in pairs:
            optim.zero_grad()
            backward(net, step, dtype)
            optim.step()


def step_given(pairs, steps, first=0):
    """Steps with gradients that do not depend on the parameters, so that differences do not grow."""
    for step in range(first, first + steps):
        for params, optim in pairs:
            generator = torch.Generator().manual_seed(step)
            for p in params:
                p.grad = torch.randn(p.shape, dtype=p.dtype, generator=generator)
            optim.step()


def by_rule(zero):
    return zero._parts and zero._rule is not None


def consolidated(zero):
    """The whole state, on all ranks."""
    for to in range(zero.world_size):
        zero.consolidate_state_dict(to=to)
        if zero.rank == to:
            mine = copy.deepcopy(zero.state_dict())
    return mine


# ---- rules and options ----

SWITCH = ({}, {"maximize": True})
OPTIONS = {
    "SGD": [{"lr": .05}, {"momentum": .9}, {"momentum": .9, "dampening": .3}, {"momentum": .9, "nesterov": True}, {"weight_decay": .1},
            {"momentum": .8, "weight_decay": .1, "dampening": .1}, {"fused": True}, {"foreach": True}],
    "Adam": [{"lr": .05}, {"betas": (.8, .95)}, {"eps": 1e-3}, {"weight_decay": .1}, {"amsgrad": True}, {"fused": True},
             {"weight_decay": .1, "decoupled_weight_decay": True}, {"amsgrad": True, "weight_decay": .1}, {"foreach": False},
             {"lr": torch.tensor(.02), "foreach": False}],
    "AdamW": [{"lr": .05}, {"betas": (.8, .95)}, {"eps": 1e-3}, {"weight_decay": .1}, {"weight_decay": 0}, {"amsgrad": True}],
    "Adagrad": [{"lr": .05}, {"lr_decay": .1}, {"weight_decay": .1}, {"initial_accumulator_value": .5}, {"eps": 1e-3}],
    "Adadelta": [{"lr": .5}, {"rho": .7}, {"eps": 1e-3}, {"weight_decay": .1}],
    "Adamax": [{"lr": .05}, {"betas": (.8, .95)}, {"eps": 1e-3}, {"weight_decay": .1}],
    "RMSprop": [{"lr": .01}, {"alpha": .8}, {"eps": 1e-3}, {"weight_decay": .1}, {"momentum": .9}, {"centered": True},
                {"centered": True, "momentum": .5, "weight_decay": .1}],
    "Rprop": [{"lr": .01}, {"etas": (.4, 1.5)}, {"step_sizes": (1e-4, .1)}],
    "ASGD": [{"lr": .05}, {"lambd": .1}, {"alpha": .5}, {"t0": 2}, {"weight_decay": .1}],
    "NAdam": [{"lr": .05}, {"betas": (.8, .95)}, {"eps": 1e-3}, {"weight_decay": .1}, {"momentum_decay": .1},
              {"weight_decay": .1, "decoupled_weight_decay": True}],
    "RAdam": [{"lr": .05}, {"betas": (.8, .95)}, {"eps": 1e-3}, {"weight_decay": .1},
              {"weight_decay": .1, "decoupled_weight_decay": True}],
}


@case(2)
def every_rule_and_option(rank):
    """As torch does it, parameters and state, in both types; the state goes both ways, and the next steps agree."""
    for name, settings in OPTIONS.items():
        kind = getattr(torch.optim, name)
        for options, switch, dtype in itertools.product(settings, SWITCH, (torch.float32, torch.float64)):
            if options.get("fused") and switch:
                continue
            options = {**options, **switch}
            what = f"{name} {options} {dtype}"
            mine, theirs = [[torch.linspace(-1, 1, n, dtype=dtype).requires_grad_() for n in (70, 9, 1, 33)] for _ in range(2)]
            zero, local = ZeroRedundancyOptimizer(mine, kind, **options), kind(theirs, **options)
            step_given([(mine, zero), (theirs, local)], 7)
            assert by_rule(zero), what
            check_params(mine, theirs, what)
            state = consolidated(zero)
            check_states(state, local.state_dict(), what)
            other = ZeroRedundancyOptimizer(theirs, kind, lr=.5)
            other.load_state_dict(local.state_dict())
            local = kind(mine, lr=.5)
            local.load_state_dict(state)
            step_given([(mine, local), (theirs, other)], 3, 7)
            check_params(mine, theirs, what + " after load")


@case(2)
def values_that_change(rank):
    """Schedules, and options that bring new slots, or that zro does not have."""
    mine, theirs = model(), model()
    zero, local = ZeroRedundancyOptimizer(mine.parameters(), torch.optim.SGD, lr=.1), torch.optim.SGD(theirs.parameters(), lr=.1)
    schedules = [torch.optim.lr_scheduler.StepLR(o, 2, .5) for o in (zero, local)]
    for step in range(8):
        train([(mine, zero), (theirs, local)], 1, step)
        for schedule in schedules:
            schedule.step()
        if step == 3:
            for o in (zero, local):
                o.param_groups[0]["momentum"] = .9
    check_params(mine.parameters(), theirs.parameters())
    assert all("momentum_buffer" in zero.optim.state[p] for p in zero.optim.param_groups[0]["params"])
    check_states(consolidated(zero), local.state_dict())
    mine, theirs = model(), model()
    zero, local = ZeroRedundancyOptimizer(mine.parameters(), torch.optim.Adam), torch.optim.Adam(theirs.parameters())
    train([(mine, zero), (theirs, local)], 3)
    assert by_rule(zero)
    for o in (zero, local):
        o.param_groups[0]["differentiable"], o.param_groups[0]["foreach"] = True, False
    with torch.no_grad():  # differentiable steps would join the graph
        for step in range(3, 6):
            for net, o in ((mine, zero), (theirs, local)):
                o.zero_grad()
                with torch.enable_grad():
                    backward(net, step)
                grads = [p.grad.detach() for p in net.parameters()]
                for p, g in zip(net.parameters(), grads):
                    p.requires_grad_(False).grad = g
                o.step()
                for p in net.parameters():
                    p.requires_grad_(True)
    assert zero._rule is None
    check_params(mine.parameters(), theirs.parameters())


# ---- Python's own ----


class Halving(torch.optim.Optimizer):
    """A class that zro does not know, with state of every kind."""

    def __init__(self, params, lr=.1):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None, note=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            group["seen"] = group.get("seen", 0) + 1
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                state["half"] = state.get("half", torch.zeros_like(p)).mul(.5).add(p.grad)
                state["count"], state["word"] = state.get("count", 0) + 1, "a word"
                p.add_(state["half"].to(p.dtype), alpha=-group["lr"])
        if note is not None:
            note.append(loss)
        return loss


@case(2)
def steps_in_python(rank):
    for dtype in (torch.float32, torch.bfloat16):
        mine, theirs = model(dtype), model(dtype)
        zero, local = ZeroRedundancyOptimizer(mine.parameters(), Halving, lr=.2), Halving(theirs.parameters(), lr=.2)
        train([(mine, zero), (theirs, local)], 4, dtype=dtype)
        assert zero._rule is None and zero.param_groups[0]["seen"] == 4
        check_params(mine.parameters(), theirs.parameters(), rtol=0, atol=0)
        check_states(consolidated(zero), local.state_dict())
        notes = []
        assert zero.step(lambda: torch.tensor(3.), note=notes) == 3 and notes == [3]
        local.step()
        zero.load_state_dict(local.state_dict())
        train([(mine, zero), (theirs, local)], 1, 9, dtype=dtype)
        check_params(mine.parameters(), theirs.parameters(), rtol=0, atol=0)
    mine, theirs = model(torch.bfloat16), model(torch.bfloat16)  # torch's class, but not a type of zro's
    zero, local = ZeroRedundancyOptimizer(mine.parameters(), torch.optim.Adam), torch.optim.Adam(theirs.parameters())
    train([(mine, zero), (theirs, local)], 3, dtype=torch.bfloat16)
    assert zero._rule is None
    check_params(mine.parameters(), theirs.parameters(), rtol=0, atol=0)


@case(2)
def parameters_of_every_layout(rank):
    """channels_last, gradients in another order, slices of larger tensors, numbers, nothing, complex, sparse gradients."""
    def make():
        torch.manual_seed(3)
        wide = torch.randn(6, 5, 4, 3).to(memory_format=torch.channels_last).requires_grad_()
        return [wide, torch.randn(()).requires_grad_(), torch.randn(0, 3).requires_grad_(), torch.randn(4, 9).t().requires_grad_(),
                torch.randn(8).requires_grad_()]

    for kind in (torch.optim.Adam, Halving):
        mine, theirs = make(), make()
        zero, local = ZeroRedundancyOptimizer(mine, kind, lr=.1), kind(theirs, lr=.1)
        for step in range(3):
            for params, o in ((mine, zero), (theirs, local)):
                torch.manual_seed(step)
                for p in params:
                    p.grad = torch.randn(p.shape)  # contiguous, whatever the parameter is
                o.step()
        assert bool(by_rule(zero)) == (kind is torch.optim.Adam)
        check_params(mine, theirs)
        check_states(consolidated(zero), local.state_dict())
        if kind is torch.optim.Adam and zero._param_to_rank[mine[0]] == rank:
            assert zero.optim.state[mine[0]]["exp_avg"].stride() == mine[0].stride()
    base, other = [torch.ones(6, 6), torch.ones(6, 6)], [torch.ones(6, 6), torch.ones(6, 6)]
    mine, theirs = [b[:, ::2].requires_grad_() for b in base], [b[:, ::2].requires_grad_() for b in other]
    for params, o in ((mine, ZeroRedundancyOptimizer(mine, torch.optim.SGD, lr=.5)), (theirs, torch.optim.SGD(theirs, lr=.5))):
        for p in params:
            p.grad = torch.full((6, 3), .25)
        o.step()
    check_params(mine, theirs)
    same(base[0], other[0])
    for name in ("SGD", "Adagrad"):
        tables = [torch.nn.Embedding(20, 4, sparse=True) for _ in range(2)]
        tables[1].load_state_dict(tables[0].state_dict())
        dist.broadcast(tables[0].weight.data, 0)
        dist.broadcast(tables[1].weight.data, 0)
        kind = getattr(torch.optim, name)
        for table, o in zip(tables, (ZeroRedundancyOptimizer(tables[0].parameters(), kind, lr=.1), kind(tables[1].parameters(), lr=.1))):
            table(torch.tensor([1, 5, 5])).sum().backward()
            o.step()
        same(tables[0].weight, tables[1].weight)
    p = torch.zeros(3, dtype=torch.complex64, requires_grad=True)
    zero = ZeroRedundancyOptimizer([p], torch.optim.SGD, lr=1.)
    p.grad = torch.full((3,), 1 + 2j)
    zero.step()
    same(p.detach(), torch.full((3,), -1 - 2j))


# ---- what programs do ----


@case(2)
def groups_closures_freezing(rank):
    for view in (False, True):
        mine, theirs = model(), model()
        zero = ZeroRedundancyOptimizer([{"params": list(mine[0].parameters()), "lr": .3, "name": "first"}], torch.optim.AdamW, lr=.1,
                                       parameters_as_bucket_view=view)
        local = torch.optim.AdamW([{"params": theirs[0].parameters(), "lr": .3, "name": "first"}], lr=.1)
        train([(mine, zero), (theirs, local)], 2)
        for net, o in ((mine, zero), (theirs, local)):
            o.add_param_group({"params": list(net[2].parameters()), "weight_decay": 0.})
            o.add_param_group({"params": list(net[3].parameters())})
        for step in range(2, 6):
            losses = []
            for net, o in ((mine, zero), (theirs, local)):
                def closure(net=net, o=o, step=step):
                    o.zero_grad()
                    backward(net, step)
                    return torch.tensor(float(step))

                losses.append(o.step(closure))
            assert losses == [step, step]
            for net in (mine, theirs):
                net[0].weight.requires_grad = step % 2 == 0
        check_params(mine.parameters(), theirs.parameters())
        state = consolidated(zero)
        check_states(state, local.state_dict())
        assert state["param_groups"][0]["name"] == "first"
    try:
        zero.step(lambda: 1 / 0 if rank == 1 else torch.zeros(()))
        assert False, "a closure that fails is an error on all ranks"
    except ZeroDivisionError:
        assert rank == 1
    except zro.Error as error:
        assert rank == 0 and "ZeroDivisionError" in str(error), error
    train([(mine, zero), (theirs, local)], 1, 8)
    check_params(mine.parameters(), theirs.parameters())


@case(2)
def state_is_memory(rank):
    """What is written to `optim.state` counts; what the local optimizer loads, too."""
    mine, theirs = model(), model()
    zero, local = ZeroRedundancyOptimizer(mine.parameters(), torch.optim.Adam), torch.optim.Adam(theirs.parameters())
    train([(mine, zero), (theirs, local)], 2)
    places = {p: zero.optim.state[p]["exp_avg"].data_ptr() for p in zero.optim.param_groups[0]["params"]}
    for o in (zero.optim, local):
        for state in o.state.values():
            state["exp_avg"].mul_(-2)
            state["step"] += 3
    train([(mine, zero), (theirs, local)], 2, 2)
    check_params(mine.parameters(), theirs.parameters())
    assert all(zero.optim.state[p]["exp_avg"].data_ptr() == place for p, place in places.items())
    zero.optim.load_state_dict(copy.deepcopy(zero.optim.state_dict()))
    train([(mine, zero), (theirs, local)], 2, 4)
    check_params(mine.parameters(), theirs.parameters())
    del zero, local
    kept = [torch.zeros(3, requires_grad=True)]
    zero = ZeroRedundancyOptimizer(kept, torch.optim.Adam, parameters_as_bucket_view=True)
    kept[0].grad = torch.ones(3)
    zero.step()
    held = [zero.optim.state[p]["exp_avg"] for p in zero.optim.param_groups[0]["params"]]
    del zero  # views keep the memory
    assert all(float(t.sum()) > 0 for t in held) and float(kept[0].detach().sum()) < 0


@case(2)
def files_of_either_class(rank):
    """torch.save by one class, torch.load by the other, with torch's ZeroRedundancyOptimizer as the third."""
    nets = [model() for _ in range(3)]
    kind, options = torch.optim.Adam, {"lr": .02, "amsgrad": True}
    optims = [ZeroRedundancyOptimizer(nets[0].parameters(), kind, **options), TorchZero(nets[1].parameters(), kind, **options),
              kind(nets[2].parameters(), **options)]
    train(list(zip(nets, optims)), 3)
    files = []
    for i, o in enumerate(optims):
        name = os.path.join(os.environ["ZRO_TEST_FOLDER"], f"state-{i}.pt")
        if i < 2:
            o.consolidate_state_dict(to=1)
        if rank == 1:
            torch.save(o.state_dict(), name)
        files.append(name)
    dist.barrier()
    again = [ZeroRedundancyOptimizer(nets[0].parameters(), kind, lr=1.), TorchZero(nets[1].parameters(), kind, lr=1.),
             kind(nets[2].parameters(), lr=1.)]
    for i, o in enumerate(again):
        loaded = torch.load(files[(i + 1) % 3])
        before = copy.deepcopy(loaded)
        o.load_state_dict(loaded)
        if i == 0:  # it copies, and leaves the dict as it is
            check_states(loaded, before)
    train(list(zip(nets, again)), 3, 3)
    check_params(nets[0].parameters(), nets[2].parameters())
    check_params(nets[1].parameters(), nets[2].parameters())
    if rank == 1:
        assert os.path.getsize(files[0]) < 1.5 * os.path.getsize(files[2])
    try:
        again[0].state_dict()
        assert False
    except RuntimeError as error:
        assert "has not been consolidated" in str(error)
    try:
        again[0].load_state_dict({"state": {}, "param_groups": []})
        assert False
    except ValueError as error:
        assert "different number of parameter groups" in str(error)


@case(2)
def states_of_other_parameters(rank):
    """Refused where they are loaded, by all ranks, before the first step and after it; nothing has changed then."""
    mine, theirs = model(), model()
    zero, local = ZeroRedundancyOptimizer(mine.parameters(), torch.optim.Adam), torch.optim.Adam(theirs.parameters())
    for first in (0, 2):
        bad = {"state": {3: {"step": torch.tensor(1.), "exp_avg": torch.zeros(2), "exp_avg_sq": torch.zeros(7)}},
               "param_groups": local.state_dict()["param_groups"]}
        try:
            zero.load_state_dict(bad)
            assert False, "not refused"
        except ValueError as error:
            assert "'exp_avg' of parameter 3 has shape (2,), and the parameter (7,)" in str(error), error
        train([(mine, zero), (theirs, local)], 2, first)
    check_params(mine.parameters(), theirs.parameters())
    check_states(consolidated(zero), local.state_dict())


def worker(_):
    return int(torch.utils.data.get_worker_info().id)


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return torch.full((10,), float(i))


@case(2)
def moved_copied_saved_forked(rank):
    for view in (False, True):
        mine, theirs = model(), model()
        zero = ZeroRedundancyOptimizer(mine.parameters(), torch.optim.Adam, lr=.05, parameters_as_bucket_view=view)
        local = torch.optim.Adam(theirs.parameters(), lr=.05)
        train([(mine, zero), (theirs, local)], 2)
        for net in (mine, theirs):
            net[0].weight.data = net[0].weight.data.clone() * 2
            net[2].bias.data.fill_(.5)
        train([(mine, zero), (theirs, local)], 2, 2)
        check_params(mine.parameters(), theirs.parameters(), f"view {view}")
        version = mine[0].weight._version
        train([(mine, zero), (theirs, local)], 1, 4)
        assert mine[0].weight._version > version
        copied = copy.deepcopy(mine)
        train([(mine, zero), (theirs, local)], 1, 5)
        assert not torch.equal(copied[0].weight, mine[0].weight)
        for rows in torch.utils.data.DataLoader(Rows(), batch_size=2, num_workers=2, multiprocessing_context="fork"):
            mine(rows)
        train([(mine, zero), (theirs, local)], 1, 6)
        check_params(mine.parameters(), theirs.parameters())
        file = io.BytesIO()
        torch.save(mine[3].bias, file)
        assert len(file.getvalue()) < 4096
    try:
        mine.double()
        backward(mine, 7, torch.float64)
        zero.step()
        assert False
    except RuntimeError as error:
        assert "make a new optimizer" in str(error)


@case(2)
def other_views_of_the_same_memory(rank):
    """`p.data` at the address that it had, with another shape or other strides: no gradient is read beyond its end, or in a wrong order."""
    for change, text in ((lambda data: data[:2], "make a new optimizer"), (lambda data: data.t(), "has strides")):
        for view in (False, True):
            p = torch.ones(3, 3, requires_grad=True)
            zero = ZeroRedundancyOptimizer([p], torch.optim.SGD, lr=1., parameters_as_bucket_view=view)
            p.grad = torch.ones(3, 3)
            zero.step()
            p.grad = None
            p.data = change(p.data)
            p.grad = torch.ones(p.shape)
            try:
                zero.step()
                assert False, "not noticed"
            except RuntimeError as error:
                assert text in str(error), error
            assert float(p.detach().abs().sum()) == 0


@case(2)
def exceptions_as_torch_raises_them(rank):
    p = torch.zeros(3, requires_grad=True)
    for make, kind in ((lambda: ZeroRedundancyOptimizer([], torch.optim.SGD), ValueError),
                       (lambda: ZeroRedundancyOptimizer(p, torch.optim.SGD), TypeError),
                       (lambda: ZeroRedundancyOptimizer([p, 4], torch.optim.SGD), TypeError),
                       (lambda: ZeroRedundancyOptimizer([p], torch.optim.SGD, lr=-1), ValueError),
                       (lambda: ZeroRedundancyOptimizer([torch.zeros(3).to_sparse()], torch.optim.SGD), ValueError),
                       (lambda: ZeroRedundancyOptimizer([torch.zeros(3, device="meta")], torch.optim.SGD), ValueError),
                       (lambda: ZeroRedundancyOptimizer([p], Halving, overlap_with_ddp=True), ValueError),
                       (lambda: hook_with_zero_step(None, None, ZeroRedundancyOptimizer([p], torch.optim.SGD)), ValueError),
                       (lambda: ZeroRedundancyOptimizer([p], torch.optim.SGD).step(unknown=1), TypeError)):
        try:
            make()
            assert False, f"not refused: {make}"
        except kind:
            pass
    zero = ZeroRedundancyOptimizer([p], torch.optim.SGD)
    assert isinstance(zero, TorchZero) and isinstance(zero, torch.optim.Optimizer)


class First(Joinable):
    """Stands where a DistributedDataParallel would: the first of a join says who has inputs."""

    join_device, join_process_group = torch.device("cpu"), property(lambda self: dist.group.WORLD)

    def __init__(self):
        super().__init__()

    def join_hook(self, **_):
        return JoinHook()


@case(2)
def a_rank_that_has_joined(rank):
    """It steps what it owns with the gradients that it has."""
    mine, theirs = model(), model()
    zero = ZeroRedundancyOptimizer(mine.parameters(), torch.optim.SGD, lr=.1)
    local = torch.optim.SGD(theirs.parameters(), lr=.1)
    backward(theirs, 0)
    for p, q in zip(mine.parameters(), theirs.parameters()):
        p.grad = q.grad.clone()
    first = First()
    with Join([first, zero]):
        for _ in range(2 + rank):
            Join.notify_join_context(first)
            zero.step()
    for _ in range(3):
        local.step()
    check_params(mine.parameters(), theirs.parameters())


@case(4)
def groups_of_some_ranks(rank):
    """Only the members take part; one zro group per process group; both ends with their process group."""
    even, odd = dist.new_group([0, 2]), dist.new_group([3, 1])
    group = even if rank % 2 == 0 else odd
    optims = []
    for _ in range(2):
        mine, theirs = model(), model()
        zero, local = ZeroRedundancyOptimizer(mine.parameters(), torch.optim.Adam, process_group=group), torch.optim.Adam(theirs.parameters())
        train([(mine, zero), (theirs, local)], 2 + rank % 2)
        check_params(mine.parameters(), theirs.parameters())
        optims.append(zero)
    assert optims[0]._parts[0].group is optims[1]._parts[0].group
    assert optims[0]._parts[0].group.size == 2 and zro.torch._groups.group_of(group) is optims[0]._parts[0].group
    zero.consolidate_state_dict(to=1)
    if zero.rank == 1:
        check_states(zero.state_dict(), local.state_dict())


# ---- hooks ----


def overlapped(make_hook, lose, wrapped=allreduce_hook, iterations=6, static=False, **options):
    """A training with a hook beside one without; both end with the same parameters."""
    mine, theirs = [model(seed=4) for _ in range(2)]
    ddp = DistributedDataParallel(mine, bucket_cap_mb=.0003, static_graph=static)
    plain = DistributedDataParallel(theirs, bucket_cap_mb=.0003, static_graph=static)
    zero = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.Adam, overlap_with_ddp=True, lr=.03)
    local = torch.optim.Adam(plain.parameters(), lr=.03)
    ddp.register_comm_hook(None, make_hook(wrapped, ddp, zero, lose_first_iterations=lose, **options))
    plain.register_comm_hook(None, wrapped)
    lost = (3 if static else 2) if lose else 0
    for step in range(iterations):
        for net, o in ((ddp, zero), (plain, local)):
            o.zero_grad()
            backward(net, 10 * step + dist.get_rank())
        if step >= lost:
            local.step()
        check_params(mine.parameters(), theirs.parameters(), f"step {step} {make_hook.__name__} {lose} {options}")
        if step == 3:
            for o in (zero, local):
                o.param_groups[0]["lr"] = .01
    return zero, local, len(zero._parts)


@case(2)
def hooks_that_lose_nothing(rank):
    for make_hook in (hook_with_zero_step, hook_with_zero_step_interleaved):
        zero, local, n_parts = overlapped(make_hook, False)
        assert (n_parts > 1) == (make_hook is hook_with_zero_step_interleaved), n_parts
        state = consolidated(zero)
        for i, entry in local.state_dict()["state"].items():
            for name, value in entry.items():
                same(state["state"][i][name], value)
        zero.load_state_dict(local.state_dict())


@case(2)
def hooks_that_lose_iterations(rank):
    for make_hook in (hook_with_zero_step, hook_with_zero_step_interleaved):
        overlapped(make_hook, True)
        overlapped(make_hook, True, shard_buckets=dist.get_world_size() > 4, static=True, iterations=5)
        overlapped(make_hook, True, wrapped=fp16_compress_hook)


@case(2)
def a_hook_that_fails(rank):
    mine = model()
    ddp = DistributedDataParallel(mine)
    zero = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.SGD, overlap_with_ddp=True, lr=.1)
    ddp.register_comm_hook(None, hook_with_zero_step(allreduce_hook, ddp, zero, lose_first_iterations=False))
    with warnings.catch_warnings(record=True) as caught:
        backward(ddp, 0)
    assert not caught, caught[0].message  # torch's functional optimizer warns of TorchScript
    zero.param_groups[0]["lr"] = -1.
    try:
        backward(ddp, 1)
        assert False
    except Exception as error:  # as the C++ of torch hands it on
        assert "lr" in str(error), error


# ---- texts ----


@case(2)
def advice_for_pytorch(rank):
    """Warnings say what a program in PyTorch can do, and name no calls of C."""
    mine = model(seed=rank)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        zero = ZeroRedundancyOptimizer(mine.parameters(), torch.optim.SGD, lr=.1)
        zero.step()
        backward(mine, rank)
        zero.step()
    text = said.getvalue()
    assert "no parameter has a gradient; call loss.backward() before the step" in text, text
    assert "zro_" not in text, text
    mine = model(seed=rank)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        backward(mine, rank)
        ZeroRedundancyOptimizer(mine.parameters(), torch.optim.SGD, lr=.1).step()
    text = said.getvalue()
    assert "zro_" not in text, text
    if rank == 0:
        assert "average gradients before each step: wrap the model in DistributedDataParallel\n" in text, text
        assert "begin with DistributedDataParallel(model), or" in text, text


@case(2)
def pieces_of_the_document(rank):
    """The pieces of Python in docs/pytorch.md run, one after another in one program."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "docs", "pytorch.md")
    with open(path, encoding="utf-8") as file:
        pieces = re.findall(r"^```python\n(.*?)^```", file.read(), flags=re.M | re.S)
    assert len(pieces) == 4, len(pieces)
    names = {"net": model(), "batches": [torch.full((3, 10), float(rank))], "loss_of": lambda out: out.pow(2).mean()}
    for piece in pieces:
        names["net"] = model()
        exec(piece, names)  # pylint: disable=exec-used
    before = [p.detach().clone() for p in names["net"].parameters()]
    names["loss_of"](names["model"](names["batches"][0])).backward()
    names["optimizer"].step()
    assert not all(torch.equal(a, b) for a, b in zip(before, names["net"].parameters()))


# ---- several machines ----


@case("4 on two machines")
def ranks_without_common_memory(rank):
    for view in (False, True):
        mine, theirs = model(), model()
        zero = ZeroRedundancyOptimizer(mine.parameters(), torch.optim.Adam, lr=.05, parameters_as_bucket_view=view)
        local = torch.optim.Adam(theirs.parameters(), lr=.05)
        train([(mine, zero), (theirs, local)], 3)
        check_params(mine.parameters(), theirs.parameters())
        check_states(consolidated(zero), local.state_dict())


# ---- ranks ----


def run_rank(rank, world, ranks, folder, only):
    os.environ.update(ZRO_TEST_FOLDER=folder, ZRO_TIMEOUT_MS="60000")
    if "machines" in str(world):
        os.environ["ZRO_MACHINE"] = str(rank // 2)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store-{str(world)[0]}-{len(str(world))}", rank=rank, world_size=ranks,
                            timeout=datetime.timedelta(seconds=60))
    for where, function in CASES:
        if where != world or not chosen(function, only):
            continue
        try:
            function(rank)
        except BaseException:
            print(f"rank {rank} of {world}: {function.__name__} failed\n{traceback.format_exc()}", file=sys.stderr, flush=True)
            os._exit(1)
        if rank == 0:
            print(f"ok {function.__name__} ({world} ranks)", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def chosen(function, only):
    return not only or any(part in function.__name__ for part in only)


def main():
    only = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        for world in dict.fromkeys(world for world, _ in CASES):
            if any(where == world and chosen(function, only) for where, function in CASES):
                ranks = int(str(world).split()[0])
                mp.spawn(run_rank, (world, ranks, folder, only), ranks)


if __name__ == "__main__":
    main()
