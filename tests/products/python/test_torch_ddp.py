"""zro.torch.DistributedDataParallel against PyTorch's:  test_torch_ddp.py [PART OF A NAME]

Averages are PyTorch's within rounding, since PyTorch divides before it adds; two runs give equal bits.
"""
import contextlib
import copy
import io
import os
import signal
import sys
import warnings

sys.dont_write_bytecode = True
warnings.simplefilter("ignore")
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as Theirs

import zro
from torch_ranks import ends, fails_with, run_cases
from zro.torch import DistributedDataParallel as Ours
from zro.torch import ZeroRedundancyOptimizer, hook_with_zero_step, hook_with_zero_step_interleaved

# ---- models ----


def net(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.BatchNorm1d(20), torch.nn.ReLU(), torch.nn.Linear(20, 5))


def mlp():
    torch.manual_seed(4)
    return torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.Tanh(), torch.nn.Linear(20, 5), torch.nn.Linear(5, 3))


class Branches(torch.nn.Module):
    """Which branches forward takes is an argument; "tied" is used twice by some of them."""

    def __init__(self, n=3):
        super().__init__()
        torch.manual_seed(1)
        self.branches = torch.nn.ModuleList(torch.nn.Linear(6, 4) for _ in range(n))
        self.tied = torch.nn.Linear(4, 4)

    def forward(self, x, taken):
        outs = [self.branches[i](x) for i in taken]
        return self.tied(self.tied(sum(outs))) if outs else x * 2


def batch(rank, k, n=7, width=10):
    return torch.randn(n, width, generator=torch.Generator().manual_seed(1000 * rank + k))


def near(a, b):
    if a is None or b is None:
        assert a is None and b is None, (a is None, b is None)
    else:
        torch.testing.assert_close(a, b, rtol=2e-5, atol=1e-6)


def same_grads(a, b):
    for (name, p), q in zip(a.named_parameters(), b.parameters()):
        try:
            near(p.grad, q.grad)
        except AssertionError as error:
            raise AssertionError(f"gradient of {name}: {error}") from None


def same_state(a, b):
    a, b = a.state_dict(), b.state_dict()
    assert list(a) == list(b)
    for name, value in a.items():
        near(value.float(), b[name].float())


def descend(module, lr=0.1):
    with torch.no_grad():
        for p in module.parameters():
            if p.grad is not None:
                p -= lr * p.grad


def bits(module):
    return [p.detach().clone() for p in module.parameters()]


def everywhere(value, size):
    values = [None] * size
    dist.all_gather_object(values, value)
    return values


# ---- the default form ----


def averages(rank, size):
    """Models that differ over ranks at first; buffers; buckets of many sizes; the same bits on all ranks."""
    for options in ({}, {"bucket_cap_mb": 0.0005}, {"gradient_as_bucket_view": True}, {"find_unused_parameters": True},
                    {"static_graph": True}):
        theirs, ours = Theirs(net(rank), **options), Ours(net(rank), **options)
        assert isinstance(ours, Theirs) and ours.module[0].weight is next(ours.parameters())
        for k in range(4):
            for model in (theirs, ours):
                model.zero_grad()
                model(batch(rank, k)).pow(2).mean().backward()
            same_grads(theirs, ours)
            descend(theirs), descend(ours)
            same_state(theirs, ours)
        for mine, first in zip(bits(ours), everywhere(bits(ours), size)[0]):
            assert torch.equal(mine, first)


def repeats(rank, size):
    """Two runs give equal bits."""
    ends_with = []
    for _ in range(2):
        ours = Ours(net(3))
        for k in range(5):
            ours.zero_grad()
            ours(batch(rank, k)).pow(2).mean().backward()
            descend(ours)
        ends_with.append(bits(ours))
    assert all(torch.equal(a, b) for a, b in zip(*ends_with))


