#!/usr/bin/env python3
"""States of zro as PyTorch's optimizer state_dict, and back:

    zro_state.py to-torch STATE.safetensors OUT.pt [--masters] [--model MODEL.pt] [--schedules SCHEDULES.pt]
    zro_state.py from-torch IN.pt OUT.safetensors [--rule adamw] [--params MODEL] [--names NAMES.json] [--data]
                                                  [--schedules SCHEDULES.pt]

STATE.safetensors is what zro_state_write writes; the .pt files hold what `optimizer.state_dict()` returns.  Names of slots and
values are the same on both sides, so this is about forms:

  - PyTorch numbers parameters over all groups, in order; so does zro, which also knows names, shapes and types.  PyTorch's dict
    has no shapes of parameters that have no state yet: --params gives them, as a model's state_dict (.pt or .safetensors) whose
    entries are the optimizer's parameters in its order; if there is more in it, or another order, --names says which they are:
    a JSON list of the parameters' names.
  - Single numbers ("step", "mu_product", "eta", "mu") are f64 in zro and tensors in PyTorch: "step" f32, others f32 or, for f64
    parameters, f64.
  - Arrays are f32 in zro for 16-bit parameters; PyTorch's load_state_dict rounds them to the parameter's type.
  - "master", the f32 values of 16-bit parameters, is nothing that PyTorch knows: it is left out with a warning, unless
    --masters asks for it.  PyTorch then carries it along; back in zro it would be out of date, so from-torch leaves it out.
  - The data of parameters, which a file of zro_optim_save has, too, is a model's state_dict: --model writes it, and --data puts
    that of --params into zro's file.  Buffers of the model have no place there.
  - The positions of schedules are the state_dicts of PyTorch's schedulers, in a list: --schedules writes or reads it.  PyTorch's
    do not say what kind they are; their keys tell.  Back in PyTorch they have what load_state_dict needs beside the arguments
    that the scheduler was made with.  MultiplicativeLR, CyclicLR and SWALR are not in zro.
  - Values that are None, those that say how PyTorch computes, and those that its schedules leave in the groups stay out of
    zro's file, but for "initial_lr".  What a program keeps in its groups beside the rule's values ("name", "lr_scale", "swa_lr",
    ...) is left out with a warning.
  - "param_names", which PyTorch has if the optimizer was made with named parameters, are the names of zro's parameters, and the
    other way round.  Where --params or --names gives names, too, they must be the same.
  - zro's rules adam and adamw take each other's states.  A state is that of adamw if all its groups say decoupled_weight_decay,
    and otherwise that of adam.

As a module: to_torch(path), model_to_torch(path), schedules_to_torch(path) and from_torch(state_dict, params, path).  Needs torch
and safetensors.
"""
import argparse
import json
import sys
import warnings

FORMAT = 1
SINGLE = {"step", "mu_product", "eta", "mu"}  # where a parameter has one element, the shape does not tell
DTYPES = {"float32": "f32", "float64": "f64", "bfloat16": "bf16", "float16": "f16", "int8": "i8", "uint8": "u8", "int32": "i32",
          "int64": "i64"}
FROM_SCHEDULES = {"max_lr", "min_lr", "base_momentum", "max_momentum", "warmup_steps"}
ADAM = {"lr", "betas", "eps", "weight_decay", "maximize"}
VALUES = {  # of zro's rules, by PyTorch's names
    "adam": ADAM | {"amsgrad", "decoupled_weight_decay"}, "adamw": ADAM | {"amsgrad", "decoupled_weight_decay"},
    "nadam": ADAM | {"momentum_decay", "decoupled_weight_decay"}, "radam": ADAM | {"decoupled_weight_decay"}, "adamax": ADAM,
    "sgd": {"lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize"},
    "adagrad": {"lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps", "maximize"},
    "adadelta": {"lr", "rho", "eps", "weight_decay", "maximize"},
    "rmsprop": {"lr", "alpha", "eps", "weight_decay", "momentum", "centered", "maximize"},
    "rprop": {"lr", "etas", "step_sizes", "maximize"},
    "asgd": {"lr", "lambd", "alpha", "t0", "weight_decay", "maximize"},
}
HOW = {"foreach": None, "capturable": False, "differentiable": False, "fused": None}  # PyTorch computes, and its defaults


