"""What the classes of the package share: handles, configurations, element types, arrays that show memory of the library's."""
from __future__ import annotations

import collections
import ctypes
import math
import os
import sys
import weakref
from typing import Any, Callable, Dict, Iterable, Optional, Sequence, Tuple, Type, TypeVar

import numpy

from . import _c
from ._c import byref, lib, new

H = TypeVar("H", bound="Handle")

# ---- handles ----


def _destroy(call: Callable[[Any], None], handle: Any, process: int, kept: Any) -> None:
    if os.getpid() == process:  # a forked child has a copy, which is not its own to destroy
        call(handle)


class Box:
    """Owns a handle of the library's: destroys it when nothing refers to the box any more, and keeps `kept` alive until then.

    Arrays that show memory of the handle refer to the box, so that memory lives as long as they do.
    """

    __slots__ = ("_as_parameter_", "_end", "__weakref__")

    def __init__(self, destroy: Callable[[Any], None], handle: Any, *kept: Any) -> None:
        self._as_parameter_ = handle
        self._end = weakref.finalize(self, _destroy, destroy, handle, os.getpid(), kept)

    def give_up(self) -> Any:
        """Somebody else destroys the handle from now on, and must keep what this returns until then."""
        return self._end.detach()


class Handle:
    """Something of the library's: a context manager, which is closed at the end of its block, by close(), or when it is forgotten."""

    _box: Optional[Box] = None

    @property
    def box(self) -> Box:
        """The owner of the handle."""
        if self._box is None:
            raise _c.StateError(f"this {type(self).__name__} is closed")
        return self._box

    @property
    def _as_parameter_(self) -> Any:
        return self.box._as_parameter_

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._box is None

    def close(self) -> None:
        """Gives the handle back; arrays that show its memory, and handles made from it, stay valid.  Local."""
        self._box = None

    def __enter__(self: H) -> H:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


# ---- configurations ----

# The texts that a field takes, and what precedes them in the name of the constant that each stands for.
TEXTS = {"kernels": ("ZRO_KERNELS_", "auto base avx2 avx512"), "log_level": ("ZRO_LOG_", "off warn info debug"),
         "data_kind": ("ZRO_MEMORY_", "each once"), "partition": ("ZRO_PARTITION_", "auto flat greedy buckets given"),
         "rounding": ("ZRO_", "nearest stochastic"), "overlap": ("ZRO_OVERLAP_", "off after_last interleaved"),
         "divide_by": ("ZRO_", "initial_ranks remaining_ranks"), "op": ("ZRO_", "sum avg min max"),
         "zero_grad": ("ZRO_ZERO_", "clear leave keep"), "dtype": ("ZRO_", "f32 f64 bf16 f16 i8 u8 i32 i64")}


def constant(what: str, value: Any) -> int:
    """The number that a text stands for, such as "avg" for an op; numbers and truth values stay."""
    if not isinstance(value, str):
        return int(value)
    prefix, known = TEXTS[what]
    if value.lower() not in known.split():
        raise ValueError(f"{what} = {value!r} is not known to zro, only {', '.join(known.split())}")
    return getattr(_c, prefix + value.upper())


def _field(name: str, value: Any) -> Any:
    if name in TEXTS or isinstance(value, bool):
        return constant(name, value)
    if name == "log":
        return _c.log_to(value)
    if name == "cells":
        return (ctypes.c_int32 * len(value))(*value)
    if name == "trace":
        return os.fsencode(value)
    return value


def configure(kind: Any, fields: Dict[str, Any]) -> Any:
    """A configuration with these fields; those of zro_settings may stand among them.  None: the default."""
    struct = new(kind)
    homes = [struct]
    if isinstance(getattr(struct, "settings", None), _c.zro_settings):
        homes.append(struct.settings)
        struct.settings.log = _c.SAY
    for name, value in fields.items():
        home = next((home for home in homes if name in (field[0] for field in home._fields_)), None)
        if home is None or name in ("struct_size", "settings", "reserved"):
            known = [field[0] for home in homes for field in home._fields_]
            hidden = ("struct_size", "settings", "reserved", "log_user")
            raise TypeError(f"there is no setting {name!r}, only {', '.join(each for each in known if each not in hidden)}")
        if value is not None:
            setattr(home, name, _field(name, value))
    return struct


def sizes(values: Iterable[int]) -> Any:
    """An array of size_t."""
    listed = list(values)
    return (ctypes.c_size_t * len(listed))(*listed)