def initial_values(rank, size):
    """All ranks get rank 0's parameters, frozen ones and buffers; or keep their own."""
    def make(seed):
        module = net(seed)
        module[0].weight.requires_grad_(False)
        module[1].running_mean.fill_(seed)
        module.register_buffer("flags", torch.tensor([seed % 2 == 0, True]))
        module.register_buffer("strided", torch.full((4, 4), float(seed))[:, ::2])
        return module

    for options in ({}, {"broadcast_buffers": False}, {"init_sync": False}):
        same_state(Theirs(make(rank), **options), Ours(make(rank), **options))


def buffers(rank, size):
    """Forward copies rank 0's buffers, also such that were replaced; not where that is off."""
    for on in (True, False):
        theirs, ours = Theirs(net(), broadcast_buffers=on), Ours(net(), broadcast_buffers=on)
        for k in range(3):
            for model in (theirs, ours):
                model.module[1].running_var = model.module[1].running_var.clone()
                model(batch(rank, k)).mean().backward()
            same_state(theirs, ours)


def micro_batches(rank, size):
    """no_sync: gradients add up, and the sum is averaged; also where micro-batches use other parameters."""
    theirs, ours = Theirs(net()), Ours(net())
    for k in range(3):
        for model in (theirs, ours):
            model.zero_grad(set_to_none=k == 1)
            with model.no_sync():
                for micro in range(2):
                    model(batch(rank, 10 * k + micro)).pow(2).mean().backward()
            local = [p.grad.clone() for p in model.parameters()]
            model(batch(rank, 10 * k + 2)).pow(2).mean().backward()
            assert not all(torch.equal(a, p.grad) for a, p in zip(local, model.parameters()))
        same_grads(theirs, ours)
        descend(theirs), descend(ours)
    theirs, ours = (kind(Branches(), find_unused_parameters=True) for kind in (Theirs, Ours))
    for k in range(3):
        for model in (theirs, ours):
            model.zero_grad()
            with model.no_sync():
                model(batch(rank, k, width=6), [rank]).pow(2).mean().backward()
            model(batch(rank, k + 50, width=6), [2]).pow(2).mean().backward()
        same_grads(theirs, ours)


def unused(rank, size):
    """What no rank uses stays None; what some use is averaged over all, and all have it."""
    theirs, ours = (kind(Branches(), find_unused_parameters=True) for kind in (Theirs, Ours))
    for k, taken in enumerate(([0], [rank], [0, 1] if rank == 0 else [0], [1])):
        for model in (theirs, ours):
            model.zero_grad()
            model(batch(rank, k, width=6), taken).pow(2).mean().backward()
        same_grads(theirs, ours)
    # A rank that uses no parameter at all, of which PyTorch says "Final callbacks can only be installed during backward pass".
    alone = Branches()
    for model in (ours, alone):
        model.zero_grad()
        model(batch(rank, 9, width=6).requires_grad_(), [] if rank == 1 else [0, 2]).pow(2).mean().backward()
    for mine, p in zip(ours.parameters(), alone.parameters()):
        locals_ = [g for g in everywhere(p.grad, size) if g is not None]
        near(sum(locals_) / size if locals_ else None, mine.grad)


def static_graphs(rank, size):
    """Unused parameters, and no_sync in the first iteration, at which PyTorch's assertion fails."""
    theirs, ours = (kind(Branches(), static_graph=True) for kind in (Theirs, Ours))
    for k in range(4):
        for model in (theirs, ours):
            model.zero_grad()
            model(batch(rank, k, width=6), [0, 2]).pow(2).mean().backward()
        same_grads(theirs, ours)
        assert ours.module.branches[1].weight.grad is None
    first = Ours(Branches(), static_graph=True)
    with first.no_sync():
        first(batch(rank, 0, width=6), [0, 2]).pow(2).mean().backward()
    first.zero_grad()
    for k in range(4):
        first.zero_grad()
        first(batch(rank, k, width=6), [0, 2]).pow(2).mean().backward()
    same_grads(theirs, first)