class StateError(ValueError):
    """A file or a state_dict that cannot be converted; the text says why."""


# ---- to PyTorch ----


def read(path):
    """What a file says about its state (as zro wrote it), and its tensors by name."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        text = (file.metadata() or {}).get("zro")
        if text is None:
            raise StateError(f"{path} is no state of zro")
        about = json.loads(text)
        if about.get("format") != FORMAT:
            raise StateError(f"{path} has format {about.get('format')}, known is {FORMAT}")
        return about, {name: file.get_tensor(name) for name in file.keys()}


def label(param, index):
    """What a file calls a parameter."""
    return str(index) if param.get("name") is None else param["name"]


def is_single(slot, tensor, shape):
    return tensor.dim() == 0 and (len(shape) > 0 or slot in SINGLE)


def to_torch(path, masters=False):
    """The state_dict of PyTorch's optimizer for a file of zro's."""
    import torch

    about, tensors = read(path)
    index_of = {label(p, i): i for i, p in enumerate(about["params"])}
    state, left_out = {}, 0
    data = {label(p, i) for i, p in enumerate(about["params"]) if p.get("data")}  # the model's, not the optimizer's
    for name, tensor in sorted(tensors.items()):
        if name in data:
            continue
        slot, _, of = name.split(":", 2)
        index = index_of[of]
        param = about["params"][index]
        if slot == "master" and not masters:
            left_out += 1
            continue
        if is_single(slot, tensor, param["shape"]):
            tensor = tensor.to(torch.float64 if param["dtype"] == "f64" and slot != "step" else torch.float32)
        state.setdefault(index, {})[slot] = tensor
    if left_out > 0:
        warnings.warn(f"{path}: f32 masters of {left_out} parameters are left out", stacklevel=2)
    groups, of_schedules = [], {}
    for row in about.get("schedules", []):
        if row["kind"] == "one_cycle":  # PyTorch's looks for these in the groups
            of_schedules = {key: row[key] for key in ("max_lr", "base_momentum", "max_momentum")}
            of_schedules["min_lr"] = row["max_lr"] / row["div_factor"] / row["final_div_factor"]
    for group in about["groups"]:
        values = {key: tuple(value) if isinstance(value, list) else value for key, value in group.items()}
        values.update(of_schedules)
        if about["rule"].lower() == "adamw":
            values.setdefault("decoupled_weight_decay", True)
        if group["params"] and all(p.get("name") is not None for p in about["params"]):
            values["param_names"] = [about["params"][i]["name"] for i in group["params"]]
        groups.append({**HOW, **values, "params": group["params"]})
    return {"state": dict(sorted(state.items())), "param_groups": groups}


def model_to_torch(path):
    """The data of the parameters by their names, as far as a file has it."""
    about, tensors = read(path)
    return {label(p, i): tensors[label(p, i)] for i, p in enumerate(about["params"]) if p.get("data")}


def schedules_to_torch(path):
    """A state_dict for each schedule of a file, to be loaded into a scheduler that was made with the same arguments."""
    about, _ = read(path)
    rows, out = iter(about.get("schedules", [])), []
    for row in rows:
        out.append(torch_schedule(row, rows, [group["lr"] for group in about["groups"]]))
    return out


def torch_schedule(row, rows, lrs):
    """Takes the schedule's children from the rows that follow."""
    kind = row["kind"]
    parts = [torch_schedule(next(rows), rows, lrs) for _ in range(row.get("children", 0))]
    if kind in ("chained", "sequential"):
        position = {"last_epoch": row["steps"]} if kind == "sequential" else {}
        return {**position, "_last_lr": lrs, "_schedulers": parts}
    out = {"last_epoch": row["steps"], "_last_lr": lrs}
    if kind == "plateau":
        return {**out, "best": float(row["best"]), "num_bad_epochs": row["bad_steps"], "cooldown_counter": row["cooldown_left"]}
    out.update(base_lrs=[float(lr) for lr in row.get("first_lr", [])], _step_count=row["steps"] + 1)
    if kind == "cosine_restarts":
        out.update(T_cur=row["cycle_steps"], T_i=row["cycle_length"])
    if kind == "lambda":
        out["lr_lambdas"] = [None] * row["n_groups"]
    return out


