#!/usr/bin/env python3
"""PyTorch trains some steps, zro goes on from its state_dict, and the other way round; the next steps of both must agree.

    test_zro_state.py build/lib/libzro.so

Plain asserts; the tolerance is that of the golden vectors for parameters: |got - x| <= R |x| + R / 10 max(1, G), G being the
largest |gradient|, with R = 2e-6 for f32 and 1e-12 for f64.
"""
import json
import os
import subprocess
import sys
import tempfile
import warnings

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
TOOL = os.path.join(HERE, "..", "..", "..", "tools", "python", "zro_state.py")
sys.path.insert(0, os.path.dirname(TOOL))

import zro_state  # noqa: E402  # from the folder above
from zro_calls import Optim, Zro  # noqa: E402  # from this folder

# ---- what is trained ----

CASES = [
    ("adam", torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.1}),
    ("adamw", torch.optim.AdamW, {"lr": 0.01, "betas": (0.8, 0.95), "amsgrad": True}),
    ("sgd", torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("sgd", torch.optim.SGD, {"lr": 0.05}),
    ("rmsprop", torch.optim.RMSprop, {"lr": 0.01, "centered": True, "momentum": 0.5}),
    ("adagrad", torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.01, "initial_accumulator_value": 0.1}),
    ("nadam", torch.optim.NAdam, {"lr": 0.01, "decoupled_weight_decay": True, "weight_decay": 0.1}),
    ("asgd", torch.optim.ASGD, {"lr": 0.05, "t0": 2, "lambd": 0.1}),
    ("rprop", torch.optim.Rprop, {"lr": 0.01, "etas": (0.4, 1.3)}),
    ("radam", torch.optim.RAdam, {"lr": 0.01}),
    ("adamax", torch.optim.Adamax, {"lr": 0.01, "maximize": True}),
    ("adadelta", torch.optim.Adadelta, {"lr": 0.5, "rho": 0.8}),
]
SHAPES = [(5, 3), (1,), (), (4, 0), (2, 3, 4), (7,)]
NAMES = ["layer.0.weight", "one", "scalar", "empty", 'a "name"/ä', "late"]  # the last one has its first gradient later
BEFORE, AFTER = 4, 4


def make_tensors(dtype):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in SHAPES]


def make_grads(step, dtype):
    generator = torch.Generator().manual_seed(100 + step)
    grads = [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in SHAPES]
    return [None if (i == 5 and step < BEFORE + 1) or (i == 1 and step == 2) else g for i, g in enumerate(grads)]


def make_torch(kind, options, tensors):
    """Two groups; the second has another lr."""
    params = [torch.nn.Parameter(t.clone()) for t in tensors]
    groups = [{"params": params[:2]}, {"params": params[2:], "lr": options.get("lr", 0.01) / 2}]
    return params, kind(groups, foreach=False, **options)


def torch_step(params, optimizer, step):
    for p, g in zip(params, make_grads(step, params[0].dtype)):
        p.grad = g
    optimizer.step()


def worst(ours, theirs):
    """The largest distance in units of the tolerance."""
    result = 0.0
    for i, (a, b) in enumerate(zip(ours, theirs)):
        if b.numel() == 0:
            continue
        all_grads = [make_grads(step, torch.float64)[i] for step in range(BEFORE + AFTER)]
        largest = max(1, max(g.abs().max().item() for g in all_grads if g is not None))
        relative = 2e-6 if b.dtype == torch.float32 else 1e-12
        x, y = a.detach().double(), b.detach().double()
        result = max(result, ((x - y).abs() / (relative * y.abs() + relative / 10 * largest)).max().item())
    return result


def about(path):
    with safe_open(path, framework="pt") as file:
        return json.loads(file.metadata()["zro"])


def same_files(first, second):
    a, b = load_file(first), load_file(second)
    assert a.keys() == b.keys(), (a.keys(), b.keys())
    for key in a:
        assert a[key].dtype == b[key].dtype and a[key].shape == b[key].shape, key
        assert torch.equal(a[key], b[key]), key
    a, b = about(first), about(second)
    assert a["groups"] == b["groups"] and a["params"] == b["params"], (a, b)


