"""`ZeroRedundancyOptimizer`: torch's class, by isinstance and by all its attributes, that steps and communicates by zro.

Torch's constructor, partition, parameter groups and local optimizer (`self.optim`, a real torch optimizer of this rank's parameters)
stay as they are.  What is replaced is what costs time: the update, the exchange of parameters, and consolidation.

A `Part` is a zro optimizer of some parameters whose owners are those of torch's partition.  There is one Part for all parameters
(with hooks, one per bucket: hooks.py).  It is made at the first call that all ranks make anyway, since torch's constructor does not
communicate.  There are two ways to update:

  - by a rule of zro, if the optimizer's class is exactly one of those in RULES, with options that zro has, for dense f32 and f64
    parameters.  State lives in zro's memory, and `self.optim.state` has tensors that are views of it.
  - in Python otherwise: `self.optim` steps as it does in torch, and zro brings what it has changed to all ranks.
"""
import ctypes
import io
import logging
import pickle
import warnings
from operator import attrgetter
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import torch
import torch.distributed.optim
from torch import Tensor
from torch.distributed.algorithms.join import Join
from torch.distributed.optim.utils import functional_optim_map
from torch.optim import Optimizer

from .. import _c
from .._c import byref, lib
from ._groups import Handle, group_of
from .ddp import Attachment, check_ended
from ._tensors import FROM_ZRO, DTYPES, Homes, Table, at_address, group_struct, in_order_of, is_dense, number_at

logger = logging.getLogger(__name__)

_Torch = torch.distributed.optim.ZeroRedundancyOptimizer