def handles(listed: Sequence[Handle]) -> Any:
    """An array of handles."""
    return (ctypes.c_void_p * len(listed))(*(each._as_parameter_ for each in listed))


_tuples: Dict[Any, Any] = {}


def as_tuple(struct: Any) -> Any:
    """The fields of a struct as a named tuple."""
    kind = type(struct)
    names = [name for name, *_ in kind._fields_ if name != "struct_size" and not name.startswith("reserved")]
    if kind not in _tuples:
        _tuples[kind] = collections.namedtuple(kind.__name__[len("zro_"):], names, rename=True)
    return _tuples[kind](*(getattr(struct, name) for name in names))


def query(call: Callable[..., None], kind: Type[Any], *arguments: Any) -> Any:
    """The number that a call puts where its last argument points."""
    out = kind()
    call(*arguments, byref(out))
    return out.value


def stats(call: Callable[..., None], handle: Any) -> Any:
    """Statistics as a named tuple."""
    out = new(_c.zro_stats)
    call(handle, byref(out))
    return as_tuple(out)


# ---- element types and arrays ----

_NAMES = {"float32": _c.ZRO_F32, "float64": _c.ZRO_F64, "bfloat16": _c.ZRO_BF16, "float16": _c.ZRO_F16, "int8": _c.ZRO_I8,
          "uint8": _c.ZRO_U8, "int32": _c.ZRO_I32, "int64": _c.ZRO_I64}
_NUMPY = {number: name for name, number in _NAMES.items()}


def dtype_number(dtype: Any) -> int:
    """zro's number of an element type: "bf16", "f32", ..., or what numpy.dtype takes."""
    if isinstance(dtype, str) and dtype.lower() in TEXTS["dtype"][1].split():
        return constant("dtype", dtype)
    name = "bfloat16" if dtype == "bfloat16" else numpy.dtype(dtype).name
    if name not in _NAMES:
        raise TypeError(f"zro has no element type {name}, only {', '.join(_NAMES)}")
    return _NAMES[name]


def numpy_dtype(number: int) -> numpy.dtype:
    """NumPy's type; bf16 is that of ml_dtypes where this is imported, and otherwise its bits as uint16."""
    if number != _c.ZRO_BF16:
        return numpy.dtype(_NUMPY[number])
    ml_dtypes = sys.modules.get("ml_dtypes")
    return numpy.dtype(ml_dtypes.bfloat16 if ml_dtypes is not None else "uint16")


class _Memory:
    def __init__(self, address: int, shape: Tuple[int, ...], size: int, owner: Any) -> None:
        self.owner = owner
        self.__array_interface__ = {"data": (address, False), "shape": shape, "typestr": f"<u{size}", "version": 3}


def view(address: Optional[int], shape: Tuple[int, ...], number: int, owner: Any) -> numpy.ndarray:
    """An array that shows memory of the library's and keeps its owner alive."""
    dtype = numpy_dtype(number)
    if not address or 0 in shape:
        return numpy.empty(shape, dtype)
    return numpy.asarray(_Memory(address, tuple(shape), dtype.itemsize, owner)).view(dtype)


def address_of(array: numpy.ndarray) -> int:
    """Where the elements of an array are."""
    return array.__array_interface__["data"][0]


def dense(what: str, array: Any) -> numpy.ndarray:
    """Refuses what is not one contiguous, aligned array of the machine's byte order that may be written."""
    if not isinstance(array, numpy.ndarray):
        raise TypeError(f"{what} is a {type(array).__name__}, must be a numpy array")
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned and flags.writeable and array.dtype.isnative):
        raise ValueError(f"{what} must be contiguous, aligned, writable and in the machine's byte order; pass a copy, such as "
                         "numpy.array(x, order='C')")
    return array


def readable(array: Any) -> numpy.ndarray:
    """An array that the library may read: the same one, or a contiguous copy."""
    return numpy.asarray(array, order="C")


def convert(array: Any, dtype: Any, source: Any = None) -> numpy.ndarray:
    """Converts an array among f32, f64, bf16 and f16; each element is rounded once, to nearest even.

    `source` is the type of the elements if NumPy does not know it: "bf16" for bits in uint16.
    """
    array = readable(array)
    to, from_ = dtype_number(dtype), dtype_number(array.dtype if source is None else source)
    out = numpy.empty(array.shape, numpy_dtype(to))
    lib.zro_convert(address_of(out), to, address_of(array), from_, array.size)
    return out


def elements(shape: Iterable[int]) -> int:
    """How many elements an array of this shape has."""
    return math.prod(shape)