def checkpointed(rank, size):
    """Reentrant checkpoints: a layer that is used twice in a static graph becomes ready several times."""
    from torch.utils.checkpoint import checkpoint

    class Net(torch.nn.Module):
        def __init__(self, times):
            super().__init__()
            torch.manual_seed(5)
            self.a, self.b, self.times = torch.nn.Linear(10, 10), torch.nn.Linear(10, 10), times

        def forward(self, x):
            x = self.a(x)
            for _ in range(self.times):
                x = checkpoint(self.b, x, use_reentrant=True)
            return x

    for times in (1, 2):
        theirs, ours = (kind(Net(times), static_graph=times == 2) for kind in (Theirs, Ours))
        for k in range(3):
            for model in (theirs, ours):
                model.zero_grad()
                model(batch(rank, k)).pow(2).mean().backward()
            same_grads(theirs, ours)


def several_losses(rank, size):
    """A forward without a backward, two forwards for one backward, and a backward in two parts that use different parameters."""
    class Heads(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(6)
            self.a, self.b = torch.nn.Linear(10, 3), torch.nn.Linear(10, 3)

        def forward(self, x):
            return self.a(x), self.b(x)

    theirs, ours = Theirs(Heads()), Ours(Heads())
    for k in range(3):
        for model in (theirs, ours):
            model.zero_grad()
            model(batch(rank, k + 20))
            with torch.no_grad():
                model(batch(rank, k + 30))
            one, two = model(batch(rank, k))
            one.pow(2).mean().backward()
            two.pow(2).mean().backward()
        same_grads(theirs, ours)
        for model in (theirs, ours):
            model.zero_grad()
            sum(out.pow(2).mean() for k in range(2) for out in model(batch(rank, k))).backward()
        same_grads(theirs, ours)


def freezing(rank, size):
    """A parameter that is frozen later is not waited for, and is averaged again after."""
    ours, plain = Ours(net()), net()
    for k in range(4):
        for module in (ours.module, plain):
            module[0].weight.requires_grad_(k != 1)
        ours.zero_grad()
        ours(batch(rank, k)).pow(2).mean().backward()
        assert (ours.module[0].weight.grad is None) == (k == 1)
        mine = everywhere([p.grad for p in ours.parameters() if p.grad is not None], size)
        assert all(torch.equal(a, b) for a, b in zip(mine[0], mine[-1]))


def layouts(rank, size):
    """Channels last, other element types, empty parameters and scalars."""
    class Odd(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(8)
            self.conv = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
            self.wide = torch.nn.Parameter(torch.randn(3, 5, dtype=torch.float64).t())
            self.small = torch.nn.Parameter(torch.randn(4).to(torch.bfloat16))
            self.scalar = torch.nn.Parameter(torch.tensor(2.0))
            self.empty = torch.nn.Parameter(torch.empty(0, 3))

        def forward(self, x):
            y = self.conv(x.to(memory_format=torch.channels_last)).mean((2, 3))
            return (y * self.small.float()).sum() * self.scalar + (self.wide ** 2).sum() * y.sum() + self.empty.sum()

    theirs, ours = Theirs(Odd()), Ours(Odd())
    for k in range(3):
        for model in (theirs, ours):
            model.zero_grad()
            model(batch(rank, k, n=2, width=3 * 36).view(2, 3, 6, 6)).backward()
        for p, q in zip(theirs.parameters(), ours.parameters()):
            torch.testing.assert_close(p.grad, q.grad, rtol=2e-2 if p.dtype == torch.bfloat16 else 2e-5, atol=1e-6)
            assert p.stride() == q.stride() and q.grad.stride() == q.stride()


def comm_hooks(rank, size):
    """A hook of the program's, with futures; PyTorch's own ones; one that fails; in the attached form a clear error."""
    seen = []

    def halves(state, bucket):
        seen.append((bucket.index(), bucket.is_last(), len(bucket.parameters()), state))
        assert sum(g.numel() for g in bucket.gradients()) == bucket.buffer().numel()
        future = dist.all_reduce(bucket.buffer().div_(2 * size), async_op=True).get_future()
        return future.then(lambda f: f.value()[0])

    theirs, ours = Theirs(net()), Ours(net(), bucket_cap_mb=0.0005)
    ours.register_comm_hook("state", halves)
    fails_with(RuntimeError, lambda: ours.register_comm_hook(None, halves), "once")
    for k in range(3):
        for model in (theirs, ours):
            model.zero_grad()
            model(batch(rank, k)).pow(2).mean().backward()
        for p, q in zip(theirs.parameters(), ours.parameters()):
            near(p.grad, 2 * q.grad)
    assert any(last for _, last, _, _ in seen) and {state for *_, state in seen} == {"state"}
    for hook, tolerance in ((default_hooks.allreduce_hook, 1e-5), (default_hooks.fp16_compress_hook, 2e-3),
                            (default_hooks.bf16_compress_hook, 2e-2)):
        one = Ours(net())
        one.register_comm_hook(None, hook)
        one(batch(rank, 2)).pow(2).mean().backward()
        plain = Ours(net())
        plain(batch(rank, 2)).pow(2).mean().backward()
        for p, q in zip(plain.parameters(), one.parameters()):
            torch.testing.assert_close(p.grad, q.grad, rtol=tolerance, atol=1e-5)

    def fails(state, bucket):
        raise KeyError("the hook's own text")

    broken = Ours(net())
    broken.register_comm_hook(None, fails)
    fails_with((KeyError, zro.Error), lambda: broken(batch(rank, 0)).mean().backward(), "the hook's own text")
    fails_with(NotImplementedError, lambda: Ours(net(), attached=True).register_comm_hook(None, halves), "attached=True")


def zero_hooks(rank, size):
    """hook_with_zero_step and its interleaved form on this class: what they do on PyTorch's."""
    for make in (hook_with_zero_step, hook_with_zero_step_interleaved):
        ends_with = []
        for kind in (Theirs, Ours):
            model = kind(mlp(), bucket_cap_mb=0.0005)
            optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, overlap_with_ddp=True, lr=0.1, momentum=0.9)
            model.register_comm_hook(None, make(default_hooks.allreduce_hook, model, optimizer))
            for k in range(6):
                model.zero_grad()
                model(batch(rank, k)).pow(2).mean().backward()
            ends_with.append(bits(model))
        for a, b in zip(*ends_with):
            near(a, b)


def copies(rank, size):
    """state_dict, deepcopy, pickle; a module that outlives its ddp trains alone."""
    ours = Ours(net())
    same_state(Theirs(net()), ours)
    again, file = copy.deepcopy(ours), io.BytesIO()
    torch.save(ours, file)
    file.seek(0)
    for other in (again, torch.load(file, weights_only=False)):
        for model in (ours, other):
            model.zero_grad()
            model.eval()
            model(batch(rank, 1)).pow(2).mean().backward()
            model.train()
        same_grads(ours, other)
    module = ours.module
    del ours, model, again, other
    module.zero_grad()
    module(batch(rank, 1)).pow(2).mean().backward()
    others = everywhere(module[0].weight.grad, size)
    assert not torch.equal(others[0], others[-1])


# ---- the attached form ----


class InPython(torch.optim.SGD):
    """Not exactly a class of torch.optim, so it steps in Python."""


def wrap(attached, kind=torch.optim.Adam, options=None, module=None, **settings):
    """A model and its optimizer, in the default or in the attached form."""
    model = Ours(mlp() if module is None else module, attached=attached, **(options or {}))
    if attached:
        settings["ddp"] = model
    return model, ZeroRedundancyOptimizer(model.parameters(), kind, **settings)


def train(rank, model, optimizer, steps=4, micro=1, scaled=False):
    for k in range(steps):
        optimizer.zero_grad(set_to_none=k % 2 == 0)
        for j in range(micro):
            with contextlib.ExitStack() as stack:
                if j < micro - 1:
                    stack.enter_context(model.no_sync())
                loss = model(batch(rank, 10 * k + j)).pow(2).mean()
                (loss * optimizer.loss_scale if scaled else loss).backward()
        optimizer.step()
    return bits(model)


def equal_bits(a, b):
    assert len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b))


