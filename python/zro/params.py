"""Parameters: named arrays with gradients beside them, where the program has them or where zro hands them out."""
from __future__ import annotations

import ctypes
import weakref
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import numpy

from . import _c
from ._c import byref, lib
from ._core import Box, Handle, address_of, configure, constant, dense, dtype_number, numpy_dtype, query, view
from .group import Group

Array = numpy.ndarray
Shape = Union[int, Tuple[int, ...]]


class Param:
    """One parameter (zro_param): `data`, and `grad`, which counts if `has_grad`."""

    def __init__(self, params: "Params", index: int) -> None:
        self.params, self.index, self.struct = params, index, params.array[index]
        self.shape = tuple(self.struct.shape[:self.struct.n_dims])
        self._data: Optional[Array] = None
        self._grad: Optional[Array] = None

    @property
    def name(self) -> str:
        """Its name; without one, its index."""
        return str(self.index) if self.struct.name is None else self.struct.name.decode()

    @property
    def dtype(self) -> numpy.dtype:
        """The type of its elements; bf16 is uint16 where ml_dtypes is not imported."""
        return numpy_dtype(self.struct.dtype)

    def _show(self, what: str, number: int) -> Optional[Array]:
        """The program's own array, if data or grad is still there; otherwise memory of the library's."""
        address, own = getattr(self.struct, what), getattr(self, "_" + what)
        if address is None and self.size:
            return None
        if own is not None and address == address_of(own):
            return own
        return view(address, self.shape, number, self.params.owners())

    def _is_own(self, what: str) -> bool:
        """Whether the program may put its own array there: zro has not handed it out or moved it."""
        address, own = getattr(self.struct, what), getattr(self, "_" + what)
        return address is None or (own is not None and address == address_of(own))

    @property
    def data(self) -> Array:
        """The values.  Setting puts another array there, or copies it into memory that zro has handed out."""
        found = self._show("data", self.struct.dtype)
        if found is None:
            raise _c.StateError(f"parameter {self.name} has no data any more: its memory was given back")
        return found

    @data.setter
    def data(self, array: Array) -> None:
        if self._is_own("data"):
            _check(f"data of parameter {self.name}", dense(f"data of parameter {self.name}", array), self.shape, self.struct.dtype)
            self._data, self.struct.data = array, address_of(array)
        elif array is not self.data:
            _check_shape(f"data of parameter {self.name}", array, self.shape)
            self.data[...] = array

    @property
    def grad(self) -> Optional[Array]:
        """The memory of the gradient, None if it has none.  Setting an array makes it the gradient, or copies it into memory that zro
        has handed out; it is present then, and it is absent after None was set."""
        return self._show("grad", self.grad_number)

    @grad.setter
    def grad(self, array: Optional[Array]) -> None:
        if array is None:
            if self._is_own("grad"):
                self._grad, self.struct.grad = None, None
            self.has_grad = False
            return
        if self._is_own("grad"):
            if array is not self._grad:
                array = numpy.require(array, numpy_dtype(self.grad_number), ["C", "A"])
                _check(f"gradient of parameter {self.name}", array, self.shape, self.grad_number)
                self._grad, self.struct.grad = array, address_of(array)
        else:
            kept = self.grad
            if kept is not None and array is not kept:
                _check_shape(f"gradient of parameter {self.name}", array, self.shape)
                kept[...] = array
        self.has_grad = True

    @property
    def grad_number(self) -> int:
        """zro's number of the gradient's type."""
        return self.struct.dtype if self.struct.grad_dtype == _c.ZRO_SAME else self.struct.grad_dtype

    @property
    def has_grad(self) -> bool:
        """Whether the gradient is present: a step leaves a parameter without one as it is."""
        return bool(self.struct.grad_present)

    @has_grad.setter
    def has_grad(self, present: bool) -> None:
        self.struct.grad_present = int(present)

    @property
    def requires_grad(self) -> bool:
        """False: the parameter is frozen, as if it never had a gradient."""
        return bool(self.struct.requires_grad)

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        self.struct.requires_grad = int(wanted)

    @property
    def size(self) -> int:
        """The number of its elements."""
        return lib.zro_param_count(byref(self.struct))

    def __repr__(self) -> str:
        return f"<zro.Param {self.name}, {lib.zro_dtype_name(self.struct.dtype)} {self.shape}{', has_grad' if self.has_grad else ''}>"


