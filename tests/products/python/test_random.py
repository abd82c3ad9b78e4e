#!/usr/bin/env python3
"""Random schedules and states of the installed PyTorch, and its rules with extreme gradients, against zro.

    test_random.py build/lib/libzro.so [SEED]

The seed is printed first; with it a run can be repeated.  What PyTorch itself refuses ends a comparison.
"""
import ctypes
import os
import random
import sys
import tempfile
import time
import warnings

import torch
from safetensors import safe_open

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "..", "tools", "python")]

import zro_state  # noqa: E402  # from the folder above
from zro_calls import LrFn, OneCycle, Optim, Schedule, Zro, handles, real, size_t, u64  # noqa: E402  # from this folder

SCHEDULES, STEPS, STATES = 800, 30, 150

# ---- schedules ----


def random_leaf(rng, may_cycle):
    """(kind, arguments) of one that is no combination."""
    kind = rng.choice(["step_lr", "multi_step", "exponential", "polynomial", "cosine", "cosine_restarts", "linear", "constant",
                       "lambda"] + ["one_cycle"] * may_cycle)
    gamma, length = rng.choice([0.5, 0.9, 1.1]), rng.randint(0, 7)
    return kind, {
        "step_lr": lambda: (rng.randint(1, 5), gamma),
        "multi_step": lambda: (sorted(rng.choices(range(9), k=rng.randint(0, 4))), gamma),
        "exponential": lambda: (gamma,),
        "polynomial": lambda: (length, rng.choice([0, 0.5, 1, 2])),
        "cosine": lambda: (max(1, length), rng.choice([0, 0.001, 0.05])),
        "cosine_restarts": lambda: (max(1, length), rng.randint(1, 3), rng.choice([0, 0.001])),
        "linear": lambda: (rng.choice([0.25, 1]), rng.choice([0.5, 1]), length),
        "constant": lambda: (rng.choice([0.25, 0.5, 1]), length),
        "lambda": lambda: (rng.choice([0.9, 1.05]),),
        "one_cycle": lambda: (rng.choice([0.4, 2]), rng.randint(5, 40), rng.choice([0.2, 0.3, 0.5]), False,
                              rng.random() < 0.5, rng.random() < 0.7) if rng.random() < 0.5 else
                             (1, STEPS + rng.randint(1, 9), 0.3, True, rng.random() < 0.5, rng.random() < 0.7),
    }[kind]()


def random_tree(rng, depth, may_cycle=True):
    """PyTorch has no combinations in a sequence but as its first part.  Its second one_cycle on an optimizer changes the numbers
    of the first one, which zro does not do; and the last step of a one_cycle with straight lines overshoots, where zro has 0."""
    kind = rng.choice(["leaf", "chained", "sequential"]) if depth > 0 else "leaf"
    if kind == "leaf":
        return random_leaf(rng, may_cycle)
    parts = []
    for i in range(rng.randint(1, 3)):
        deep = depth - 1 if kind == "chained" or i == 0 else 0
        parts.append(random_tree(rng, deep, may_cycle))
        may_cycle = may_cycle and "one_cycle" not in str(parts[-1])
    if kind == "chained":
        return kind, parts
    return kind, parts, sorted(rng.choices(range(12), k=len(parts) - 1))


def torch_schedule(optimizer, tree):
    kinds, kind, args = torch.optim.lr_scheduler, tree[0], tree[1]
    if kind == "chained":
        return kinds.ChainedScheduler([torch_schedule(optimizer, part) for part in args])
    if kind == "sequential":
        return kinds.SequentialLR(optimizer, [torch_schedule(optimizer, part) for part in args], list(tree[2]))
    if kind == "lambda":
        return kinds.LambdaLR(optimizer, lambda t: args[0] ** t)
    if kind == "one_cycle":
        max_lr, total, pct, linear, three, momentum = args
        return kinds.OneCycleLR(optimizer, max_lr, total_steps=total, pct_start=pct,
                                anneal_strategy="linear" if linear else "cos", three_phase=three, cycle_momentum=momentum)
    if kind == "linear":
        return kinds.LinearLR(optimizer, *args)
    name = {"step_lr": "StepLR", "multi_step": "MultiStepLR", "exponential": "ExponentialLR", "polynomial": "PolynomialLR",
            "cosine": "CosineAnnealingLR", "cosine_restarts": "CosineAnnealingWarmRestarts", "constant": "ConstantLR"}[kind]
    return getattr(kinds, name)(optimizer, *args)