def zro_goes_on(zro, case, dtype, folder):
    """PyTorch, then zro; a fresh optimizer of zro's has other values than the state."""
    rule, kind, options = case
    path = os.path.join(folder, "from-torch.safetensors")
    params, theirs = make_torch(kind, options, make_tensors(dtype))
    for step in range(BEFORE):
        torch_step(params, theirs, step)
    zro_state.from_torch(theirs.state_dict(), dict(zip(NAMES, params)), path)
    assert about(path)["rule"] == rule
    tensors = [p.detach().clone() for p in params]
    ours = Optim(zro, rule, [tensors[:2], tensors[2:]], NAMES)
    ours.load(path)
    largest = 0.0
    for step in range(BEFORE, BEFORE + AFTER):
        torch_step(params, theirs, step)
        grads = make_grads(step, dtype)
        ours.step(grads)
        largest = max(largest, worst(tensors, params))
    ours.destroy()
    return largest


def torch_goes_on(zro, case, dtype, folder):
    """zro, then PyTorch; zro itself began with the values of a state that PyTorch has made before its first step."""
    rule, kind, options = case
    path, again = os.path.join(folder, "of-zro.safetensors"), os.path.join(folder, "again.safetensors")
    params, first = make_torch(kind, options, make_tensors(dtype))
    fresh = first.state_dict()
    if rule != "adagrad":
        assert not fresh["state"]
    zro_state.from_torch(fresh, params, path)
    tensors = [p.detach().clone() for p in params]
    ours = Optim(zro, rule, [tensors[:2], tensors[2:]], [None] * len(tensors))
    ours.load(path)
    for step in range(BEFORE):
        ours.step(make_grads(step, dtype))
    ours.save(path)
    params, theirs = make_torch(kind, {}, tensors)
    state_dict = zro_state.to_torch(path)
    theirs.load_state_dict(state_dict)
    zro_state.from_torch(state_dict, params, again, rule, data=True)
    same_files(path, again)
    largest = 0.0
    for step in range(BEFORE, BEFORE + AFTER):
        torch_step(params, theirs, step)
        ours.step(make_grads(step, dtype))
        largest = max(largest, worst(tensors, params))
    ours.destroy()
    return largest


def the_optimizers_go_on(zro, folder):
    for dtype in (torch.float32, torch.float64):
        torch.set_default_dtype(dtype)  # scalar state of PyTorch is of this type
        for case in CASES:
            for go_on in (zro_goes_on, torch_goes_on):
                distance = go_on(zro, case, dtype, folder)
                what = f"{case[0]} {dtype} {go_on.__name__}"
                assert distance <= 1, f"{what}: {distance:.3g} tolerances apart"
                print(f"{what}: {distance:.2g}")
        torch.set_default_dtype(torch.float32)


# ---- the conversions ----


def sixteen_bits(zro, folder):
    """bf16: masters are left out with a warning, or kept; arrays are f32; a load rounds them."""
    path = os.path.join(folder, "bf16.safetensors")
    tensors = [t.bfloat16() for t in make_tensors(torch.float32)]
    ours = Optim(zro, "adamw", [tensors], NAMES)
    ours.step([g if g is None else g.bfloat16() for g in make_grads(0, torch.float32)])
    ours.save(path)
    ours.destroy()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        state_dict = zro_state.to_torch(path)
    assert len(caught) == 1 and "masters of 5 parameters" in str(caught[0].message), [str(c.message) for c in caught]
    assert "master" not in state_dict["state"][0]
    assert zro_state.to_torch(path, masters=True)["state"][0]["master"].dtype == torch.float32
    assert state_dict["state"][0]["exp_avg"].dtype == torch.float32
    params = [torch.nn.Parameter(t) for t in tensors]
    theirs = torch.optim.AdamW(params)
    theirs.load_state_dict(state_dict)
    assert theirs.state[params[0]]["exp_avg"].dtype == torch.bfloat16
    zro_state.from_torch(theirs.state_dict(), params, path)
    assert load_file(path)[f"exp_avg:0:{NAMES[0]}"].dtype == torch.float32  # PyTorch has carried the names along
    assert about(path)["params"][0] == {"name": NAMES[0], "shape": [5, 3], "dtype": "bf16"}


def forms(folder):
    """What PyTorch has in its dict is what comes back."""
    path = os.path.join(folder, "forms.safetensors")
    params, optimizer = make_torch(torch.optim.NAdam, {"lr": 0.01}, make_tensors(torch.float32))
    torch_step(params, optimizer, 0)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    state_dict = optimizer.state_dict()
    zro_state.from_torch(state_dict, dict(zip(NAMES, params)), path)
    back = zro_state.to_torch(path)
    assert schedule is not None and about(path)["groups"][0]["initial_lr"] == 0.01
    assert back["state"].keys() == state_dict["state"].keys()
    for i, slots in state_dict["state"].items():
        assert back["state"][i].keys() == slots.keys()
        for name, tensor in slots.items():
            other = back["state"][i][name]
            assert other.dtype == tensor.dtype and other.shape == tensor.shape and torch.equal(other, tensor), (i, name)
    for a, b in zip(back["param_groups"], state_dict["param_groups"]):
        for key, value in b.items():
            assert key == "foreach" or a[key] == value, (key, a[key], value)


