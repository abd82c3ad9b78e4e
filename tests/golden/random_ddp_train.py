#!/usr/bin/env python3
"""Random cases in the form of ddp_train.json:  random_ddp_train.py SEED CASES >ddp_train.json

PyTorch's vectors are few. These cases are SGD in f64, computed here in a dozen lines of plain Python, and mix what the vectors have one at a
time: parameters that are cut between ranks, scalars, groups in any order and added late, parameters that are frozen or used by some ranks
and micro-batches alone, clipping, bucket sizes.
"""
import json
import math
import random
import sys

SHAPES = [[], [1], [3], [2, 3], [64], [5, 1, 2], [2, 2, 2, 2], [1025], [2100]]


def numbers(rng, count):
    return [round(rng.gauss(0, 1), 6) for _ in range(count)]


def values_of(options):
    return {"dampening": 0, "nesterov": False, "maximize": False, **options}


def norm(grads, norm_type):
    flat = [abs(x) for grad in grads for x in grad]
    if norm_type == "inf":
        return max(flat, default=0.0)
    return sum(x**norm_type for x in flat) ** (1 / norm_type)


class Model:
    def __init__(self, rng):
        self.rng = rng
        self.ranks = rng.randint(1, 4)
        self.shapes = [rng.choice(SHAPES) for _ in range(rng.randint(1, 8))]
        self.n = len(self.shapes)
        self.counts = [math.prod(shape) for shape in self.shapes]
        self.params = [numbers(rng, count) for count in self.counts]
        self.momentum = {}
        order = rng.sample(range(self.n), self.n)
        cuts = sorted(rng.sample(range(1, self.n), rng.randint(0, min(2, self.n - 1))))
        self.groups = [order[a:b] for a, b in zip([0] + cuts, cuts + [self.n])]
        self.options = [
            {"lr": rng.choice([0.1, 0.05]), "momentum": rng.choice([0, 0.9]), "weight_decay": rng.choice([0, 0.01])}
            for _ in self.groups
        ]

    def average(self, grads, i):
        """Of the ranks' sums over micro-batches; None if nobody has the gradient."""
        present = [micro[i] for rank in grads for micro in rank if micro[i] is not None]
        return [sum(column) / self.ranks for column in zip(*present)] if present else None

    def step(self, group, options, grads):
        for i in group:
            if grads[i] is None:
                continue
            delta = [g + options["weight_decay"] * w for g, w in zip(grads[i], self.params[i])]
            if options["momentum"]:
                if i in self.momentum:
                    delta = [options["momentum"] * m + d for m, d in zip(self.momentum[i], delta)]
                self.momentum[i] = delta
            self.params[i] = [w - options["lr"] * d for w, d in zip(self.params[i], delta)]


def iteration(model, kind, clip, n_groups, added, is_first, static):
    rng = model.rng
    known = {i for group in model.groups[:n_groups] for i in group}
    frozen = [i for i in range(model.n) if kind != "static" and rng.random() < 0.15]

    def gradient(i):
        if i in frozen or i not in known or (kind == "static" and not static[i]):
            return None
        if kind in ("unused", "by hand") and rng.random() < 0.3:
            return None
        return numbers(rng, model.counts[i])

    n_micro = 1 if kind == "static" and is_first else rng.randint(1, 3)
    grads = [[[gradient(i) for i in range(model.n)] for _ in range(n_micro)] for _ in range(model.ranks)]
    averages = [model.average(grads, i) for i in range(model.n)]
    total = None
    if clip:
        total = norm([grad for grad in averages if grad is not None], clip["norm_type"])
        factor = min(1, clip["max_norm"] / (total + 1e-6))
        averages = [None if grad is None else [x * factor for x in grad] for grad in averages]
    for group, options in zip(model.groups[:n_groups], model.options):
        options["lr"] *= rng.choice([1, 0.7])
        model.step(group, options, averages)
    return {
        "add_group": added,
        "frozen": frozen,
        "values": [values_of(options) for options in model.options[:n_groups]],
        "grads": grads,
        "total_norm": total,
        "params": [list(param) for param in model.params],
    }


def make_case(rng, number):
    model = Model(rng)
    kind = rng.choice(["used", "unused", "unused", "static", "by hand"])
    start = {"params0": [list(param) for param in model.params]}
    n_iterations = rng.randint(1, 6)
    n_late = rng.randint(0, min(len(model.groups), n_iterations + 1) - 1) if kind in ("unused", "by hand") else 0
    late = set(rng.sample(range(n_iterations), n_late))
    n_groups = len(model.groups) - n_late
    clip = rng.choice([None, None, {"max_norm": 1.0, "norm_type": 2.0}, {"max_norm": 0.5, "norm_type": "inf"},
                       {"max_norm": 3.0, "norm_type": 3.0}])
    static = [rng.random() < 0.8 for _ in range(model.n)]
    first = [{"params": group, "options": dict(options)} for group, options in zip(model.groups[:n_groups], model.options)]
    iterations = []
    for t in range(n_iterations):
        added = None
        if t in late:
            added = {"params": model.groups[n_groups], "options": dict(model.options[n_groups])}
            n_groups += 1
        iterations.append(iteration(model, kind, clip, n_groups, added, t == 0, static))
    order = [i for group in model.groups for i in group]
    ends = [sum(map(len, model.groups[: g + 1])) for g in range(len(model.groups))]
    return {
        "what": f"random case {number}, {kind}",
        "world_size": model.ranks,
        "dtype": "float64",
        "shapes": model.shapes,
        **start,
        "optimizer": "SGD",
        "groups": first,
        "parameters_as_bucket_view": rng.random() < 0.5,
        "ddp": None if kind == "by hand" else {
            "find_unused_parameters": kind == "unused",
            "static_graph": kind == "static",
            "gradient_as_bucket_view": rng.random() < 0.5,
            "bucket_cap_bytes": rng.choice([None, 8, 100, 9000]),
        },
        "clip": clip,
        "iterations": iterations,
        "state_dict": {
            "state": {str(at): {"momentum_buffer": model.momentum[i]} for at, i in enumerate(order) if i in model.momentum},
            "param_groups": [
                {**values_of(options), "params": list(range(end - len(group), end))}
                for group, options, end in zip(model.groups, model.options, ends)
            ],
        },
    }


generator = random.Random(int(sys.argv[1]))
json.dump([make_case(generator, number) for number in range(int(sys.argv[2]))], sys.stdout, separators=(",", ":"))
print()