def zro_schedule(optim, tree):
    zro, kind, args = optim.zro, tree[0], tree[1]
    if kind in ("chained", "sequential"):
        parts = [zro_schedule(optim, part) for part in args]
        more = [(u64 * len(tree[2]))(*tree[2])] if kind == "sequential" else []
        whole = Schedule(zro, kind, handles(parts), size_t(len(parts)), *more)
        whole.parts = parts  # and with them their functions
        return whole
    if kind == "one_cycle":
        config = OneCycle()
        zro.lib.zro_one_cycle_config_init(ctypes.byref(config))
        config.max_lr, config.total_steps, config.pct_start = args[:3]
        config.linear, config.three_phase, config.cycle_momentum = args[3:]
        return Schedule(zro, kind, optim.handle, ctypes.byref(config))
    if kind == "lambda":
        return Schedule(zro, kind, optim.handle, LrFn(lambda user, group, steps: args[0] ** steps), None)
    if kind == "multi_step":
        return Schedule(zro, kind, optim.handle, (u64 * len(args[0]))(*args[0]), size_t(len(args[0])), real(args[1]))
    whole = {"step_lr": (0,), "polynomial": (0,), "cosine": (0,), "cosine_restarts": (0, 1), "linear": (2,), "constant": (1,)}
    return Schedule(zro, kind, optim.handle, *(u64(a) if i in whole.get(kind, ()) else real(a) for i, a in enumerate(args)))


def below_0(optimizer):
    return any(isinstance(group["lr"], complex) or group["lr"] < 0 for group in optimizer.param_groups)


def two_groups(zro, adam):
    """An optimizer of PyTorch's and one of zro's."""
    tensors = [torch.zeros(1), torch.zeros(1)]
    kind, rule = (torch.optim.Adam, "adam") if adam else (torch.optim.SGD, "sgd")
    theirs = kind([{"params": [tensors[0]], "lr": 0.1}, {"params": [tensors[1]], "lr": 0.7}], lr=1)
    ours = Optim(zro, rule, [[tensors[0]], [tensors[1]]], [None, None])
    ours.set_value(0, "lr", 0.1)
    ours.set_value(1, "lr", 0.7)
    theirs.step()
    return theirs, ours


def check_values(what, theirs, ours):
    for g, group in enumerate(theirs.param_groups):
        want = (group["lr"], group["betas"][0] if "betas" in group else group["momentum"])
        got = (ours.get_value(g, "lr"), ours.get_value(g, "beta1" if "betas" in group else "momentum"))
        if any(abs(a - b) > 1e-9 * (abs(b) + 1e-3) for a, b in zip(got, want)):
            raise AssertionError(f"{what}, group {g}: lr and momentum are {got}, of PyTorch {want}")


def moved_schedule(zro, rng, tree, adam, path):
    """PyTorch steps, zro goes on from its schedule's state_dict beside it, and a second PyTorch from zro's."""
    theirs, ours = two_groups(zro, adam)
    try:
        schedule = torch_schedule(theirs, tree)
        for step in range(rng.randint(0, 12)):
            schedule.step()
        zro_state.from_torch(theirs.state_dict(), [torch.zeros(1)] * 2, path, schedules=[schedule.state_dict()])
        if below_0(theirs):
            raise ValueError
        mine = zro_schedule(ours, tree)
        ours.load(path, [mine])
        for step in range(10):
            check_values(f"{tree}, moved, step {step}", theirs, ours)
            if step == 5:
                ours.save(path, [mine])
                theirs, other = two_groups(zro, adam)
                other.destroy()
                schedule = torch_schedule(theirs, tree)
                theirs.load_state_dict(zro_state.to_torch(path))
                schedule.load_state_dict(zro_state.schedules_to_torch(path)[0])
                check_values(f"{tree}, moved back", theirs, ours)
            schedule.step()
            if below_0(theirs):
                raise ValueError
            mine.step()
        mine.destroy()
    except (NotImplementedError, ZeroDivisionError, ValueError) as error:
        if isinstance(error, zro_state.StateError):
            raise
        ours.destroy()
        return False
    ours.destroy()
    return True