def refused(words, fn, *args, **more):
    try:
        fn(*args, **more)
    except zro_state.StateError as error:
        assert words in str(error), str(error)
        return
    raise AssertionError(f"not refused: {words}")


def refusals(folder):
    path = os.path.join(folder, "x.safetensors")
    params, optimizer = make_torch(torch.optim.Adam, {}, make_tensors(torch.float32))
    torch_step(params, optimizer, 0)
    good = optimizer.state_dict()
    refused("parameter 5 has no arrays", zro_state.from_torch, good, None, path)
    refused("5 parameters are given, the optimizer has 6", zro_state.from_torch, good, params[:5], path)
    refused("cannot be guessed", zro_state.from_torch, {"state": {}, "param_groups": [{"params": []}]}, None, path)
    second = {"state": {}, "param_groups": [{"lr": 1.0, "params": [1]}]}
    refused("not numbered from 0", zro_state.from_torch, second, None, path, "sgd")
    text = {"state": {}, "param_groups": [{"lr": "x", "params": []}]}
    refused("lr is a str", zro_state.from_torch, text, None, path, "sgd")
    refused("rule is adam", zro_state.from_torch, good, params, path, "adamw")
    refused("no element type complex64", zro_state.from_torch, good, [p.to(torch.complex64) for p in params], path)
    refused("has the shape", zro_state.from_torch, good, params[::-1], path)
    refused("two parameters are named", zro_state.from_torch, good, params, path, names=["same"] * 6)
    save_file({"w": torch.zeros(3)}, path)
    refused("no state of zro", zro_state.to_torch, path)
    save_file({}, path, metadata={"zro": '{"format": 2}'})
    refused("has format 2", zro_state.to_torch, path)


def rules_are_guessed():
    """By all groups: adamw if each of them decouples its decay, in whatever order they stand."""
    def group(**more):
        return {"lr": 0.1, "betas": (0.9, 0.99), "amsgrad": False, "params": [], **more}

    yes, no = group(decoupled_weight_decay=True), group(decoupled_weight_decay=False)
    for groups, rule in (([yes, yes], "adamw"), ([yes, no], "adam"), ([no, yes], "adam"), ([no], "adam"), ([group()], "adam"),
                         ([{"params": []}, {"momentum": 0, "nesterov": False, "params": []}], "sgd"), ([], None)):
        assert zro_state.guess_rule(groups) == rule, (groups, rule)


def names_of_parameters(folder):
    """PyTorch's param_names are zro's names, both ways; names that are given must be the same."""
    path = os.path.join(folder, "names.safetensors")
    params = dict(zip(NAMES, make_tensors(torch.float32)))
    optimizer = torch.optim.SGD([{"params": list(params.items())[:2]}, {"params": list(params.items())[2:]}])
    state_dict = optimizer.state_dict()
    for given in (list(params.values()), params, {**params, "a.buffer": torch.zeros(2)}, dict(reversed(params.items()))):
        zro_state.from_torch(state_dict, given, path)
        assert [p["name"] for p in about(path)["params"]] == NAMES
        assert [p["shape"] for p in about(path)["params"]] == [list(shape) for shape in SHAPES]
    zro_state.from_torch(state_dict, list(params.values()), path, names=NAMES)
    assert [g["param_names"] for g in zro_state.to_torch(path)["param_groups"]] == [NAMES[:2], NAMES[2:]]
    optimizer.load_state_dict(zro_state.to_torch(path))
    refused("parameter 0 is layer.0.weight in the state's param_names, but one", zro_state.from_torch, state_dict,
            list(params.values()), path, names=["one", "layer.0.weight"] + NAMES[2:])
    refused("there is none of this name", zro_state.from_torch, state_dict, {"m." + k: v for k, v in params.items()}, path)
    state_dict["param_groups"][0]["param_names"] = NAMES[:1]
    refused("2 parameters, but 1 param_names", zro_state.from_torch, state_dict, params, path)