# ---- from PyTorch ----


def only(what, values):
    """The one value that all groups have."""
    if len(set(values)) != 1:
        raise StateError(f"{what} is {' and '.join(map(str, sorted(set(values))))} in different groups; zro has one for all")
    return values[0]


def written(number):
    """An argument that was computed back from others, as a program has written it."""
    return float(f"{number:.12g}")


def one_cycle_arguments(scheduler, groups):
    """PyTorch keeps some of them in the groups, and some only in what follows from them."""
    max_lr = only("max_lr", [group["max_lr"] for group in groups])
    first, last = groups[0]["initial_lr"], groups[0]["min_lr"]
    cycles = bool(scheduler["cycle_momentum"])
    total, phases = scheduler["total_steps"], scheduler["_schedule_phases"]
    return {"max_lr": max_lr, "total_steps": total, "pct_start": written((phases[0]["end_step"] + 1) / total),
            "linear": int(scheduler["_anneal_func_type"] == "linear"), "three_phase": int(len(phases) == 3),
            "cycle_momentum": int(cycles),
            "base_momentum": only("base_momentum", [g["base_momentum"] for g in groups]) if cycles else 0.85,
            "max_momentum": only("max_momentum", [g["max_momentum"] for g in groups]) if cycles else 0.95,
            "div_factor": written(max_lr / first), "final_div_factor": written(first / last)}


def plateau_numbers(scheduler):
    best = scheduler["best"]
    return {"maximize": int(scheduler["mode"] == "max"), "factor": scheduler["factor"], "patience": scheduler["patience"],
            "threshold": scheduler["threshold"], "threshold_absolute": int(scheduler["threshold_mode"] == "abs"),
            "cooldown": scheduler["cooldown"], "min_lr": only("min_lr", scheduler["min_lrs"]), "eps": scheduler["eps"],
            "best": best if abs(best) != float("inf") else str(best), "bad_steps": scheduler["num_bad_epochs"],
            "cooldown_left": scheduler["cooldown_counter"]}


def schedule_numbers(scheduler, groups):
    """The kind of a scheduler that has no others in it, and its arguments, by the keys of its state_dict."""
    kinds = [("step_lr", {"step_size": "step_size", "gamma": "gamma"}), ("polynomial", {"total_iters": "total_iters",
             "power": "power"}), ("cosine", {"T_max": "t_max", "eta_min": "eta_min"}),
             ("cosine_restarts", {"T_0": "t_0", "T_mult": "t_mult", "eta_min": "eta_min", "T_cur": "cycle_steps",
                                  "T_i": "cycle_length"}),
             ("linear", {"start_factor": "start_factor", "end_factor": "end_factor", "total_iters": "total_iters"})]
    if "_schedule_phases" in scheduler:
        return "one_cycle", one_cycle_arguments(scheduler, groups)
    if "num_bad_epochs" in scheduler:
        return "plateau", plateau_numbers(scheduler)
    for kind, names in kinds:
        if names.keys() <= scheduler.keys():
            return kind, {names[key]: scheduler[key] for key in names}
    if "milestones" in scheduler:
        milestones = sorted(scheduler["milestones"].elements())
        return "multi_step", {"gamma": scheduler["gamma"], "n_milestones": len(milestones),
                              **({"milestones": milestones} if milestones else {})}
    if {"factor", "total_iters"} <= scheduler.keys():
        return "constant", {"factor": scheduler["factor"], "total_iters": scheduler["total_iters"]}
    own = scheduler.keys() - {"base_lrs", "last_epoch", "_step_count", "_last_lr", "_get_lr_called_within_step", "_is_initial"}
    if own == {"gamma"}:
        return "exponential", {"gamma": scheduler["gamma"]}
    if own == {"lr_lambdas"}:
        return "lambda", {}
    raise StateError(f"zro has no schedule with {', '.join(sorted(own)) or 'no arguments'}")


