#!/usr/bin/env python3
"""States of zro as PyTorch's optimizer state_dict, and back:

    zro_state.py to-torch STATE.safetensors OUT.pt [--masters]
    zro_state.py from-torch IN.pt OUT.safetensors [--rule adamw] [--params MODEL] [--names NAMES.json]

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
  - The data of parameters, and the positions of schedules, which a file of zro_optim_save has, too, are left out: the model's
    tensors are in that file under their names, for any reader of safetensors.
  - Values that are None, those that say how PyTorch computes, and those that its schedules leave in the groups stay out of
    zro's file, but for "initial_lr".  What a program keeps in its groups beside the rule's values ("name", "lr_scale", "swa_lr",
    ...) is left out with a warning.
  - "param_names", which PyTorch has if the optimizer was made with named parameters, are the names of zro's parameters, and the
    other way round.  Where --params or --names gives names, too, they must be the same.
  - zro's rules adam and adamw take each other's states.  A state is that of adamw if all its groups say decoupled_weight_decay,
    and otherwise that of adam.

As a module: to_torch(path) and from_torch(state_dict, params, path).  Needs torch and safetensors.
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
    groups = []
    for group in about["groups"]:
        values = {key: tuple(value) if isinstance(value, list) else value for key, value in group.items()}
        if about["rule"].lower() == "adamw":
            values.setdefault("decoupled_weight_decay", True)
        if group["params"] and all(p.get("name") is not None for p in about["params"]):
            values["param_names"] = [about["params"][i]["name"] for i in group["params"]]
        groups.append({**HOW, **values, "params": group["params"]})
    return {"state": dict(sorted(state.items())), "param_groups": groups}


# ---- from PyTorch ----


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
    """(name, shape, dtype) of each parameter, as far as they are known; `named` are the state's own names."""
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
    return [(name, None if t is None else list(t.shape), None if t is None else dtype_name(t.dtype))
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


def from_torch(state_dict, params, path, rule=None, names=None):
    """Writes a file of zro's.

    params: the optimizer's parameters in its order, or a model's state_dict, for shapes and types; None: as the state has them.
    rule: zro's name of it; None: guessed by the groups' keys.
    names: of the parameters; None: the state's param_names, or those of `params`, if it is a dict.
    """
    from safetensors.torch import save_file

    rule = rule or guess_rule(state_dict["param_groups"])
    if rule is None:
        raise StateError("what rule this is the state of cannot be guessed: name it (--rule)")
    rule = rule.lower()
    groups, n, named = plain_groups(state_dict, rule)
    about_params, tensors, steps = [], {}, 0
    for i, (name, shape, dtype) in enumerate(known_params(params, names, n, named)):
        slots = {k: v for k, v in state_dict["state"].get(i, {}).items() if v is not None}
        if shape is None:
            shape, dtype = shape_from_state(i, slots, dtype)
        about_params.append({"name": name, "shape": shape, "dtype": dtype})
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
    back = commands.add_parser("from-torch", help="PyTorch's state_dict becomes a file of zro's")
    back.add_argument("state")
    back.add_argument("out")
    back.add_argument("--rule", help="zro's name of it; without, it is guessed")
    back.add_argument("--params", help="a model's state_dict, .pt or .safetensors, for shapes, types and names")
    back.add_argument("--names", help="a JSON list of the names of the optimizer's parameters, in its order")
    args = parser.parse_args()
    try:
        import torch

        if args.command == "to-torch":
            torch.save(to_torch(args.state, args.masters), args.out)
            return 0
        names = None
        if args.names is not None:
            with open(args.names, encoding="utf-8") as file:
                names = json.load(file)
        state_dict = torch.load(args.state, map_location="cpu", weights_only=True)
        from_torch(state_dict, load_params(args.params), args.out, args.rule, names)
    except (StateError, OSError, ImportError) as error:
        print(f"zro_state.py: {error}", file=sys.stderr)
        return 1
    except Exception as error:  # what torch and safetensors raise for files that are none of theirs
        print(f"zro_state.py: {args.state} or {args.out}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