def values_of_programs(folder):
    """What a program keeps in its groups is left out, and it is told so, once for each name."""
    path = os.path.join(folder, "extra.safetensors")
    params, optimizer = make_torch(torch.optim.AdamW, {}, make_tensors(torch.float32))
    for group in optimizer.param_groups:
        group.update(name="backbone", lr_scale=0.5, max_lr=1.0, schedule={"a": [1]})
    optimizer.param_groups[1]["swa_lr"] = 0.1
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        zro_state.from_torch(optimizer.state_dict(), params, path)
    texts = sorted(str(c.message).split(" is left out")[0] for c in caught)
    assert texts == ["group 0: lr_scale", "group 0: name", "group 0: schedule", "group 1: swa_lr"], texts
    assert about(path)["groups"][1].keys() == zro_state.VALUES["adamw"] | {"params"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        zro_state.from_torch(optimizer.state_dict(), params, path, rule="lion")
    assert "lr_scale" in about(path)["groups"][0] and len(caught) == 2, [str(c.message) for c in caught]


def schedules_of_torch(folder):
    """What the random trees of test_random.py leave out: plateaus, and schedulers that zro does not have."""
    kinds, path = torch.optim.lr_scheduler, os.path.join(folder, "schedules.safetensors")
    params, optimizer = make_torch(torch.optim.SGD, {"lr": 0.1}, make_tensors(torch.float32))
    def make(mode):
        return kinds.ReduceLROnPlateau(optimizer, mode, factor=0.5, patience=2, threshold_mode="abs", cooldown=3)

    for mode, metrics in (("min", []), ("max", [1, 2, 1.5, 1.5, 1.5, 1.5, 1.5])):
        plateau = make(mode)
        for metric in metrics:
            plateau.step(metric)
        zro_state.from_torch(optimizer.state_dict(), params, path, schedules=[plateau.state_dict()])
        row = about(path)["schedules"][0]
        assert row["kind"] == "plateau" and row["maximize"] == (mode == "max") and row["steps"] == len(metrics), row
        other = make(mode)
        other.load_state_dict(zro_state.schedules_to_torch(path)[0])
        assert other.state_dict() == plateau.state_dict(), (other.state_dict(), plateau.state_dict())
    groups = [{"lr": 0.1, "max_lr": 1.0}, {"lr": 0.1, "max_lr": 2.0}]
    refused("max_lr is 1.0 and 2.0 in different groups", zro_state.plain_schedules, {"_schedule_phases": []}, groups)
    cyclic = kinds.CyclicLR(optimizer, 0.1, 0.2, cycle_momentum=False).state_dict()
    refused("zro has no schedule with", zro_state.plain_schedules, cyclic, optimizer.param_groups)


def the_command(folder):
    """The same through files, both ways."""
    def run(*args):
        return subprocess.run([sys.executable, TOOL, *args], capture_output=True, text=True, check=False)

    old, model, names, state, new = (os.path.join(folder, f) for f in
                                     ("old.pt", "model.safetensors", "names.json", "cmd.safetensors", "new.pt"))
    params, optimizer = make_torch(torch.optim.Adam, {}, make_tensors(torch.float32))
    torch_step(params, optimizer, 0)
    torch.save(optimizer.state_dict(), old)
    save_file({**{n: p.detach() for n, p in zip(NAMES, params)}, "a.buffer": torch.zeros(2)}, model)
    with open(names, "w", encoding="utf-8") as file:
        json.dump(NAMES, file)
    positions, data = os.path.join(folder, "positions.pt"), os.path.join(folder, "data.pt")
    torch.save([torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 2, 5]).state_dict()], positions)
    done = run("from-torch", old, state, "--params", model, "--names", names, "--rule", "adam", "--data", "--schedules", positions)
    assert done.returncode == 0, done.stderr
    assert [p["name"] for p in about(state)["params"]] == NAMES
    assert about(state)["schedules"][0]["milestones"] == [2, 2, 5]
    done = run("to-torch", state, new, "--model", data, "--schedules", positions)
    assert done.returncode == 0, done.stderr
    assert all(torch.equal(t, p) for t, p in zip(torch.load(data, weights_only=True).values(), params))
    assert torch.load(positions, weights_only=True)[0]["last_epoch"] == 0
    first, second = torch.load(old, weights_only=True), torch.load(new, weights_only=True)
    assert first["state"].keys() == second["state"].keys()
    assert all(torch.equal(second["state"][i][k], v) for i, slots in first["state"].items() for k, v in slots.items())
    done = run("to-torch", os.path.join(folder, "nothing"), new)
    assert done.returncode == 1 and "zro_state.py: " in done.stderr, done.stderr


def main():
    zro = Zro()
    with tempfile.TemporaryDirectory() as folder:
        forms(folder)
        refusals(folder)
        rules_are_guessed()
        names_of_parameters(folder)
        values_of_programs(folder)
        schedules_of_torch(folder)
        the_command(folder)
        the_optimizers_go_on(zro, folder)
        sixteen_bits(zro, folder)
    print("ok")


if __name__ == "__main__":
    main()