def attached(rank, size):
    """The bits of the default form: with several classes, micro-batches, and unused parameters; PyTorch's numbers."""
    for kind, settings in ((torch.optim.Adam, {"lr": 0.01}), (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
                           (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1})):
        for micro in (1, 3):
            ends_with = [train(rank, *wrap(form, kind, **settings), micro=micro) for form in (False, True)]
            equal_bits(*ends_with)
            theirs = Theirs(mlp())
            full = kind(theirs.parameters(), **settings)
            full.loss_scale = 1
            for a, b in zip(train(rank, theirs, full, micro=micro), ends_with[1]):
                torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-5)
    equal_bits(everywhere(ends_with[1], size)[0], ends_with[1])
    ends_with = []
    for form in (False, True):
        model, optimizer = wrap(form, lr=0.01, options={"find_unused_parameters": True}, module=Branches())
        for k, taken in enumerate(([0], [rank], [0, 1] if rank == 0 else [0], [1])):
            optimizer.zero_grad()
            model(batch(rank, k, width=6), taken).pow(2).mean().backward()
            optimizer.step()
        ends_with.append(bits(model))
    equal_bits(*ends_with)


def attached_settings(rank, size):
    """Clipping by norm and value, and a loss scale with a step that is skipped: the same bits in both forms."""
    for settings in ({"clip_norm": 0.05}, {"clip_value": 0.01}, {"clip_norm": 0.05, "clip_norm_type": float("inf")},
                     {"clip_norm": 0.05, "loss_scale": 256.0}):
        ends_with = []
        for form in (False, True):
            model, optimizer = wrap(form, lr=0.01, **settings)
            train(rank, model, optimizer, scaled="loss_scale" in settings)
            assert "clip_norm" not in settings or optimizer.grad_norm > 0.05
            if "loss_scale" in settings:
                assert optimizer.loss_scale == 256
                before = bits(model)
                optimizer.zero_grad()
                (model(batch(rank, 99)).mean() * (float("inf") if rank == 0 else 1)).backward()
                optimizer.step()
                assert optimizer.skipped and optimizer.loss_scale == 128
                equal_bits(before, bits(model))
                optimizer.zero_grad()
            train(rank, model, optimizer, scaled="loss_scale" in settings)
            ends_with.append(bits(model))
        equal_bits(*ends_with)
    theirs = Theirs(mlp())
    full = torch.optim.Adam(theirs.parameters(), lr=0.01)
    for k in range(4):
        full.zero_grad()
        theirs(batch(rank, 10 * k)).pow(2).mean().backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.05)
        full.step()
    ours = train(rank, *wrap(True, lr=0.01, clip_norm=0.05))
    for a, b in zip(theirs.parameters(), ours):
        torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-5)