def same_schedule(zro, tree, adam):
    """How many steps were compared."""
    theirs, ours = two_groups(zro, adam)
    try:
        schedule = torch_schedule(theirs, tree)
    except (NotImplementedError, ZeroDivisionError):
        ours.destroy()
        return 0
    mine = None
    for step in range(STEPS):
        if below_0(theirs):
            break  # zro refuses this
        if mine is None:
            mine = zro_schedule(ours, tree)
        else:
            mine.step()
        check_values(f"{tree}, {'adam' if adam else 'sgd'}, step {step}", theirs, ours)
        try:
            schedule.step()
        except (NotImplementedError, ZeroDivisionError, ValueError):
            break
    if mine is not None:
        mine.destroy()
    ours.destroy()
    return step


def schedules(zro, rng, folder):
    trees, steps, moved = 0, 0, 0
    for i in range(SCHEDULES):
        tree = random_tree(rng, 2)
        n = same_schedule(zro, tree, adam=i % 5 == 0)
        trees, steps = trees + (n > 0), steps + n
        if i % 4 == 0:
            moved += moved_schedule(zro, rng, tree, i % 3 == 0, os.path.join(folder, "schedule.safetensors"))
    print(f"{trees} schedules agree over {steps} steps; {moved} were moved to zro and back")


# ---- states ----

KINDS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD, "rmsprop": torch.optim.RMSprop,
         "adagrad": torch.optim.Adagrad, "nadam": torch.optim.NAdam, "asgd": torch.optim.ASGD, "rprop": torch.optim.Rprop,
         "radam": torch.optim.RAdam, "adamax": torch.optim.Adamax, "adadelta": torch.optim.Adadelta}
EXTRA = {"name": "head", "lr_scale": 0.5, "swa_lr": 0.1, "who": None, "list": ["a", 1], "nested": {"x": [1]}}


def random_values(rng, rule):
    """Some of a rule's values."""
    may = {"lr": (0.01, 0.1), "weight_decay": (0.0, 0.1), "maximize": (False, True), "betas": ((0.8, 0.95), (0.5, 0.7)),
           "eps": (1e-8, 1e-3), "amsgrad": (False, True), "momentum": (0.0, 0.9), "centered": (False, True), "alpha": (0.9, 0.5),
           "lr_decay": (0.1,), "momentum_decay": (0.01,), "rho": (0.8,), "lambd": (0.01,), "t0": (2,), "etas": ((0.4, 1.3),)}
    if rule in ("adam", "nadam", "radam"):
        may["decoupled_weight_decay"] = (False, True)
    return {key: rng.choice(may[key]) for key in sorted(zro_state.VALUES[rule] & may.keys()) if rng.random() < 0.6}


