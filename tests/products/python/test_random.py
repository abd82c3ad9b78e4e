#!/usr/bin/env python3
"""Random schedules and states of the installed PyTorch against zro.

    test_random.py build/lib/libzro.so [SEED]

The seed is printed first; with it a run can be repeated.  What PyTorch itself refuses ends a comparison.
"""
import ctypes
import os
import random
import sys
import time
import warnings

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from zro_calls import LrFn, OneCycle, Optim, Schedule, Zro, enum, pointer, real, size_t, u64  # noqa: E402  # from this folder

SCHEDULES, STEPS = 1500, 30

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
        handles = (pointer * len(parts))(*(part.handle for part in parts))
        more = [(u64 * len(tree[2]))(*tree[2])] if kind == "sequential" else []
        whole = Schedule(zro, kind, handles, size_t(len(parts)), *more)
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


def same_schedule(zro, tree, adam):
    """How many steps were compared."""
    tensors = [torch.zeros(1), torch.zeros(1)]
    kind, rule, momentum = (torch.optim.Adam, "adam", "beta1") if adam else (torch.optim.SGD, "sgd", "momentum")
    theirs = kind([{"params": [tensors[0]], "lr": 0.1}, {"params": [tensors[1]], "lr": 0.7}], lr=1)
    ours = Optim(zro, rule, [[tensors[0]], [tensors[1]]], [None, None])
    ours.set_value(0, "lr", 0.1)
    ours.set_value(1, "lr", 0.7)
    theirs.step()
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
        for g, group in enumerate(theirs.param_groups):
            want = (group["lr"], group["betas"][0] if adam else group["momentum"])
            got = (ours.get_value(g, "lr"), ours.get_value(g, momentum))
            if any(abs(a - b) > 1e-9 * (abs(b) + 1e-3) for a, b in zip(got, want)):
                raise AssertionError(f"{tree}, {rule}, step {step}, group {g}: lr and momentum are {got}, of PyTorch {want}")
        try:
            schedule.step()
        except (NotImplementedError, ZeroDivisionError, ValueError):
            break
    if mine is not None:
        mine.destroy()
    ours.destroy()
    return step


def schedules(zro, rng):
    trees, steps = 0, 0
    for i in range(SCHEDULES):
        n = same_schedule(zro, random_tree(rng, 2), adam=i % 5 == 0)
        trees, steps = trees + (n > 0), steps + n
    print(f"{trees} schedules agree over {steps} steps")


def main():
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns() % 1000000
    print(f"test_random.py: seed {seed}", flush=True)
    zro = Zro(sys.argv[1])
    warnings.simplefilter("ignore")
    schedules(zro, random.Random(seed))


if __name__ == "__main__":
    main()