def attached_use(rank, size):
    """Gradients stay local; data may be replaced; copies are private; a class that steps in Python; several groups; a closure."""
    model, optimizer = wrap(True, lr=0.01)
    model(batch(rank, 0)).pow(2).mean().backward()
    mine = everywhere(model.module[0].weight.grad, size)
    assert not torch.equal(mine[0], mine[-1])
    optimizer.step()
    twin = copy.deepcopy(model.module)
    with torch.no_grad():
        twin[0].weight.zero_()
    assert model.module[0].weight.abs().sum() > 0
    for p in model.parameters():
        p.data = p.data.clone()
    file = io.BytesIO()
    torch.save(model.module[0].weight, file)
    assert len(file.getvalue()) < 20 * 10 * 4 + 4096
    reference, other = wrap(False, lr=0.01)
    train(rank, reference, other, 1)
    train(rank, model, optimizer, 2)
    train(rank, reference, other, 2)

    equal_bits(*[train(rank, *wrap(form, InPython, lr=0.1, momentum=0.9)) for form in (False, True)])
    fails_with(ValueError, lambda: train(rank, *wrap(True, InPython, lr=0.1, clip_norm=1.0)), "update rule")
    ends_with = []
    for form in (False, True):
        model = Ours(mlp(), attached=form)
        groups = [{"params": list(model.module[0].parameters()), "lr": 0.1}, {"params": [*model.module[2].parameters(), *model.module[3].parameters()]}]
        optimizer = ZeroRedundancyOptimizer(groups, torch.optim.SGD, lr=0.01, **({"ddp": model} if form else {}))

        def closure():
            optimizer.zero_grad()
            loss = model(batch(rank, 5)).pow(2).mean()
            loss.backward()
            return loss

        for _ in range(3):
            assert optimizer.step(closure).item() > 0
        ends_with.append(bits(model))
    equal_bits(*ends_with)
    fails_with(ValueError, lambda: ZeroRedundancyOptimizer(reference.parameters(), torch.optim.SGD, lr=0.1, ddp=reference), "attached=True")
    stranger = ZeroRedundancyOptimizer(mlp().parameters(), torch.optim.SGD, lr=0.1, ddp=model)
    fails_with(ValueError, stranger.step, "not trained")