class Model:
    """Random parameters in random groups, some of them empty, with or without names."""

    def __init__(self, rng, dtype):
        self.shapes = [rng.choice([(), (1,), (3,), (2, 5), (0, 4), (33,)]) for _ in range(rng.randint(1, 6))]
        self.generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
        self.tensors = [self.random(shape, dtype) for shape in self.shapes]
        self.names = [f"layer.{i}.w" for i in range(len(self.shapes))] if rng.random() < 0.5 else None
        cuts = sorted(rng.choices(range(len(self.shapes) + 1), k=rng.randint(0, 4)))
        if self.names is not None:  # PyTorch has no empty groups among named parameters
            cuts = sorted(set(cuts) - {0, len(self.shapes)})
        self.borders = list(zip([0] + cuts, cuts + [len(self.shapes)]))
        self.grads = []

    def random(self, shape, dtype):
        return torch.randn(shape, generator=self.generator, dtype=torch.float64).to(dtype)

    def next_grads(self, rng):
        """Some are absent, but not all."""
        there = rng.randrange(len(self.tensors))
        new = [self.random(t.shape, t.dtype) if i == there or rng.random() < 0.8 else None for i, t in enumerate(self.tensors)]
        self.grads.append(new)
        return new

    def largest(self, i):
        return max([1.0] + [g[i].abs().max().item() for g in self.grads if g[i] is not None and g[i].numel() > 0])

    def of_torch(self, kind, params, values):
        def listed(first, end):
            return list(zip(self.names[first:end], params[first:end])) if self.names else params[first:end]

        return kind([{"params": listed(*border), **v} for border, v in zip(self.borders, values)], foreach=False)

    def of_zro(self, zro, rule, tensors, with_names):
        names = self.names if self.names and with_names else [None] * len(tensors)
        return Optim(zro, rule, [tensors[first:end] for first, end in self.borders], names)


def step_both(rng, model, theirs, params, ours):
    grads = model.next_grads(rng)
    if theirs is not None:
        for p, g in zip(params, grads):
            p.grad = None if g is None else g.clone()
        theirs.step()
    if ours is not None:
        ours.step(grads)


def check_near(what, model, tensors, params):
    for i, (a, b) in enumerate(zip(tensors, params)):
        relative = 2e-6 if b.dtype == torch.float32 else 1e-12
        x, y = a.double(), b.detach().double()
        bound = relative * y.abs() + relative / 10 * model.largest(i)
        assert bool(((x - y).abs() <= bound).all()), f"{what}: parameter {i} is {x.tolist()}, of PyTorch {y.tolist()}"


def to_file(rng, state_dict, params, path):
    """With values of a program's own among the groups'; returns the rule."""
    wanted = set()
    for group in state_dict["param_groups"]:
        for key in rng.sample(sorted(EXTRA), rng.randint(0, 3)):
            group[key] = EXTRA[key]
            wanted |= {key} if EXTRA[key] is not None else set()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        zro_state.from_torch(state_dict, params, path, data=True)
    got = {str(c.message).split(": ")[1].split(" ")[0] for c in caught}
    assert got == wanted, (got, wanted)
    with safe_open(path, framework="pt") as file:
        return zro_state.json.loads(file.metadata()["zro"])["rule"]


def same_state(zro, rng, rule, dtype, path):
    """PyTorch, then zro beside it, then a second PyTorch from zro's state."""
    model = Model(rng, dtype)
    values = [random_values(rng, rule) for _ in model.borders]
    what = f"{rule}, {dtype}, {model.shapes}, {model.borders}, {values}"
    params = [torch.nn.Parameter(t.clone()) for t in model.tensors]
    theirs = model.of_torch(KINDS[rule], params, values)
    for _ in range(rng.randint(0, 4)):
        step_both(rng, model, theirs, params, None)
    found = to_file(rng, theirs.state_dict(), params, path)
    decoupled = [group.get("decoupled_weight_decay") for group in theirs.param_groups]
    assert found == (("adamw" if all(decoupled) else "adam") if rule in ("adam", "adamw") else rule), (what, found)
    other = "adam" if found == "adamw" and rng.random() < 0.5 else found
    tensors = [torch.zeros_like(p).detach() for p in params]  # their data comes with the file
    ours = model.of_zro(zro, other, tensors, rng.random() < 0.7)
    ours.load(path)
    for _ in range(3):
        step_both(rng, model, theirs, params, ours)
    check_near(what, model, tensors, params)
    ours.save(path)
    again = [torch.nn.Parameter(t) for t in zro_state.model_to_torch(path).values()]
    assert len(again) == len(tensors) and all(torch.equal(a, t) for a, t in zip(again, tensors)), what
    theirs = model.of_torch(KINDS[rule], again, [{} for _ in model.borders])
    theirs.load_state_dict(zro_state.to_torch(path))
    for _ in range(3):
        step_both(rng, model, theirs, again, ours)
    check_near(what + ", back", model, tensors, again)
    ours.destroy()


