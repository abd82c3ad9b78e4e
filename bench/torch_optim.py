#!/usr/bin/env python3
"""zro's optimizers side by side with PyTorch's:  bench/torch_optim.py build/lib/libzro.so

One process holds two equal sets of torch's own tensors: PyTorch's optimizers step the first, zro steps the second in place,
through nothing but the shared library and the layout of its public structs.  Two lists: "gpt2", the 148 tensors of GPT-2 124M,
and "tiny", 100,000 tensors of 16 to 127 floats.

Times on a shared machine are not comparable from one second to the next.  So in each repetition every contender makes one step,
beginning with another one each time, on the same processors and with as many threads; what counts is the ratio of medians.
Before that, three steps with changing gradients must give both sets the same parameters, within the tolerance of the golden
vectors.
"""
import argparse
import gc
import json
import os
import sys

sys.dont_write_bytecode = True
from zro_ctypes import (Zro, ZroOptim, about, check_memory, distance, elements, fail, gpt2_shapes, heading, make_set, names_of,
                        progress, summary, timed, times, tiny_shapes, torch)

# ---- what is measured ----

RULES = {"adam": (torch.optim.Adam, {}), "adamw": (torch.optim.AdamW, {}), "sgd": (torch.optim.SGD, {"momentum": 0.9})}
FORMS = {"default": {}, "foreach": {"foreach": True}, "fused": {"fused": True}}
RULES_OF = {"gpt2": ["adam", "adamw", "sgd"], "tiny": ["adam"]}


def verify(zro, rule, shapes, threads):
    """Three steps, each with other gradients: the worst |zro - torch| / tolerance over all parameters."""
    make, values = RULES[rule]
    theirs, ours = make_set(shapes), make_set(shapes)
    first, second = make(theirs, foreach=False, **values), ZroOptim(zro, rule, zro.params(ours), values, threads).create()
    largest = [0.0] * len(shapes)
    for step in range(3):
        for i, (a, b) in enumerate(zip(theirs, ours)):
            a.grad.mul_(-0.75 if step else 1)
            b.grad.copy_(a.grad)
            largest[i] = max(largest[i], a.grad.abs().max().item())
        first.step()
        second.step()
    second.destroy()
    worst = max(map(distance, theirs, ours, largest))
    if not worst <= 1:
        fail(f"{rule}: after three steps zro's parameters are {worst:.3g} tolerances away from torch's")
    return worst


# ---- samples ----


def measure(contenders, options, title):
    """contenders: {name: step}.  Slow ones get fewer samples."""
    samples, wanted = {name: [] for name in contenders}, {}
    for name, step in contenders.items():  # not counted: state and threads come into being
        progress(f"{title}, {name}, first step")
        step()
        wanted[name] = options.slow_samples if timed(step)[0] > options.slow else options.samples
    names = list(contenders)
    gc.collect()
    gc.disable()
    for repetition in range(max(wanted.values())):
        progress(f"{title}, {repetition + 1} of {max(wanted.values())}")
        turn = repetition % len(names)
        for name in names[turn:] + names[:turn]:
            if len(samples[name]) < wanted[name]:
                samples[name].append(timed(contenders[name]))
    gc.enable()
    return samples


def measure_rule(zro, rule, shapes, options, title, rows, list_name):
    make, values = RULES[rule]
    arrays = 1 if rule == "sgd" else 2  # of state; and torch's temporaries
    check_memory(rule, elements(shapes) * 4 * (2 + 2 + arrays * (len(FORMS) + 1) + 4))
    progress(f"{title}: do they agree?")
    worst = verify(zro, rule, shapes, max(options.threads))
    theirs, ours = make_set(shapes), make_set(shapes)
    for threads in options.threads:
        use_processors(threads)
        torch.set_num_threads(threads)
        mine = ZroOptim(zro, rule, zro.params(ours), values, threads).create()
        contenders = {}
        for form, how in FORMS.items():
            if form in options.forms:
                contenders[f"torch {form}"] = make(theirs, **how, **values).step
        contenders["zro"] = mine.step
        samples = {name: summary(taken) for name, taken in measure(contenders, options, f"{title}, {threads} threads").items()}
        mine.destroy()
        for name, row in samples.items():
            rows.append({"list": list_name, "rule": rule, "threads": threads, "contender": name, **row,
                         "ratio": round(row["median_ms"] / samples["zro"]["median_ms"], 4), "worst": round(worst, 4)})
        del contenders
        gc.collect()


ALLOWED = sorted(os.sched_getaffinity(0))


def use_processors(threads):
    """The calling thread, and those that it starts from now on."""
    os.sched_setaffinity(0, ALLOWED[:threads] if threads <= len(ALLOWED) else ALLOWED)


# ---- the command line ----

def numbers(text):
    values = [int(part) for part in text.split(",")]
    if not values or min(values) < 1:
        raise argparse.ArgumentTypeError("must be whole numbers from 1 on, with commas")
    return values


def read_options():
    parser = argparse.ArgumentParser(description="zro's optimizers side by side with PyTorch's.")
    parser.add_argument("library", help="libzro.so")
    parser.add_argument("--lists", type=names_of(RULES_OF), default=list(RULES_OF), help="of gpt2, tiny; default: both")
    parser.add_argument("--rules", type=names_of(RULES), default=list(RULES), help="of adam, adamw, sgd (tiny: adam alone)")
    parser.add_argument("--forms", type=names_of(FORMS), default=list(FORMS),
                        help="of default, foreach, fused; default: all of torch's")
    parser.add_argument("--threads", type=numbers, default=[1, 2], help="default: 1,2")
    parser.add_argument("--samples", type=int, default=11, help="of each contender; default: 11")
    parser.add_argument("--slow", type=float, default=1.0, help="a step that takes more seconds than this is slow; default: 1")
    parser.add_argument("--slow-samples", type=int, default=5, help="of slow contenders; default: 5")
    parser.add_argument("--layers", type=int, default=12, help="of gpt2; fewer make a smaller list")
    parser.add_argument("--tensors", type=int, default=100000, help="of tiny")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    if min(options.samples, options.slow_samples, options.tensors) < 1 or options.layers < 0:
        parser.error("samples and tensors must be at least 1, layers not negative")
    return options


def print_table(rows, facts):
    print(f"{heading(facts)}\n")
    print("| list | rule | threads | contender | median ms | quartiles | time / zro's | samples |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        time_columns, samples = times(row)
        print(f"| {row['list']} | {row['rule']} | {row['threads']} | {row['contender']} | {time_columns} | "
              f"{row['ratio']:.2f} | {samples} |")
    print(f"\nAfter three steps parameters differed by at most {max(row['worst'] for row in rows):.2f} of the tolerance.")


def main():
    options = read_options()
    zro = Zro(options.library)
    shapes = {"gpt2": gpt2_shapes(options.layers), "tiny": tiny_shapes(options.tensors)}
    rows = []
    for list_name in options.lists:
        for rule in RULES_OF[list_name]:
            if rule in options.rules:
                measure_rule(zro, rule, shapes[list_name], options, f"{list_name}, {rule}", rows, list_name)
    progress("")
    if not rows:
        fail("nothing to measure: tiny has adam alone", 2)
    facts = about(zro)
    if options.json:
        print(json.dumps({**facts, "rows": rows}, indent=1))
    else:
        print_table(rows, facts)


if __name__ == "__main__":
    main()