def plain_schedules(scheduler, groups):
    """The rows of a schedule: itself, and then those that it has taken over.  Steps are counted from 0; PyTorch has -1 where the
    turn of a part has not come."""
    position = {"steps": max(0, scheduler.get("last_epoch", 0)), "n_groups": len(groups)}
    parts = [plain_schedules(part, groups) for part in scheduler.get("_schedulers", [])]
    if parts:
        milestones = scheduler.get("_milestones")
        row = {"kind": "chained" if milestones is None else "sequential", "children": len(parts),
               "n_milestones": len(milestones or [])}
        if milestones:
            row["milestones"] = list(milestones)
        return [{**row, **position}] + [row for part in parts for row in part]
    kind, numbers = schedule_numbers(scheduler, groups)
    first = scheduler.get("base_lrs") or [group.get("initial_lr", group["lr"]) for group in groups]
    return [{"kind": kind, "n_milestones": 0, **numbers, **position, "first_lr": [plain_value("schedule", "lr", x) for x in first]}]


def guess_rule(groups):
    """The rule whose values these are; None: they are nobody's."""
    keys = {key for group in groups for key in group}
    marks = [("lambd", "asgd"), ("etas", "rprop"), ("rho", "adadelta"), ("lr_decay", "adagrad"), ("centered", "rmsprop"),
             ("momentum_decay", "nadam"), ("nesterov", "sgd")]
    for key, rule in marks:
        if key in keys:
            return rule
    if "amsgrad" in keys:
        return "adamw" if all(group.get("decoupled_weight_decay") for group in groups) else "adam"
    if "betas" in keys:
        return "radam" if "decoupled_weight_decay" in keys else "adamax"
    return None