CLASSES = ("SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "Adamax", "RMSprop", "Rprop", "ASGD", "NAdam", "RAdam")
RULES = {getattr(torch.optim, name): name for name in CLASSES}
_requires_grad = attrgetter("requires_grad")
TAKE_SPARSE = ("SGD", "Adagrad")  # classes of torch's that step with sparse gradients


class Rule:
    """A rule of zro's under torch's names: where its values are in a parameter group, and its slots."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.table = lib.zro_rule_find(name)
        rule = self.table.contents
        self.values: List[Tuple[str, int]] = []  # key in a group, and the place in a tuple there (-1: it is no tuple)
        for hyper in rule.hypers[:rule.n_hypers]:
            key, _, place = (hyper.torch or hyper.name).decode().partition(":")
            self.values.append((key, int(place) if place else -1))
        self.init = [hyper.init for hyper in rule.hypers[:rule.n_hypers]]
        self.slots = [slot.name.decode() for slot in rule.slots[:rule.n_slots]]
        names = [hyper.name for hyper in rule.hypers[:rule.n_hypers]]
        self._only_with = [names.index(slot.only_with) if slot.only_with else -1 for slot in rule.slots[:rule.n_slots]]
        self.arrays = {slot.name.decode() for slot in rule.slots[:rule.n_slots] if slot.kind == _c.ZRO_SLOT_ARRAY}

    def needed(self, values: Sequence[float]) -> Tuple[bool, ...]:
        """Which slots a parameter has with these values."""
        return tuple(i < 0 or values[i] != 0 for i in self._only_with)

    def read(self, group: Dict[str, Any]) -> Tuple[float, ...]:
        """A group's values as zro wants them; ValueError if zro cannot step with them."""
        if group.get("differentiable") or group.get("capturable"):
            raise ValueError("differentiable or capturable")
        values = []
        for (key, place), init in zip(self.values, self.init):
            value = group.get(key, init) if place < 0 or key not in group else group[key][place]
            values.append(float(value))
        return tuple(values)


class Part:
    """A zro optimizer of some parameters.  Making it, and adding a group to it, is collective."""

    def __init__(self, zero: "ZeroRedundancyOptimizer", rule: Optional[Rule], groups: Sequence[Sequence[Tensor]],
                 numbers: Sequence[int]) -> None:
        self.zero, self.rule = zero, rule
        self.group = group_of(zero.process_group)
        self.numbers = list(numbers)  # of zero's parameter groups that this part's groups belong to
        self.tables: List[Table] = []
        self.params: List[Tensor] = []  # by index in the zro optimizer
        self.last_values: List[Optional[Tuple[float, ...]]] = []
        self._keeps: List[Any] = []  # what the library has addresses of
        structs = (_c.zro_param_group * len(groups))()
        for i, params in enumerate(groups):
            structs[i] = self._add(params, numbers[i])
        config = _c.new(_c.zro_optim_config, masters=_c.ZRO_OFF)
        plan = _c.new(_c.zro_plan_config, partition=_c.ZRO_PARTITION_GIVEN)
        config.plan = ctypes.pointer(plan)
        zero._configure(config)
        table = rule.table if rule is not None else lib.zro_rule_none()
        self.handle = Handle(_c.make(lib.zro_optim_create, self.group, structs, len(groups), table, None, byref(config)),
                             lib.zro_optim_destroy, self.group, self._keeps)
        self.values = (ctypes.c_double * max(len(rule.values) if rule else 0, 1))()

    def _add(self, params: Sequence[Tensor], number: int) -> Any:
        """The struct of one more group."""
        zero = self.zero
        owners = [zero._param_to_rank[p] for p in params]
        table, indices = zero._table_of(params, owners)
        if table is None:
            homes = Homes(self.group, params, owners) if zero.parameters_as_bucket_view and params else None
            table, indices = Table(params, homes), None
            self.tables.append(table)
        struct, keeps = group_struct(table, owners, indices)
        self._keeps.append(keeps)
        if self.rule is not None and params:
            struct.values, struct.n_values, values = self._named_values(number)
            self._keeps.append(values)
        self.last_values.append(None)
        self.params.extend(params)
        return struct

    def _named_values(self, number: int) -> Any:
        values = self.rule.read(self.zero._rule_group(number))
        hypers = self.rule.table.contents.hypers
        array = (_c.zro_value * len(values))(*((hypers[i].name, value) for i, value in enumerate(values)))
        return array, len(values), array

    def add_group(self, params: Sequence[Tensor], number: int) -> None:
        """Adds a parameter group; collective."""
        self.numbers.append(number)
        lib.zro_optim_add_param_group(self.handle, byref(self._add(params, number)))

    # ---- values, data, gradients ----

    def set_values(self) -> List[int]:
        """Tells zro which values have changed since the last step; returns the groups whose parameters have other slots now."""
        changed = []
        for k, number in enumerate(self.numbers):
            values = self.rule.read(self.zero._rule_group(number))
            if values != self.last_values[k]:
                self.values[:] = values
                lib.zro_optim_set_values(self.handle, k, self.values, len(values))
                last, self.last_values[k] = self.last_values[k], values
                if last is not None and self.rule.needed(last) != self.rule.needed(values):
                    changed.append(k)
        return changed

    def refresh(self) -> None:
        """Tells zro where parameters and gradients are."""
        for table in self.tables:
            table.refresh_data()
            table.refresh_grads(self.zero._take_sparse)

    def refresh_data(self) -> None:
        for table in self.tables:
            table.refresh_data()

    # ---- state ----

    def state_of(self, index: int) -> Dict[str, Tensor]:
        """This rank's state of a parameter, as views of zro's memory; empty if there is none."""
        slot, state, like = _c.zro_slot(), {}, self.params[index]
        for name in self.rule.slots:
            lib.zro_optim_slot(self.handle, index, name, byref(slot))
            if slot.present:
                state[name] = (at_address(slot.data, like, FROM_ZRO[slot.dtype], self.handle) if name in self.rule.arrays
                               else number_at(slot.data, self.handle))
        return state

    def load(self, index: int, state: Dict[str, Any]) -> None:
        """Takes over a parameter's state in torch's form; slots that it does not have become absent."""
        for name in self.rule.slots:
            value = state.get(name)
            if value is None:
                lib.zro_optim_set_slot(self.handle, index, name, _c.ZRO_F64, None)
                continue
            value = torch.as_tensor(value)
            if value.layout is not torch.strided:
                value = value.to_dense()
            if name not in self.rule.arrays:
                value = value.detach().to(torch.float64).reshape(())
            else:
                like = self.params[index]
                if value.shape != like.shape:
                    raise ValueError(f"the state {name!r} of a parameter of shape {tuple(like.shape)} has shape {tuple(value.shape)}")
                value = in_order_of(like, value.detach().to("cpu", like.dtype))
            lib.zro_optim_set_slot(self.handle, index, name, DTYPES[value.dtype], value.data_ptr())


class ZeroRedundancyOptimizer(_Torch):
    """torch.distributed.optim.ZeroRedundancyOptimizer on zro: the same arguments, attributes and results, on CPUs.

    Two things are different from torch's class.  With ``parameters_as_bucket_view=True`` parameters move at the first step, into memory
    that the ranks of a machine share; that is the fastest setting.  ``load_state_dict`` copies what it is given, and leaves it as it
    is.  docs/pytorch.md has the rest.

    Settings of zro's own, all by name.  ddp: a zro.torch.DistributedDataParallel made with attached=True, whose gradients the step averages,
    in the pass over memory that updates.  clip_norm, clip_norm_type, clip_value: gradients are clipped in the step, after they were
    averaged and unscaled.  skip_non_finite: a step with a gradient that is NaN or infinite changes nothing.  loss_scale: True, or the
    first scale: the loss scale is dynamic, and the program multiplies the loss by `optimizer.loss_scale`.
    """

    def __init__(self, params: Any, optimizer_class: Any, process_group: Any = None, parameters_as_bucket_view: bool = False,
                 overlap_with_ddp: bool = False, *, ddp: Any = None, clip_norm: float = 0.0, clip_norm_type: float = 2.0,
                 clip_value: float = 0.0, skip_non_finite: bool = False, loss_scale: Union[bool, float] = False,
                 **defaults: Any) -> None:
        self._parts: List[Part] = []  # of all ranks alike; none before the first call that is collective
        self._rule: Optional[Rule] = None
        self._shown: Any = None  # the dict `self.optim.state` whose entries are those of the parts
        self._bare: Dict[int, List[Tuple[Part, int]]] = {}  # by group: parameters of this rank that may have state without a view
        self._settings = {"clip_norm": clip_norm, "clip_norm_type": clip_norm_type, "clip_value": clip_value,
                          "skip_non_finite": int(skip_non_finite), "loss_scale": int(bool(loss_scale)),
                          "scale_init": 65536.0 if isinstance(loss_scale, bool) else float(loss_scale)}
        self._attachment = Attachment(ddp, self) if ddp is not None else None
        super().__init__(params, optimizer_class, process_group=process_group,
                         parameters_as_bucket_view=parameters_as_bucket_view, overlap_with_ddp=overlap_with_ddp, **defaults)
        for number, param in enumerate(self._all_params):
            if param.device.type != "cpu":
                raise ValueError(f"parameter {number} is on device {param.device}, and zro.torch works on CPUs; use "
                                 "torch.distributed.optim.ZeroRedundancyOptimizer there")

    # ---- making it ----

    def _build_param_buckets(self) -> None:
        """Parameters move into shared memory when the zro optimizer is made, which is collective; freezing moves none."""

    def _build_ddp_param_buckets(self) -> None:
        """Assigns buckets to ranks.  Parameters stay where they are: zro delivers them from there."""
        _ = self._bucket_assignments_per_rank

    def _init_local_optimizer(self) -> None:
        """Makes the local optimizer, without torch's warning about TorchScript, which no filter stops and which is not used here."""
        with warnings.catch_warnings(record=True) as caught:
            super()._init_local_optimizer()
        for each in caught:
            if "TorchScript" not in str(each.message):
                warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)

    def _table_of(self, params: Sequence[Tensor], owners: Sequence[int]) -> Tuple[Optional[Table], Optional[List[int]]]:
        """A table that has these parameters already, and their indices there; (None, None): one is to be made."""
        return self._attachment.table_of(params, owners) if self._attachment is not None else (None, None)

    def _configure(self, config: Any) -> None:
        """Sets what the program has asked for, before a zro optimizer is made."""
        if self._rule is None:
            if any(self._settings[name] for name in ("clip_norm", "clip_value", "skip_non_finite", "loss_scale")):
                raise ValueError(f"clip_norm, clip_value, skip_non_finite and loss_scale need an update rule of zro's, and "
                                 f"{self._optim_constructor.__name__} with these options and parameters steps in Python")
            return
        for name, value in self._settings.items():
            setattr(config, name, value)
        if self._attachment is not None:
            self._attachment.configure(config)

    def _info(self) -> Any:
        info = _c.new(_c.zro_step_info)
        if self._parts:
            lib.zro_optim_info(self._parts[0].handle, byref(info))
        return info

    @property
    def loss_scale(self) -> float:
        """What the loss is multiplied by before backward; 1 without the setting loss_scale."""
        return self._info().scale if self._parts else self._settings["scale_init"] if self._settings["loss_scale"] else 1.0

    @property
    def grad_norm(self) -> float:
        """The norm of the last step's gradients, unscaled, before clipping; with the setting clip_norm (math.inf only measures)."""
        return self._info().norm

    @property
    def skipped(self) -> bool:
        """Whether the last step was skipped because a gradient was not finite."""
        return bool(self._info().skipped)

    def _rule_group(self, number: int) -> Dict[str, Any]:
        """The parameter group that has the values of a rule.

        Functional optimizers keep theirs elsewhere; what the program has set in its own groups goes before.
        """
        if not self._overlap_with_ddp:
            return self.optim.param_groups[number]
        own = {key: value for key, value in vars(self.optim).items() if isinstance(value, (bool, int, float, tuple))}
        own.update(getattr(self.optim, "defaults", {}))
        if "beta1" in own:
            own["betas"] = own["beta1"], own["beta2"]
        return {**own, **self.param_groups[number]}

    def _find_rule(self) -> Optional[Rule]:
        """The rule that the optimizer steps by, None if it steps in Python.  All ranks come to the same answer."""
        made_by = self._optim_constructor
        if self._overlap_with_ddp:
            made_by = next((kind for kind, functional in functional_optim_map.items() if functional is made_by), made_by)
        name = RULES.get(made_by)
        if name is None or not all(p.dtype in (torch.float32, torch.float64) and is_dense(p) for p in self._index_to_param):
            return None
        if name == "AdamW" and not all(group.get("decoupled_weight_decay", True) for group in self.param_groups):
            return None
        rule = Rule(name)
        try:
            for number in range(len(self.param_groups)):
                rule.read(self._rule_group(number))
        except (ValueError, TypeError, LookupError):
            return None
        return rule

    def _ready(self) -> Part:
        """Makes the zro optimizer if there is none, and adds the parameter groups that are new.  Collective when there is work."""
        if self._rule is not None and not self._overlap_with_ddp:
            try:
                for group in self.param_groups:
                    self._rule.read(group)
            except (ValueError, TypeError):
                self._fall_back()
        if not self._parts:
            self._sync_param_groups(self.param_groups, self.optim.param_groups)
            self._rule = self._find_rule()
            self._set_parts([Part(self, self._rule, [group["params"] for group in self.param_groups], range(len(self.param_groups)))])
        part = self._parts[0]
        while len(self._parts) == 1 and len(part.numbers) < len(self.param_groups):
            number, first = len(part.numbers), len(part.params)
            part.add_group(self.param_groups[number]["params"], number)
            self._adopt(part, range(first, len(part.params)))
        if self._rule is not None and self._shown is not self.optim.state:  # somebody has loaded a state into self.optim
            self._adopt_all()
        return part

    def _set_parts(self, parts: List[Part]) -> None:
        """Takes these parts, which have no state yet, instead of those before; state stays where it is, as owners do."""
        if self._rule is not None and self._parts:
            for state in self.optim.state.values():
                for name, value in state.items():
                    state[name] = value.clone() if isinstance(value, Tensor) else value
        self._parts = parts
        if self._rule is not None:
            self._adopt_all()

    def _adopt_all(self) -> None:
        self._shown, self._bare = self.optim.state, {}
        for part in self._parts:
            self._adopt(part, range(len(part.params)))

    def _adopt(self, part: Part, indices: Any) -> None:
        """Brings the state that `self.optim` has of some parameters to zro, and shows it as views."""
        if self._rule is None:
            return
        for index in indices:
            param = part.params[index]
            if self._param_to_rank[param] != self.rank:
                continue
            state = self._shown.get(param)
            if state:
                part.load(index, state)
            if not state or not self._show(part, index):
                self._bare.setdefault(id(part), []).append((part, index))

    def _show(self, part: Part, index: int) -> bool:
        """Makes the local optimizer's state of a parameter views of zro's memory; False if there is no state."""
        state = part.state_of(index)
        if state:
            self._shown.setdefault(part.params[index], {}).update(state)
        return bool(state)

    def _show_new(self, part: Part, changed: Sequence[int]) -> None:
        """After a step: shows the state of parameters that may have begun to have some."""
        if changed:
            self._bare[id(part)] = [(part, i) for i, p in enumerate(part.params) if self._param_to_rank[p] == self.rank]
        bare = self._bare.get(id(part))
        if not bare or not any(any(self._rule.needed(values)) for values in part.last_values if values is not None):
            return
        given = self._attachment is not None or self._overlap_with_ddp  # then gradients are elsewhere
        self._bare[id(part)] = [(p, i) for p, i in bare if (p.params[i].grad is None and not given) or not self._show(p, i)]

    # ---- steps ----

    def _take_sparse(self, index: int, grad: Tensor) -> Tensor:
        name = self._rule.name
        if name not in TAKE_SPARSE:
            raise RuntimeError(f"{name} does not support sparse gradients, please consider SparseAdam instead")
        return grad.to_dense()

    def _check_trainable(self) -> None:
        mask = list(map(_requires_grad, self._all_params))
        if mask != self._is_trainable_mask:
            logger.warning("ZeroRedundancyOptimizer detected that the trainable parameters changed")
            self._is_trainable_mask = mask

    def _fall_back(self) -> None:
        """Goes on in Python, with the state as it is, when values are set that zro's rule does not have."""
        for state in self._shown.values():
            for name, value in state.items():
                if isinstance(value, Tensor):
                    single = name not in self._rule.arrays
                    state[name] = value.to(_scalar_dtype()) if single else value.clone()
        self._rule, self._parts, self._bare, self._shown = None, [], {}, None

    def _update(self, publish: bool, closure: Optional[Callable[[], Any]], kwargs: Dict[str, Any]) -> Any:
        """One step.  What raises an exception on one rank makes the step fail on all of them."""
        check_ended(self._index_to_param)
        part = self._ready()
        changed: List[int] = []
        loss: List[Any] = [None]

        def compute() -> None:
            """What comes before gradients are averaged."""
            if self._rule is None:
                with torch.enable_grad():
                    loss[0] = closure() if closure is not None else None
                return
            Join.notify_join_context(self)
            self._check_trainable()
            self._sync_param_groups(self.param_groups, self.optim.param_groups)
            changed.extend(part.set_values())
            if closure is not None:
                with torch.enable_grad():
                    loss[0] = closure()
            part.refresh()

        def prepare(*_: Any) -> None:
            if self._attachment is not None:
                try:
                    compute()
                except BaseException:
                    self._attachment.refuse_step()
                    raise
                self._attachment.begin_step()
            elif self._rule is not None:
                compute()
            if self._rule is None:
                if self._attachment is None:
                    loss[0] = _Torch._local_step(self, closure=closure, **kwargs)
                else:
                    _Torch._local_step(self, **kwargs)
                part.refresh_data()
                for table in part.tables:
                    table.fill_shadows()

        if self._rule is not None and kwargs:
            raise TypeError(f"{self._rule.name}.step() got an unexpected keyword argument {next(iter(kwargs))!r}")
        callback = _c.Callback(_c.zro_closure_fn, prepare)
        with callback:
            if publish:
                lib.zro_optim_step_closure(part.handle, callback._as_parameter_, None, None, None)
            else:
                prepare()
                if self._rule is not None:
                    lib.zro_optim_step_local(part.handle, None)
        self._finish(part, changed, publish)
        return loss[0]

    def _finish(self, part: Part, changed: Sequence[int], published: bool) -> None:
        """After a step: tells autograd that parameters have changed, and shows new state."""
        for table in part.tables:
            if published:
                table.empty_shadows()
        torch.autograd.graph.increment_version(part.params)
        if self._rule is not None:
            self._show_new(part, changed)
            self._sync_param_groups(self.optim.param_groups, self.param_groups)

    def step(self, closure: Optional[Callable[[], Any]] = None, **kwargs: Any) -> Any:
        """Steps what this rank owns and brings it to all ranks: see torch's class."""
        if self._overlap_with_ddp:
            return super().step(closure, **kwargs)
        return self._update(True, closure, kwargs)

    def _local_step(self, gradients: Any = None, closure: Optional[Callable[[], Any]] = None, **kwargs: Any) -> Any:
        if gradients is not None or self._overlap_with_ddp:
            return super()._local_step(gradients, closure, **kwargs)
        return self._update(False, closure, kwargs)

    def _step_part(self, part: Part, grads: Sequence[Optional[Tensor]]) -> None:
        """Steps and publishes a part of the parameters with one gradient, or None, for each of them.  Collective.  For hooks."""
        table = part.tables[0]
        changed: List[int] = []
        table.refresh_data()
        if self._rule is not None:
            changed = part.set_values()
            table.set_grads(grads, self._take_sparse)
        else:
            by_param = dict(zip(part.params, grads))
            self.optim.step(gradients=[by_param.get(p) for p in self.optim.param_groups[0]["params"]])
            table.fill_shadows()
        lib.zro_optim_step(part.handle, None)
        self._finish(part, changed, True)

    def _sync_params(self) -> None:
        part = self._ready()
        part.refresh_data()
        for table in part.tables:
            table.fill_shadows()
        lib.zro_optim_publish(part.handle)
        for table in part.tables:
            table.empty_shadows()

    # ---- state ----

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Brings the state of all ranks to rank `to` of the process group, for `state_dict` there: see torch's class."""
        self._check_overlap_initialized()
        self._sync_param_groups(self.param_groups, self.optim.param_groups)
        self._ready()
        self._all_state_dicts = []  # before the new one is made, so that its memory is used again
        if self._rule is None:
            self._all_state_dicts = _gather(self._parts[0].group, self._local_state_dict(), to)
            return
        states: Dict[Tensor, Dict[str, Any]] = {}
        for part in self._parts:
            handle = Handle(_c.make(lib.zro_optim_consolidate, part.handle, to), lib.zro_state_destroy)
            if handle:
                _read_state(part, handle, states)
        self._all_state_dicts = self._state_dicts_of(states) if self.rank == to else []

    def _local_state_dict(self) -> Dict[str, Any]:
        """What `self.optim.state_dict()` returns, or would if it were not a functional optimizer."""
        if hasattr(self.optim, "state_dict"):
            return self.optim.state_dict()
        return self._state_dicts_of(self.optim.state)[self.rank]

    def _state_dicts_of(self, states: Dict[Tensor, Dict[str, Any]]) -> List[Dict[str, Any]]:
        """What each rank's `optim.state_dict()` would be."""
        dicts = []
        for rank_groups in self._partition_parameters():
            number, state, groups = 0, {}, []
            for own, group in zip(self.optim.param_groups, rank_groups):
                indices = range(number, number + len(group["params"]))
                number = indices.stop
                groups.append({**{key: value for key, value in own.items() if key != "params"}, "params": list(indices)})
                for index, param in zip(indices, group["params"]):
                    if param in states:
                        state[index] = states[param]
            dicts.append({"state": state, "param_groups": groups})
        return dicts

    def _check_shapes(self, states: Dict[int, Any]) -> None:
        """Refuses a state that does not belong to these parameters, on all ranks; its owner alone would notice later, in a step."""
        rule = self._rule if self._parts else self._find_rule()
        for index, state in states.items() if rule is not None else ():
            shape = self._index_to_param[index].shape
            for name in rule.arrays.intersection(state or ()):
                if isinstance(state[name], Tensor) and state[name].shape != shape:
                    raise ValueError(f"the state {name!r} of parameter {index} has shape {tuple(state[name].shape)}, and the parameter "
                                     f"{tuple(shape)}: load the state of an optimizer with the same parameters in the same order")

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Takes over a state, of torch's optimizers or of this one: see torch's class.  `state_dict` stays as it is."""
        self._check_overlap_initialized()
        self._check_shapes(state_dict["state"])
        Optimizer.load_state_dict(self, {**state_dict, "state": {}})
        if self._rule is not None and self._parts and self._shown is not self.optim.state:
            self._adopt_all()
        places = {p: (part, i) for part in self._parts for i, p in enumerate(part.params)} if self._rule is not None else {}
        for index, value in state_dict["state"].items():
            param = self._index_to_param[index]
            if self._param_to_rank.get(param) != self.rank or value is None:
                continue
            self.optim.state[param] = _copied(value)
            if param in places:
                part, i = places[param]
                part.load(i, value)
                self._show(part, i)
        self._sync_param_groups(state_dict["param_groups"], self.param_groups)
        self._sync_param_groups(self.param_groups, self.optim.param_groups)


def _copied(value: Any) -> Any:
    """A state of a parameter whose tensors are the caller's no more; single numbers are on the CPU."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: _copied(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_copied(entry) for entry in value)
    return value


