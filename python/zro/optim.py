"""Optimizers: rules, groups of parameters with values, steps, state as memory, plans, L-BFGS."""
from __future__ import annotations

import ctypes
import inspect
from typing import Any, Callable, Dict, Iterator, List, Mapping, MutableMapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy

from . import _c
from ._c import byref, lib, make, new
from ._core import Box, Handle, as_tuple, configure, constant, handles, query, sizes, stats, view
from .group import Group
from .params import PAIRS, Param, ParamGroups, Some, named_values, params_of
from .state import State

# ---- rules ----


class Rule:
    """An update rule with its values: `zro.adamw(lr=3e-4, betas=(0.9, 0.95))` is `zro.Rule("adamw", lr=3e-4, ...)`.

    Names, defaults and meanings are PyTorch's; values that come in pairs have one name each here (beta1), or both (betas).
    """

    def __init__(self, name: str, **values: Any) -> None:
        kind = getattr(_c, f"zro_{name}_config", None)
        self.table = lib.zro_rule_find(name)
        if kind is None or not self.table:
            raise ValueError(f"there is no rule {name!r}, only {', '.join(RULES)}")
        known = [field[0] for field in kind._fields_[2:]]
        flat = named_values(values)
        for value in flat:
            if value not in known:
                raise TypeError(f"rule {name} has no value {value!r}, only {', '.join(known)}")
        self.name = name
        self.struct = new(kind)
        for field, kind_ in kind._fields_[2:]:
            if field in flat:
                setattr(self.struct, field, flat[field] if kind_ is ctypes.c_double else int(flat[field]))
        self.values = {field: float(getattr(self.struct, field)) for field in known}

    def __repr__(self) -> str:
        return f"zro.{self.name}({', '.join(f'{name}={value:g}' for name, value in self.values.items())})"


def _rule(name: str) -> Callable[..., Rule]:
    """The function of a rule, which knows its keywords and defaults from the library."""

    def make_rule(**values: Any) -> Rule:
        return Rule(name, **values)

    make_rule.__name__ = make_rule.__qualname__ = name
    make_rule.__doc__ = f"The rule {name}; betas=(a, b) and the like may stand for pairs of values."
    keyword = inspect.Parameter.KEYWORD_ONLY
    make_rule.__signature__ = inspect.Signature([  # type: ignore[attr-defined]
        inspect.Parameter(value, keyword, default=default) for value, default in Rule(name).values.items()])
    return make_rule


RULES = ("sgd", "adam", "adamw", "adagrad", "adadelta", "adamax", "rmsprop", "rprop", "asgd", "nadam", "radam")
sgd, adam, adamw, adagrad, adadelta, adamax, rmsprop, rprop, asgd, nadam, radam = map(_rule, RULES)


def _check_rule(rule: Any, settings: Mapping[str, Any]) -> None:
    """Refuses what is not a rule, such as the name of one, and values of a rule that are given to the optimizer."""
    if rule is not None and not isinstance(rule, Rule):
        name = rule if isinstance(rule, str) else getattr(rule, "__name__", type(rule).__name__)
        known = name.lower() if name.lower() in RULES else "adamw"
        raise TypeError(f"{name!r} is not a rule; a rule is made by zro.{known}(lr=...)")
    for name in settings if rule is not None else ():
        if PAIRS.get(name, (name,))[0] in rule.values:
            raise TypeError(f"{name} is a value of the rule: zro.{rule.name}({name}=...)")


# ---- plans ----


class Range(NamedTuple):
    """Elements [first, first + count) of a parameter, and the rank that owns them."""

    param: int
    first: int
    count: int  # type: ignore[assignment]  # tuple has a method of this name
    group: int
    bucket: int
    owner: int


def _plan_config(settings: Dict[str, Any]) -> Any:
    """zro_plan_config from partition, shard_buckets and buckets, which are taken out of the settings."""
    fields: Dict[str, Any] = {name: settings.pop(name) for name in ("partition", "shard_buckets") if name in settings}
    buckets = settings.pop("buckets", None)
    config = configure(_c.zro_plan_config, fields)
    if buckets is not None:
        config.bucket_params = sizes(index for bucket in buckets for index in bucket)
        config.bucket_lengths = sizes(len(bucket) for bucket in buckets)
        config.n_buckets = len(buckets)
    return config