def plain_value(where, key, value):
    """A group's value as JSON has it."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.numel() != 1:
            raise StateError(f"{where}: {key} is a tensor of {value.numel()} elements")
        value = value.item()
    if isinstance(value, (list, tuple)):
        return [plain_value(where, key, v) for v in value]
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return float(value)
    raise StateError(f"{where}: {key} is a {type(value).__name__}, must be a number, true, false, or a list of these")


def is_extra(rule, key, value):
    """Whether a value is a program's own.  What the values of a rule of the program's are, is not known here: its numbers stay."""
    import torch

    if rule in VALUES:
        return key not in VALUES[rule] and key != "initial_lr"
    return not isinstance(value, (bool, int, float, list, tuple, torch.Tensor))


def plain_groups(state_dict, rule):
    """The groups as a file has them, the number of parameters, and their names, each of which may be None."""
    groups, n, names, extra = [], 0, [], {}
    for g, group in enumerate(state_dict["param_groups"]):
        out = {}
        for key, value in group.items():
            if key in ("params", "param_names") or key in HOW or key in FROM_SCHEDULES or value is None:
                continue
            if is_extra(rule, key, value):
                extra.setdefault(key, g)
                continue
            if key == "decoupled_weight_decay" and rule == "adamw" and not value:
                raise StateError(f"group {g}: adamw without decoupled_weight_decay; its rule is adam")
            out[key] = plain_value(f"group {g}", key, value)
        if list(group["params"]) != list(range(n, n + len(group["params"]))):
            raise StateError(f"group {g}: its parameters are not numbered from {n} on")
        out["params"] = list(group["params"])
        n += len(group["params"])
        groups.append(out)
        named = group.get("param_names") or [None] * len(group["params"])
        if len(named) != len(group["params"]):
            raise StateError(f"group {g}: it has {len(group['params'])} parameters, but {len(named)} param_names")
        names += named
    for key, g in extra.items():
        warnings.warn(f"group {g}: {key} is left out: {rule} has no value of this name", stacklevel=3)
    return groups, n, names


def dtype_name(dtype):
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise StateError(f"zro has no element type {name}")
    return DTYPES[name]


def check_names(names, others):
    for i, (name, other) in enumerate(zip(names, others)):
        if None not in (name, other) and name != other:
            raise StateError(f"parameter {i} is {other} in the state's param_names, but {name} in the names that are given")


def known_params(params, names, n, named):
    """(name, shape, dtype, the parameter itself) of each parameter, as far as they are known; `named` are the state's own names."""
    if params is None:
        params = {}
    if names is None and n > 0 and None not in named:
        missing = [name for name in named if isinstance(params, dict) and params and name not in params]
        if missing:
            raise StateError(f"parameter {named.index(missing[0])} is {missing[0]} in the state's param_names, but there is none of "
                             "this name among the parameters that are given")
        names = named
    if isinstance(params, dict):
        keys = list(params) if names is None else names
        if params and len(keys) != n:
            raise StateError(f"{len(keys)} parameters are given, the optimizer has {n}; name them in its order")
        tensors = [params.get(k) for k in keys]
        names = names if names is not None else keys or None
    else:
        tensors = list(params)
    if (tensors and len(tensors) != n) or (names is not None and len(names) != n):
        raise StateError(f"{len(tensors) or len(names)} parameters are given, the optimizer has {n}")
    tensors = tensors or [None] * n
    names = names if names is not None else [None] * n
    check_names(names, named)
    return [(name, None if t is None else list(t.shape), None if t is None else dtype_name(t.dtype), t)
            for name, t in zip(names, tensors)]


def shape_from_state(index, slots, dtype):
    """A parameter's shape and type by its arrays, where nobody has given them."""
    arrays = [t for name, t in slots.items() if name not in SINGLE and name != "master"]
    if not arrays:
        raise StateError(f"parameter {index} has no arrays in its state that would tell its shape: "
                         "give the model's parameters (--params)")
    return list(arrays[0].shape), dtype or dtype_name(arrays[0].dtype)


def file_slots(index, slots, dtype):
    """A parameter's state as zro has it."""
    import torch

    real = torch.float64 if dtype == "f64" else torch.float32
    for name, value in slots.items():
        if name == "master":
            continue
        if name in SINGLE:
            value = torch.as_tensor(value, dtype=torch.float64)
            if value.numel() != 1:
                raise StateError(f"parameter {index}: {name} has {value.numel()} elements, must have 1")
            yield name, value.reshape(()).clone()
        elif isinstance(value, torch.Tensor) and value.is_floating_point():
            yield name, value.detach().to("cpu", real).contiguous().clone()
        else:
            raise StateError(f"parameter {index}: {name} is a {type(value).__name__}, must be a tensor of real numbers")