def _scalar_dtype() -> torch.dtype:
    """The type of torch's single numbers in states ("step")."""
    return torch.float64 if torch.get_default_dtype() is torch.float64 else torch.float32


def _read_state(part: Part, handle: Handle, states: Dict[Tensor, Dict[str, Any]]) -> None:
    """A consolidated state by parameter, in torch's types; arrays are views of it."""
    slot, scalar, single = _c.zro_slot(), _scalar_dtype(), [name not in part.rule.arrays for name in part.rule.slots]
    names = [name.encode() for name in part.rule.slots]
    for index, param in enumerate(part.params):
        found = {}
        count = lib.zro_state_slots(handle, index)
        if count == 0:
            continue
        for name, raw, is_single in zip(part.rule.slots, names, single):
            lib.zro_state_slot(handle, index, raw, byref(slot))
            if slot.present:
                found[name] = (number_at(slot.data, handle).to(scalar) if is_single
                               else at_address(slot.data, param, FROM_ZRO[slot.dtype], handle))
        states[param] = found


# ---- states of optimizers that step in Python ----


class _Pickler(pickle.Pickler):
    """Pickles everything but tensors, which it collects."""

    def __init__(self, file: Any) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.tensors: List[Tensor] = []

    def persistent_id(self, obj: Any) -> Any:
        if type(obj) not in (Tensor, torch.nn.Parameter) or obj.layout is not torch.strided or obj.device.type != "cpu":
            return None
        self.tensors.append(obj.detach().contiguous())
        return len(self.tensors) - 1, obj.dtype, tuple(obj.shape)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, tensors: bytes, offset: int) -> None:
        super().__init__(file)
        self._tensors, self._offset = tensors, offset

    def persistent_load(self, pid: Any) -> Tensor:
        _, dtype, shape = pid
        tensor = torch.empty(shape, dtype=dtype)
        size = tensor.numel() * tensor.element_size()
        tensor.view(-1).view(torch.uint8).copy_(self._tensors[self._offset:self._offset + size])
        self._offset += size
        return tensor