def attached_missing(rank, size):
    """A parameter that one rank leaves out is an error on all of them, in the step."""
    last = rank == size - 1
    model, optimizer = wrap(True, module=Branches(2))
    model(batch(rank, 0, width=6), [0] if last else [0, 1]).mean().backward()
    fails_with(zro.StateError if last else zro.PeerError, optimizer.step, "branches.1", f"rank {size - 1}")
    model(batch(rank, 0, width=6), [0, 1]).mean().backward()  # and goes on
    optimizer.step()


def attached_to_none(rank, size):
    """Without an optimizer of its own, gradients would never be averaged: the first forward says so, before anything was stepped."""
    for kind in (torch.optim.SGD, lambda parameters, lr: ZeroRedundancyOptimizer(parameters, torch.optim.SGD, lr=lr)):
        model = Ours(mlp(), attached=True)
        kind(model.parameters(), lr=0.1)
        fails_with(RuntimeError, lambda: model(batch(rank, 0)), "ddp=model", "attached=True")
        with torch.no_grad():
            model(batch(rank, 0))


def attached_raises(rank, size):
    """An exception on one rank before its gradients are known is an error on all of them, in this step and not in the next one."""
    last = rank == size - 1
    for kind in (torch.optim.SGD, InPython):
        model, optimizer = wrap(True, kind, lr=0.1)
        train(rank, model, optimizer, 1)

        def closure():
            if last:
                raise KeyError("this batch")
            return torch.zeros(())

        before = bits(model)
        fails_with(KeyError if last else zro.PeerError, lambda: optimizer.step(closure), "this batch")
        if last:
            model.module[0].weight.data = model.module[0].weight.data.double()
        fails_with(RuntimeError if last else zro.PeerError, optimizer.step, "has become torch.float64")
        if last:
            model.module[0].weight.data = model.module[0].weight.data.float()
        if kind is torch.optim.SGD:  # in Python the other ranks have stepped what they own
            equal_bits(before, bits(model))
        fresh, third = wrap(True, kind, lr=0.1)
        train(rank, fresh, third, 1)
        for each, its in ((model, optimizer), (fresh, third)):
            its.zero_grad()
            each(batch(rank, 10)).pow(2).mean().backward()
            its.step()
        if kind is torch.optim.SGD:
            equal_bits(bits(model), bits(fresh))
        equal_bits(everywhere(bits(model), size)[0], bits(model))


@ends(1)
def attached_killed(rank, size):
    model, optimizer = wrap(True)
    train(rank, model, optimizer, 2)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    fails_with(zro.LostError, lambda: train(rank, model, optimizer, 1), "rank 1")


# ---- Join ----