def _check_shape(what: str, array: Any, shape: Tuple[int, ...]) -> None:
    """Refuses what NumPy would repeat in order to fill the memory, such as a single number."""
    if numpy.shape(array) != shape:
        raise ValueError(f"{what} has shape {numpy.shape(array)}, must be {shape}")


def _check(what: str, array: Array, shape: Tuple[int, ...], number: int) -> None:
    _check_shape(what, array, shape)
    if array.dtype not in (numpy_dtype(number), numpy.uint16 if number == _c.ZRO_BF16 else None):
        raise TypeError(f"{what} has type {array.dtype}, must be {lib.zro_dtype_name(number)}")


def _named(values: Any) -> List[Tuple[Optional[str], Any]]:
    return list(values.items()) if isinstance(values, Mapping) else [(None, value) for value in values]


class Params(Handle, Sequence[Param]):
    """A list of parameters: `params[0]`, `params["w"]`.

    `Params({"w": w, "b": b})`, or a list without names, leaves the arrays where they are; zro updates them in place.  `grads` are the
    gradients in the same order or under the same names (they count as present), or True: arrays of zeros are made.  `dtype` says what
    the elements are if NumPy cannot ("bf16" in arrays of uint16), `grad_dtype` what those of gradients will be.
    """

    def __init__(self, arrays: Union[Mapping[str, Array], Iterable[Array]], grads: Any = None, dtype: Any = None,
                 grad_dtype: Any = None) -> None:
        named = _named(arrays)
        self._fill([(name, array.shape, dtype_number(array.dtype if dtype is None else dtype)) for name, array in
                    ((name, dense(f"parameter {index if name is None else name}", array)) for index, (name, array) in
                     enumerate(named))], grad_dtype)
        self._box = Box(lambda _: None, None)
        for param, (_, array) in zip(self, named):
            param.data = array
        if grads is True:
            for param in self:
                param.grad, param.has_grad = numpy.zeros(param.shape, numpy_dtype(param.grad_number)), False
        elif grads is not None:
            for key, value in (grads.items() if isinstance(grads, Mapping) else enumerate(grads)):
                self[key].grad = value

    def _fill(self, described: Sequence[Tuple[Optional[str], Tuple[int, ...], int]], grad_dtype: Any) -> None:
        self.array = (_c.zro_param * len(described))()
        self.movers: List[Any] = []  # weak references to handles that may have moved data or gradients
        for struct, (name, shape, number) in zip(self.array, described):
            if len(shape) > _c.ZRO_MAX_DIMS:
                raise ValueError(f"parameter {name} has {len(shape)} dimensions, at most {_c.ZRO_MAX_DIMS} are possible")
            lib.zro_param_init(byref(struct))
            struct.name, struct.dtype, struct.n_dims = None if name is None else name.encode(), number, len(shape)
            struct.grad_dtype = _c.ZRO_SAME if grad_dtype is None else dtype_number(grad_dtype)
            struct.shape[:len(shape)] = shape
        self._params = [Param(self, index) for index in range(len(described))]
        self._names = {param.name: param for param in reversed(self._params)}

    @classmethod
    def alloc(cls, group: Group, shapes: Union[Mapping[str, Shape], Iterable[Shape]], dtype: Any = "f32", grad_dtype: Any = None,
              data_kind: str = "once", grads: bool = True) -> "Params":
        """Data and gradients in group memory, zeroed, where zro is fastest (zro_params_alloc).  Collective.

        data_kind="once": the data exists once per machine, and takes 1/N of the memory; only one rank writes it between two barriers,
        and a write after an optimizer was made becomes known by Optimizer.publish_param.  "each": once per rank.  A close(), or the
        end of the `with` block, gives the memory back when no array shows it any more.
        """
        number = dtype_number(dtype)
        params = cls.__new__(cls)
        params._fill([(name, (shape,) if isinstance(shape, int) else tuple(shape), number) for name, shape in _named(shapes)], grad_dtype)
        config = configure(_c.zro_alloc_config, {"grads": grads, "data_kind": data_kind})
        lib.zro_params_alloc(group.box, params.array, len(params), byref(config))
        array, n = params.array, len(params)
        params._box = Box(lambda _: lib.zro_params_free(array, n), None)
        return params

    def __len__(self) -> int:
        return len(self._params)

    def __iter__(self) -> Iterator[Param]:
        return iter(self._params)

    def __getitem__(self, key: Any) -> Any:
        return self._names[key] if isinstance(key, str) else self._params[key]

    def __repr__(self) -> str:
        return f"<zro.Params, {len(self)} of {sum(param.size for param in self):,} elements>"

    def owners(self) -> Tuple[Any, ...]:
        """What must live as long as an array that shows data or gradients."""
        return (self._box, *filter(None, (mover() for mover in self.movers)))

    def moved_by(self, box: Box) -> None:
        """Notes that a handle may have moved data or gradients into memory of its own."""
        self.movers = [mover for mover in self.movers if mover() is not None] + [weakref.ref(box)]

    def mark_grads(self) -> None:
        """Says after a backward that has computed all gradients that they are present: those that have memory."""
        lib.zro_params_mark_grads(self.array, len(self))

    def all_reduce(self, group: Group, op: str = "avg") -> None:
        """Reduces all gradients in one call; one that some ranks do not have counts as zeros there.  Collective."""
        lib.zro_params_all_reduce(group.box, self.array, len(self), constant("op", op))

    def hash(self) -> int:
        """One number computed from all values: two runs that print it after every step can be compared."""
        return query(lib.zro_params_hash, ctypes.c_uint64, self.array, len(self))