class Plan(Handle):
    """Which rank owns which elements, as a pure function of the parameters and the number of ranks.

    Settings are partition ("flat", "greedy", "buckets", "given"), shard_buckets, and buckets, lists of indices of parameters.
    """

    def __init__(self, groups: Any, ranks: int, **settings: Any) -> None:
        listed, config = ParamGroups(groups), _plan_config(settings)
        if settings:
            raise TypeError(f"there is no setting {next(iter(settings))!r}, only partition, shard_buckets, buckets")
        handle = make(lib.zro_plan_create, listed.structs, len(listed.structs), ranks, byref(config))
        self._box = Box(lib.zro_plan_destroy, handle)

    @classmethod
    def borrowed(cls, handle: int, box: Box) -> "Plan":
        """The plan of an optimizer, which owns it."""
        plan = cls.__new__(cls)
        plan._box = Box(lambda _: None, handle, box)
        return plan

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return lib.zro_plan_ranks(self.box)

    def elements(self, rank: Optional[int] = None) -> int:
        """How many elements a rank owns; without a rank: how many there are."""
        return lib.zro_plan_elements(self.box, _c.ZRO_ALL if rank is None else rank)

    def owner(self, param: int, element: int = 0) -> int:
        """The rank that owns an element of a parameter."""
        return query(lib.zro_plan_owner, ctypes.c_int, self.box, param, element)

    def ranges(self, rank: Optional[int] = None) -> List[Range]:
        """The ranges of a rank in packing order; without a rank: those of all ranks, by parameter and first element."""
        out, n = ctypes.POINTER(_c.zro_range)(), ctypes.c_size_t()
        lib.zro_plan_ranges(self.box, _c.ZRO_ALL if rank is None else rank, byref(out), byref(n))
        return [Range(*(getattr(out[i], name) for name in Range._fields)) for i in range(n.value)]


# ---- optimizers ----


class Values(MutableMapping[str, float]):
    """The values of one group of parameters: `optim.groups[0]["lr"] = 0.01`.  A change takes effect in the next step."""

    def __init__(self, optim: "Optimizer", group: int) -> None:
        self._optim, self._group = optim, group

    def __getitem__(self, name: str) -> Any:
        if name in PAIRS:
            return tuple(self[each] for each in PAIRS[name])
        if name not in list(self):
            raise KeyError(name)
        return query(lib.zro_optim_get_value, ctypes.c_double, self._optim.box, self._group, name)

    def __setitem__(self, name: str, value: Any) -> None:
        for each, number in named_values({name: value}).items():
            lib.zro_optim_set_value(self._optim.box, self._group, each, number)

    def __delitem__(self, name: str) -> None:
        raise TypeError("a value cannot be removed")

    def __iter__(self) -> Iterator[str]:
        return (lib.zro_optim_value_name(self._optim.box, i) for i in range(len(self)))

    def __len__(self) -> int:
        return lib.zro_optim_values(self._optim.box)

    def __repr__(self) -> str:
        return repr(dict(self))


class Slot(NamedTuple):
    """This rank's part of a parameter's state: elements of the parameter from `first` on; `data` shows the memory itself."""

    first: int
    data: numpy.ndarray