def joined_optimizers(rank, size):
    """A rank that has run out goes on updating what it owns, so a sharded optimizer gives what one that is not sharded gives."""
    for initial in (True, False):
        ends_with = []
        for form in (False, True):
            model, optimizer = wrap(form, lr=0.01)
            with Join([model, optimizer], divide_by_initial_world_size=initial):
                for k in range(3 + 2 * rank):
                    optimizer.zero_grad()
                    model(batch(rank, k)).pow(2).mean().backward()
                    optimizer.step()
            ends_with.append(bits(model))
            equal_bits(everywhere(bits(model), size)[0], bits(model))
        equal_bits(*ends_with)
        alone = mlp()
        full = torch.optim.Adam(alone.parameters(), lr=0.01)
        for k in range(1 + 2 * size):
            full.zero_grad()
            active = [other for other in range(size) if k < 3 + 2 * other]
            for other in active:
                (alone(batch(other, k)).pow(2).mean() / (size if initial else len(active))).backward()
            full.step()
        for a, b in zip(alone.parameters(), ends_with[0]):
            torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-5)


def joined(rank, size):
    """Ranks with different numbers of inputs, divided by all ranks or by those that have inputs; buffers; no_sync."""
    for initial in (True, False):
        theirs, ours = Theirs(net()), Ours(net())
        for model in (theirs, ours):
            with model.join(divide_by_initial_world_size=initial):
                for k in range(3 + 2 * rank):
                    model.zero_grad()
                    with model.no_sync():
                        model(batch(rank, k + 70)).pow(2).mean().backward()
                    model(batch(rank, k)).pow(2).mean().backward()
                    descend(model, 0.05)
        same_state(theirs, ours)
        for model in (theirs, ours):  # and goes on without
            model.zero_grad()
            model(batch(rank, 9)).pow(2).mean().backward()
        same_grads(theirs, ours)
    fails_with(RuntimeError, lambda: run_early(rank), "exhausted")


def run_early(rank):
    ours = Ours(net())
    with Join([ours], throw_on_early_termination=True):
        for k in range(2 + rank):
            ours(batch(rank, k)).mean().backward()


# ---- what goes wrong ----


def disagree(rank, size):
    """Other shapes, other numbers of parameters, other settings: an error on all ranks."""
    last = rank == size - 1
    fails_with(zro.MismatchError, lambda: Ours(torch.nn.Linear(10, 6 if last else 5)), "weight")
    fails_with(zro.MismatchError, lambda: Ours(torch.nn.Linear(10, 5, bias=last)), "parameters")
    fails_with(zro.MismatchError, lambda: Ours(net(), find_unused_parameters=last), "find_unused")
    conv = torch.nn.Conv2d(3, 4, 3)
    fails_with(zro.MismatchError, lambda: Ours(conv.to(memory_format=torch.channels_last) if last else conv), "strides")
    Ours(net())(batch(rank, 0)).mean().backward()


def missing(rank, size):
    """A parameter that one rank leaves out: that rank learns it at its next forward or step, the others in backward."""
    last = rank == size - 1
    ours = Ours(Branches(2))

    def train():
        for _ in range(2):
            ours(batch(rank, 0, width=6), [0] if last else [0, 1]).mean().backward()

    fails_with(zro.StateError if last else zro.PeerError, train, "branches.1", f"rank {size - 1}", "find_unused_parameters=True")
    ours, optimizer = wrap(False, module=Branches(2))

    def step():
        ours(batch(rank, 0, width=6), [0] if last else [0, 1]).mean().backward()
        optimizer.step()

    fails_with(zro.StateError if last else zro.PeerError, step, "branches.1", f"rank {size - 1}")
    ours(batch(rank, 0, width=6), [0, 1]).mean().backward()  # and goes on
    optimizer.step()