Some = Union[Params, Iterable[Param], Mapping[str, Array], Iterable[Array]]


def params_of(some: Some) -> Tuple[Params, List[int]]:
    """A list of parameters and which of them are meant: all of a Params, some Params' parameters, or arrays."""
    if isinstance(some, Params):
        return some, list(range(len(some)))
    listed: Any = some if isinstance(some, Mapping) else list(some)
    if isinstance(listed, list) and listed and all(isinstance(each, Param) for each in listed):
        if any(each.params is not listed[0].params for each in listed):
            raise ValueError("the parameters of one group must be from one zro.Params")
        return listed[0].params, [each.index for each in listed]
    made = Params(listed)
    return made, list(range(len(made)))


class ParamGroups:
    """zro_param_group structs made of Params, or of dicts like PyTorch's: {"params": ..., "lr": 0.1}."""

    def __init__(self, groups: Any) -> None:
        if isinstance(groups, dict) and "params" in groups:
            groups = [groups]
        listed = groups if isinstance(groups, (Params, Mapping)) else list(groups)
        is_dicts = isinstance(listed, list) and bool(listed) and all(isinstance(each, Mapping) for each in listed)
        dicts: List[Dict[str, Any]] = listed if is_dicts else [{"params": listed}]  # type: ignore[assignment]
        self.structs = (_c.zro_param_group * len(dicts))()
        self.lists: List[Params] = []
        self.params: List[Param] = []
        for struct, group in zip(self.structs, dicts):
            values = dict(group)
            params, index = params_of(values.pop("params"))
            owners = values.pop("owners", None)
            self.lists.append(params)
            self.params += [params[i] for i in index]
            lib.zro_param_group_init(byref(struct))
            struct.params, struct.n = params.array, len(index)
            struct.index = (ctypes.c_size_t * len(index))(*index)
            flat = named_values(values)
            struct.values = (_c.zro_value * len(flat))(*(_c.zro_value(name.encode(), value) for name, value in flat.items()))
            struct.n_values = len(flat)
            if owners is not None:
                struct.owners = (ctypes.c_int32 * len(owners))(*owners)


# PyTorch's names for values that come in pairs.
PAIRS = {"betas": ("beta1", "beta2"), "etas": ("eta_minus", "eta_plus"), "step_sizes": ("step_min", "step_max")}


def named_values(values: Mapping[str, Any]) -> Dict[str, float]:
    """Values under zro's names: betas=(a, b) is beta1 and beta2."""
    flat: Dict[str, float] = {}
    for name, value in values.items():
        flat.update(zip(PAIRS[name], map(float, value)) if name in PAIRS else {name: float(value)})
    return flat