def from_torch(state_dict, params, path, rule=None, names=None, data=False, schedules=()):
    """Writes a file of zro's.

    params: the optimizer's parameters in its order, or a model's state_dict, for shapes and types; None: as the state has them.
    rule: zro's name of it; None: guessed by the groups' keys.
    names: of the parameters; None: the state's param_names, or those of `params`, if it is a dict.
    data: the parameters' data goes into the file, too.
    schedules: state_dicts of the optimizer's schedulers, but for those that others have taken over.
    """
    from safetensors.torch import save_file

    rule = rule or guess_rule(state_dict["param_groups"])
    if rule is None:
        raise StateError("what rule this is the state of cannot be guessed: name it (--rule)")
    rule = rule.lower()
    groups, n, named = plain_groups(state_dict, rule)
    about_params, tensors, steps = [], {}, 0
    for i, (name, shape, dtype, param) in enumerate(known_params(params, names, n, named)):
        slots = {k: v for k, v in state_dict["state"].get(i, {}).items() if v is not None}
        if shape is None:
            shape, dtype = shape_from_state(i, slots, dtype)
        about_params.append({"name": name, "shape": shape, "dtype": dtype})
        if data:
            if param is None:
                raise StateError(f"parameter {i}: its data is not known: give the model's parameters (--params)")
            about_params[i]["data"] = True
            if label(about_params[i], i) in tensors:
                raise StateError(f"two parameters are named {label(about_params[i], i)}")
            tensors[label(about_params[i], i)] = param.detach().to("cpu").contiguous().clone()
        for slot, tensor in file_slots(i, slots, dtype):
            key = f"{slot}:0:{label(about_params[i], i)}"
            if key in tensors:
                raise StateError(f"two parameters are named {label(about_params[i], i)}")
            if tensor.dim() > 0 and list(tensor.shape) != shape:
                raise StateError(f"parameter {i}: {slot} has the shape {list(tensor.shape)}, the parameter {shape}")
            tensors[key] = tensor
            if slot == "step":
                steps = max(steps, int(tensor.item()))
    about = {"format": FORMAT, "rule": rule, "steps": steps, "scale": 0.0, "growth_tracker": 0, "groups": groups,
             "params": about_params}
    rows = [row for scheduler in schedules for row in plain_schedules(scheduler, state_dict["param_groups"])]
    if rows:
        about["schedules"] = rows
    save_file(tensors, path, metadata={"zro": json.dumps(about)})


# ---- the command ----


def load_params(path):
    import torch

    if path is None:
        return None
    if path.endswith(".safetensors"):
        from safetensors.torch import load_file

        return load_file(path)
    return torch.load(path, map_location="cpu", weights_only=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    to = commands.add_parser("to-torch", help="a file of zro's becomes PyTorch's state_dict")
    to.add_argument("state")
    to.add_argument("out")
    to.add_argument("--masters", action="store_true", help="keep the f32 masters of 16-bit parameters as a slot of their own")
    to.add_argument("--model", help="write the data of the parameters, as a model's state_dict")
    to.add_argument("--schedules", help="write a list of state_dicts for the schedulers")
    back = commands.add_parser("from-torch", help="PyTorch's state_dict becomes a file of zro's")
    back.add_argument("state")
    back.add_argument("out")
    back.add_argument("--rule", help="zro's name of it; without, it is guessed")
    back.add_argument("--params", help="a model's state_dict, .pt or .safetensors, for shapes, types and names")
    back.add_argument("--names", help="a JSON list of the names of the optimizer's parameters, in its order")
    back.add_argument("--data", action="store_true", help="put the data of --params into the file, too")
    back.add_argument("--schedules", help="a list of the schedulers' state_dicts")
    args = parser.parse_args()
    try:
        import torch

        if args.command == "to-torch":
            torch.save(to_torch(args.state, args.masters), args.out)
            if args.model is not None:
                torch.save(model_to_torch(args.state), args.model)
            if args.schedules is not None:
                torch.save(schedules_to_torch(args.state), args.schedules)
            return 0
        names = None
        if args.names is not None:
            with open(args.names, encoding="utf-8") as file:
                names = json.load(file)
        state_dict = torch.load(args.state, map_location="cpu", weights_only=True)
        schedules = torch.load(args.schedules, weights_only=True) if args.schedules is not None else []
        from_torch(state_dict, load_params(args.params), args.out, args.rule, names, args.data, schedules)
    except (StateError, OSError, ImportError) as error:
        print(f"zro_state.py: {error}", file=sys.stderr)
        return 1
    except Exception as error:  # what torch and safetensors raise for files that are none of theirs
        print(f"zro_state.py: {args.state} or {args.out}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