def _gather(group: Any, obj: Any, to: int) -> List[Any]:
    """All ranks' objects on rank `to`, in their order; elsewhere an empty list.  Tensors travel as they are, the rest pickled."""
    text = io.BytesIO()
    pickler = _Pickler(text)
    pickler.dump(obj)
    head = torch.frombuffer(bytearray(text.getvalue()), dtype=torch.uint8)
    mine = torch.cat([head, *(tensor.view(-1).view(torch.uint8) for tensor in pickler.tensors if tensor.numel() > 0)])
    sizes = torch.tensor([head.numel(), mine.numel()], dtype=torch.int64)
    all_sizes = torch.empty(group.size, 2, dtype=torch.int64)
    lib.zro_all_gather(group, sizes.data_ptr(), all_sizes.data_ptr(), 2, _c.ZRO_I64)
    counts = (ctypes.c_size_t * group.size)(*all_sizes[:, 1].tolist())
    everything = torch.empty(sum(counts) if group.rank == to else 0, dtype=torch.uint8)
    lib.zro_gather_v(group, mine.data_ptr(), everything.data_ptr() or None, counts, _c.ZRO_U8, to)
    if group.rank != to:
        return []
    objects, first = [], 0
    for n_head, n_all in all_sizes.tolist():
        piece = everything[first:first + n_all]
        objects.append(_Unpickler(io.BytesIO(bytes(piece[:n_head].numpy())), piece, n_head).load())
        first += n_all
    return objects