def states(zro, rng, folder):
    for i in range(STATES):
        dtype = torch.float64 if i % 2 else torch.float32
        torch.set_default_dtype(dtype)  # scalar state of PyTorch is of this type
        same_state(zro, rng, rng.choice(sorted(KINDS)), dtype, os.path.join(folder, "state.safetensors"))
    torch.set_default_dtype(torch.float32)
    print(f"{STATES} states agree, both ways")


# ---- gradients beyond the range ----

EXTREMES = [("adam", {}), ("adam", {"amsgrad": True, "weight_decay": 0.1}), ("adamw", {}), ("sgd", {"lr": 0.1}),
            ("sgd", {"lr": 0.1, "momentum": 0.9, "nesterov": True}), ("sgd", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
            ("rmsprop", {}), ("rmsprop", {"centered": True}), ("rmsprop", {"centered": True, "momentum": 0.9, "alpha": 0.3}),
            ("adagrad", {}), ("nadam", {"weight_decay": 0.1}), ("radam", {}), ("asgd", {"t0": 1}), ("adamax", {}),
            ("adadelta", {}), ("rprop", {"maximize": True})]


def extreme_numbers(dtype):
    top = torch.finfo(dtype).max
    root = top ** 0.5
    positive = [0, 5e-324 if dtype == torch.float64 else 1e-45, 1 / top, 1 / root, 0.1 / root, 1e-10, 1, 1e10,
                root / 10, root, 2 * root, 10 * root, 200 * root, top / 1e8, top, float("inf"), float("nan")]
    return positive + [-x for x in positive]


def extremes(zro, folder):
    """Every pair of extreme gradients, and then small ones: the same numbers, infinities and NaNs in the same places."""
    path = os.path.join(folder, "extreme.safetensors")
    for dtype in (torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        numbers = extreme_numbers(dtype)
        first = torch.tensor([a for a in numbers for _ in numbers], dtype=dtype)
        second = torch.tensor([b for _ in numbers for b in numbers], dtype=dtype)
        largest = torch.stack([first, second]).nan_to_num(0, 0, 0).abs().amax(0).clamp(min=1)
        relative = 2e-6 if dtype == torch.float32 else 1e-12
        for rule, options in EXTREMES:
            param = torch.nn.Parameter(torch.linspace(-2, 2, len(first)))
            theirs, tensor = KINDS[rule]([param], foreach=False, **options), param.detach().clone()
            zro_state.from_torch(theirs.state_dict(), [param], path, rule)
            ours = Optim(zro, rule, [[tensor]], [None])
            ours.load(path)
            for step, grad in enumerate([first, second] + [torch.full_like(first, x) for x in (0.5, -0.25, 0.1, 0.1, 0.1)]):
                param.grad = grad.clone()
                theirs.step()
                ours.step([grad])
                x, y = tensor, param.detach()
                near = (x - y).abs() <= relative * y.abs() + relative / 10 * largest
                for i in ((x == y) | near | (x.isnan() & y.isnan())).logical_not().nonzero().flatten().tolist():
                    raise AssertionError(f"{rule}, {options}, {dtype}, gradients {first[i].item()} and {second[i].item()}, "
                                         f"step {step}: {x[i].item()}, of PyTorch {y[i].item()}")
            ours.destroy()
    torch.set_default_dtype(torch.float32)
    print(f"{len(EXTREMES)} rules agree for gradients beyond the range")


def main():
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns() % 1000000
    print(f"test_random.py: seed {seed}", flush=True)
    zro = Zro()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        schedules(zro, random.Random(seed), folder)
        states(zro, random.Random(seed), folder)
        extremes(zro, folder)


if __name__ == "__main__":
    main()