def backward_raises(rank, size):
    """An exception in one rank's backward, after which the program frees the gradients: the library writes none of that memory."""
    for options in ({}, {"find_unused_parameters": True}, {"static_graph": True}):
        module = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(6)))
        ours = Ours(module, bucket_cap_mb=0.02, **options)
        for k in range(3):
            module.zero_grad()
            handle = module[1].weight.register_hook(lambda g: 1 / 0 if rank == 0 and k == 1 else g)
            loss = ours(torch.ones(2, 64)).mean()
            if rank == 0 and k == 1:
                fails_with(ZeroDivisionError, loss.backward, "division")
                module.zero_grad()
                taken = [torch.ones(64, 64) for _ in range(24)] + [torch.ones(64) for _ in range(24)]
            elif k == 1 and "find_unused_parameters" not in options:
                fails_with(zro.PeerError, loss.backward, "rank 0")
            else:
                loss.backward()
            handle.remove()
            if rank == 0 and k == 1 and "find_unused_parameters" not in options:
                fails_with(zro.StateError, lambda: ours(torch.ones(2, 64)), "rank 0")
        if rank == 0:
            assert all(torch.equal(t, torch.ones_like(t)) for t in taken)
        grads = everywhere([p.grad for p in module.parameters()], size)
        equal_bits(grads[0], grads[-1])


class Sum(torch.nn.Module):
    """Its gradients need no particular shape of its parameters."""

    def __init__(self):
        super().__init__()
        self.long, self.short = torch.nn.Parameter(torch.ones(90, 5)), torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        return (self.long.sum() + self.short.sum()) * x


def shrunken(rank, size):
    """A parameter with other data of another size is refused: its gradient is not as long as the library believes."""
    for options in ({}, {"find_unused_parameters": True}):
        module = Sum()
        ours = Ours(module, **options)
        ours(torch.ones(1)).sum().backward()
        module.long.data, module.long.grad = module.long.data[:2], None
        fails_with(RuntimeError, lambda: ours(torch.ones(1)).sum().backward(), "parameter long has 10 elements", "had 450")
        module.long.data = torch.ones(90, 5)
        if options:
            ours(torch.ones(1))
        else:
            fails_with(zro.StateError, lambda: ours(torch.ones(1)), "long")


@ends(1)
def killed(rank, size):
    """A rank that is killed: the others are told in backward."""
    ours = Ours(net())
    ours(batch(rank, 0)).mean().backward()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    fails_with(zro.LostError, lambda: ours(batch(rank, 1)).mean().backward(), "rank 1")


def broken(rank, size):
    """A rank that comes too late breaks the group; what is made after that has a new one."""
    os.environ["ZRO_TIMEOUT_MS"] = "4000"  # the first ddp must be made in that time
    ours = Ours(torch.nn.BatchNorm1d(4))
    if rank == 0:
        fails_with(zro.TimeoutError, lambda: ours(torch.ones(3, 4)), "rank 1")
    dist.barrier()
    fails_with(zro.TimeoutError, lambda: ours(torch.ones(3, 4)), "rank 1")
    os.environ["ZRO_TIMEOUT_MS"] = "60000"
    ours = Ours(mlp())
    ours(batch(rank, 0)).mean().backward()
    grads = everywhere([p.grad for p in ours.parameters()], size)
    equal_bits(grads[0], grads[-1])


def refused(rank, size):
    fails_with(NotImplementedError, lambda: Ours(torch.nn.Embedding(5, 3, sparse=True)), "sparse=False")
    fails_with(TypeError, lambda: Ours(torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(3, dtype=torch.complex64))])), "float32")
    frozen = net().requires_grad_(False)
    fails_with(RuntimeError, lambda: Ours(frozen), "requires a gradient")


BOTH, TWO, THREE = (2, 3), (2,), (3,)
CASES = [(averages, BOTH), (repeats, TWO), (initial_values, TWO), (buffers, TWO), (micro_batches, THREE), (unused, THREE),
         (static_graphs, TWO), (checkpointed, TWO), (several_losses, TWO), (freezing, TWO), (layouts, TWO), (comm_hooks, TWO), (zero_hooks, TWO),
         (copies, TWO), (attached, BOTH), (attached_settings, TWO), (attached_use, TWO), (attached_missing, THREE), (attached_raises, BOTH), (attached_to_none, TWO),
         (attached_killed, THREE), (joined_optimizers, THREE), (joined, THREE), (disagree, THREE), (missing, THREE), (killed, THREE),
         (backward_raises, TWO), (shrunken, TWO), (broken, TWO), (refused, (1,))]

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1] if len(sys.argv) > 1 else ""))
