"""A copy of an optimizer's state, independent of the optimizer: to look at, to write to a file, to load."""
from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy

from . import _c
from ._c import byref, lib, make
from ._core import Box, Handle, address_of, as_tuple, dtype_number, handles, numpy_dtype, query, readable, view
from .group import Group
from .params import named_values


class StateGroup(NamedTuple):
    """A group of parameters in a state: the index of its first parameter, their number, and the values."""

    first: int
    n: int
    values: Dict[str, float]


class StateParam(NamedTuple):
    """A parameter in a state; arrays show its memory.  `data` is None if the state does not have it."""

    name: Optional[str]
    shape: Tuple[int, ...]
    dtype: numpy.dtype
    data: Optional[numpy.ndarray]
    slots: Dict[str, numpy.ndarray]


class State(Handle):
    """An optimizer's groups with their values, parameters by index and name, slots by name (zro_state).

    It comes from Optimizer.consolidate, State.read or State.unpack; or it is made by hand: State("adam"), and then group after group,
    after each group its parameters, and in any order slots.  Names of values and slots are PyTorch's; the first of a list is "betas:0".
    """

    def __init__(self, rule: str) -> None:
        self._box = Box(lib.zro_state_destroy, make(lib.zro_state_create, rule))

    @classmethod
    def owned(cls, handle: Optional[int]) -> "State":
        """A state of the library's, which is destroyed with this object."""
        state = cls.__new__(cls)
        state._box = Box(lib.zro_state_destroy, handle)
        return state

    # ---- files ----

    @classmethod
    def read(cls, path: Any) -> "State":
        """From a safetensors file that zro, or tools/python/zro_state.py, has written."""
        return cls.owned(make(lib.zro_state_read, path))

    def write(self, path: Any) -> None:
        """As such a file, which is whole or not there."""
        lib.zro_state_write(self.box, path)

    @classmethod
    def unpack(cls, data: bytes) -> "State":
        """From the bytes of such a file."""
        return cls.owned(make(lib.zro_state_unpack, data, len(data)))

    def pack(self) -> bytes:
        """As the bytes of such a file."""
        out, n = ctypes.c_void_p(), ctypes.c_size_t()
        lib.zro_state_pack(self.box, byref(out), byref(n))
        try:
            return ctypes.string_at(out, n.value)
        finally:
            lib.zro_bytes_free(out)

    @classmethod
    def broadcast(cls, group: Group, state: Optional["State"], root: int = 0) -> "State":
        """root's state on all ranks; the others pass None.  Collective."""
        handle = ctypes.c_void_p(None if state is None else state._as_parameter_)
        lib.zro_state_broadcast(group.box, byref(handle), root)
        return cls.owned(handle.value) if state is None else state

    # ---- queries ----

    @property
    def rule(self) -> str:
        """The name of the rule."""
        return lib.zro_state_rule(self.box)

    @property
    def nbytes(self) -> int:
        """The bytes of all slots and data together."""
        return lib.zro_state_bytes(self.box)

    @property
    def groups(self) -> List[StateGroup]:
        """The groups with their values."""
        return [self._group(group) for group in range(lib.zro_state_groups(self.box))]

    def _group(self, group: int) -> StateGroup:
        first, n, n_values, value = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_size_t(), _c.zro_value()
        lib.zro_state_group(self.box, group, byref(first), byref(n), byref(n_values))
        values = {}
        for i in range(n_values.value):
            lib.zro_state_value(self.box, group, i, byref(value))
            values[value.name.decode()] = value.value
        return StateGroup(first.value, n.value, values)

    def __len__(self) -> int:
        return lib.zro_state_params(self.box)

    def __getitem__(self, param: Union[int, str]) -> StateParam:
        """A parameter by its index or its name."""
        if isinstance(param, str):
            for i in range(len(self)):
                if self._struct(i).name == param.encode():
                    return self[i]
            raise KeyError(param)
        if not 0 <= param < len(self):
            raise IndexError(f"the state has {len(self)} parameters, none with index {param}")
        struct = self._struct(param)
        shape = tuple(struct.shape[:struct.n_dims])
        data = None if struct.data is None else view(struct.data, shape, struct.dtype, self.box)
        slots = {}
        for i in range(lib.zro_state_slots(self.box, param)):
            name = lib.zro_state_slot_name(self.box, param, i)
            slots[name] = self._slot(param, name, shape)
        return StateParam(None if struct.name is None else struct.name.decode(), shape, numpy_dtype(struct.dtype), data, slots)

    def _struct(self, param: int) -> Any:
        struct = _c.zro_param()
        lib.zro_state_param(self.box, param, byref(struct))
        return struct

    def _slot(self, param: int, name: str, shape: Tuple[int, ...]) -> numpy.ndarray:
        slot = _c.zro_slot()
        lib.zro_state_slot(self.box, param, name, byref(slot))
        flat = view(slot.data, (slot.count,), slot.dtype, self.box)
        return flat.reshape(shape if flat.size == numpy.prod(shape, dtype=int) else ())

    @property
    def progress(self) -> Any:
        """Steps and loss scale as a named tuple (zro_progress)."""
        out = _c.zro_progress()
        lib.zro_state_get_progress(self.box, byref(out))
        return as_tuple(out)

    def set_progress(self, **fields: Any) -> None:
        """Replaces some of steps, scale, growth_tracker, n_skipped."""
        struct = _c.zro_progress(**{**self.progress._asdict(), **fields})
        lib.zro_state_set_progress(self.box, byref(struct))

    def get_number(self, name: str) -> float:
        """A number of the program's own."""
        return query(lib.zro_state_get_number, ctypes.c_double, self.box, name)

    def set_number(self, name: str, value: float) -> None:
        """Replaces such a number, or adds one."""
        lib.zro_state_set_number(self.box, name, value)

    def set_value(self, group: int, name: str, value: float) -> None:
        """Replaces a value of a group, or adds one."""
        lib.zro_state_set_value(self.box, group, name, value)

    def set_schedules(self, schedules: Sequence[Handle]) -> None:
        """Puts the positions of schedules into the state, instead of those that it had."""
        lib.zro_state_set_schedules(self.box, handles(schedules), len(schedules))

    # ---- by hand ----

    def add_group(self, values: Mapping[str, Any]) -> None:
        """A group with these values, for the parameters that are added next."""
        flat = named_values(values)
        listed = (_c.zro_value * len(flat))(*(_c.zro_value(name.encode(), value) for name, value in flat.items()))
        lib.zro_state_add_group(self.box, listed, len(flat))

    def add_param(self, shape: Sequence[int], dtype: Any = "f32", name: Optional[str] = None, data: Any = None) -> int:
        """A parameter, whose index is returned."""
        struct = _c.zro_param()
        lib.zro_param_make(byref(struct), name, dtype_number(dtype), None, None, len(shape), (ctypes.c_size_t * len(shape))(*shape))
        lib.zro_state_add_param(self.box, byref(struct))
        param = len(self) - 1
        if data is not None:
            array = numpy.asarray(data, numpy_dtype(struct.dtype), order="C")
            if array.shape != tuple(shape):
                raise ValueError(f"data of parameter {param} has shape {array.shape}, must be {tuple(shape)}")
            lib.zro_state_add_data(self.box, param, address_of(array))
        return param

    def add_slot(self, param: int, name: str, data: Any) -> None:
        """A slot of a parameter: an array of its shape, or one number."""
        array = readable(data)
        lib.zro_state_add_slot(self.box, param, name, dtype_number(array.dtype), address_of(array), array.size)