class Optimizer(Handle):
    """An optimizer (zro_optim); sharded over a group of ranks, if there is one.

    `params`: a Params; a list of its parameters; a dict or list of arrays; or, for several groups, dicts like PyTorch's:
    [{"params": ..., "lr": 0.1}, ...].  `rule`: zro.adamw(lr=...) and the like, or None: the program updates what it owns itself, and
    publish() brings it to all ranks.  Each owner uses its own gradients, so average them first, or attach the optimizer to a ddp.

    Settings are the fields of zro_optim_config: clip_norm, clip_norm_type, clip_value, skip_non_finite, loss_scale, scale_init,
    scale_growth, scale_backoff, growth_interval, masters, rounding ("nearest", "stochastic"), seed, parameters_as_bucket_view, overlap
    ("after_last", "interleaved"); of the plan: partition, shard_buckets, buckets; without a group of ranks also threads, kernels, ...

    Collective if it is sharded: the constructor, add_param_group, step, step_local, publish, publish_param, clip_grad_norm, grad_norm,
    consolidate, load, save, resume.  Everything else is local.
    """

    def __init__(self, params: Any, rule: Optional[Rule], group: Optional[Group] = None, ddp: Optional[Handle] = None,
                 **settings: Any) -> None:
        _check_rule(rule, settings)
        listed = ParamGroups(params)
        plan = _plan_config(settings)
        config = configure(_c.zro_optim_config, settings)
        config.plan = ctypes.pointer(plan)
        config.ddp = None if ddp is None else ddp._as_parameter_
        handle = make(lib.zro_optim_create, None if group is None else group.box, listed.structs, len(listed.structs),
                      lib.zro_rule_none() if rule is None else rule.table, None if rule is None else ctypes.addressof(rule.struct),
                      byref(config))
        self._kept: List[Any] = [listed, config, rule]
        self._box = Box(lib.zro_optim_destroy, handle, self._kept, None if group is None else group.box, None if ddp is None else ddp.box)
        self.rule, self.group = rule, group
        self.params: List[Param] = []  # by index, counted through the groups
        self._moves = bool(config.parameters_as_bucket_view)
        self._add(listed)

    def __repr__(self) -> str:
        if self.closed:
            return "<zro.Optimizer, closed>"
        ranks = "not sharded" if self.group is None else f"sharded over {self.plan.ranks} ranks"
        counts = [f"{n:,} {word}{'s' if n != 1 else ''}" for n, word in ((len(self.groups), "group"), (len(self.params), "parameter"),
                                                                       (sum(param.size for param in self.params), "element"))]
        return f"<zro.Optimizer {'without a rule' if self.rule is None else self.rule.name}, {', '.join(counts)}, {ranks}>"

    def _add(self, listed: ParamGroups) -> None:
        self.params += listed.params
        for params in listed.lists if self._moves else ():
            params.moved_by(self.box)

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Adds {"params": ..., and values}.  The owners of earlier parameters do not change."""
        listed = ParamGroups(dict(group))
        lib.zro_optim_add_param_group(self.box, listed.structs)
        self._kept.append(listed)
        self._add(listed)

    # ---- steps ----

    def step(self, closure: Optional[Callable[[], float]] = None) -> Optional[float]:
        """One step for all parameters that have a gradient.

        `closure` computes gradients first and returns the loss, which step returns; if it raises, no rank is stepped.
        """
        if closure is None:
            lib.zro_optim_step(self.box, None)
            return None
        with _closure(closure) as callback:
            return query(lib.zro_optim_step_closure, ctypes.c_double, self.box, callback, None, None)

    def step_local(self) -> None:
        """The first half of a step: updates what this rank owns."""
        lib.zro_optim_step_local(self.box, None)

    def publish(self) -> None:
        """The second half: brings what the owners have to all ranks."""
        lib.zro_optim_publish(self.box)

    def publish_param(self, param: Union[None, str, int, Param] = None, root: int = 0) -> None:
        """Makes a write of the program known: all ranks get root's values of a parameter, or of all of them."""
        lib.zro_param_publish(self.box, _c.ZRO_ALL_PARAMS if param is None else self.index(param), root)

    def zero_grad(self, how: str = "clear") -> None:
        """Gradients become absent, and are filled with zeros ("clear") or left as they are ("leave"); "keep": zeros, still present."""
        lib.zro_optim_zero_grad(self.box, constant("zero_grad", how))

    def clip_grad_norm(self, max_norm: float, norm_type: float = 2.0) -> float:
        """Clips the gradients as they are now, and returns their norm before."""
        return query(lib.zro_clip_grad_norm, ctypes.c_double, self.box, max_norm, norm_type)

    def clip_grad_value(self, max_value: float) -> None:
        """Holds the gradients within +-max_value."""
        lib.zro_clip_grad_value(self.box, max_value)

    def grad_norm(self, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> float:
        """The norm over all gradients as they are now, which stay as they are."""
        return query(lib.zro_optim_grad_norm, ctypes.c_double, self.box, norm_type, int(error_if_nonfinite))

    # ---- values and state ----

    @property
    def groups(self) -> List[Values]:
        """The values of each group, to be read and set."""
        return [Values(self, group) for group in range(lib.zro_optim_groups(self.box))]

    def index(self, param: Union[str, int, Param]) -> int:
        """A parameter's index, counted through the groups."""
        if isinstance(param, int):
            return param
        for index, each in enumerate(self.params):
            if each is param or each.name == param:
                return index
        raise ValueError(f"the optimizer has no parameter {param!r}")

    @property
    def slots(self) -> Tuple[str, ...]:
        """The names of the rule's slots, such as "exp_avg"."""
        return tuple(lib.zro_optim_slot_name(self.box, i) for i in range(lib.zro_optim_slots(self.box)))

    def slot(self, param: Union[str, int, Param], name: str) -> Optional[Slot]:
        """This rank's part of a slot, to be read and written between steps; None if it is absent."""
        out = _c.zro_slot()
        lib.zro_optim_slot(self.box, self.index(param), name, byref(out))
        return Slot(out.first, view(out.data, (out.count,), out.dtype, self.box)) if out.present else None

    @property
    def plan(self) -> Plan:
        """Which rank owns what; valid until a group is added."""
        return Plan.borrowed(lib.zro_optim_plan(self.box), self.box)

    def info(self) -> Any:
        """What the last step found, and the loss scale, as a named tuple (zro_step_info)."""
        out = new(_c.zro_step_info)
        lib.zro_optim_info(self.box, byref(out))
        return as_tuple(out)

    @property
    def scale(self) -> float:
        """The loss scale: multiply the loss, or its gradient, by it before backward; 1 without one."""
        return self.info().scale

    def set_scale(self, scale: float, growth_tracker: int = 0) -> None:
        """Sets the loss scale, in order to resume another run."""
        lib.zro_optim_set_scale(self.box, scale, growth_tracker)

    def stats(self) -> Any:
        """Statistics of the group that the optimizer works on, as a named tuple (zro_stats)."""
        return stats(lib.zro_optim_stats, self.box)

    def describe(self) -> str:
        """A text that helps to find out why an optimizer is slow."""
        text = ctypes.create_string_buffer(lib.zro_optim_describe(self.box, None, 0) + 1)
        lib.zro_optim_describe(self.box, text, len(text))
        return text.value.decode()

    def consolidate(self, to: Optional[int] = None, data: bool = False) -> Optional[State]:
        """The whole state, on rank `to` (None on the others) or on all ranks; data=True: with the data of the parameters."""
        call = lib.zro_optim_consolidate_with_data if data else lib.zro_optim_consolidate
        handle = make(call, self.box, _c.ZRO_ALL if to is None else to)
        return None if handle is None else State.owned(handle)

    def load(self, state: State) -> None:
        """Takes over values and state, from any number of ranks and any plan; every rank passes the same state."""
        lib.zro_optim_load(self.box, state.box)

    # ---- save and resume ----

    def save(self, path: Any, schedules: Sequence[Handle] = (), numbers: Optional[Mapping[str, float]] = None) -> None:
        """Everything that a training needs in order to go on, in one safetensors file, written by rank 0.

        `schedules`: those of this optimizer that were not taken over by others.  `numbers`: the program's own, such as the epoch.
        """
        lib.zro_optim_save(self.box, path, byref(_save_config(schedules, numbers or {})))

    def resume(self, path: Any, schedules: Sequence[Handle] = (), numbers: Sequence[str] = ()) -> Dict[str, float]:
        """Goes on from such a file, on any number of ranks and with any plan; returns the numbers under these names."""
        config = _save_config(schedules, dict.fromkeys(numbers, 0.0))
        lib.zro_optim_resume(self.box, path, byref(config))
        return {config.numbers[i].name.decode(): config.numbers[i].value for i in range(config.n_numbers)}


def _closure(function: Callable[[], float]) -> Any:
    def call(_: Any, loss: Any) -> None:
        loss[0] = float(function())

    return _c.Callback(_c.zro_closure_fn, call)


def _save_config(schedules: Sequence[Handle], numbers: Mapping[str, float]) -> Any:
    config = new(_c.zro_save_config)
    config.schedules, config.n_schedules = handles(schedules), len(schedules)
    config.numbers = (_c.zro_value * len(numbers))(*(_c.zro_value(name.encode(), value) for name, value in numbers.items()))
    config.n_numbers = len(numbers)
    return config


class Lbfgs(Handle):
    """L-BFGS with PyTorch's numbers, in one process (zro_lbfgs).

    Settings are the fields of zro_lbfgs_config: lr, max_iter, max_eval, tolerance_grad, tolerance_change, history_size, strong_wolfe.
    """

    def __init__(self, params: Some, **settings: Any) -> None:
        self.params, index = params_of(params)
        if index != list(range(len(self.params))):
            raise ValueError("Lbfgs takes all parameters of a zro.Params")
        config = configure(_c.zro_lbfgs_config, settings)
        handle = make(lib.zro_lbfgs_create, self.params.array, len(self.params), byref(config))
        self._box = Box(lib.zro_lbfgs_destroy, handle, self.params, config)

    def step(self, closure: Callable[[], float]) -> float:
        """`closure` computes gradients and returns the loss, several times; returns the loss at the beginning of the step."""
        with _closure(closure) as callback:
            return query(lib.zro_lbfgs_step, ctypes.c_double, self.box, callback, None)

    @property
    def evaluations(self) -> int:
        """How often the closure was called, over all steps."""
        return lib.zro_lbfgs_evaluations(self.box)

    @property
    def iterations(self) -> int:
        """The number of iterations, over all steps."""
        return lib.zro_lbfgs_iterations(self.box)
