"""libzro as ctypes: `lib` has every call of include/zro.h, under its name there; structs and constants are names of this module.

A call that returns a status (ZRO_MUST in the header) raises an Error with the library's text instead, and returns None.  Texts
that the library returns are str.  Where a call takes a text, str, bytes and paths will do; where it takes a pointer to a
struct, `ctypes.byref(struct)`, an array of structs, or None; where it takes a handle, an int, a c_void_p, or an object whose
`_as_parameter_` is one of these.

    config = new(zro_optim_config, clip_norm=1.0)        # the initializer, then these fields
    handle = make(lib.zro_optim_create, group, groups, len(groups), lib.zro_rule_adam(), None, byref(config))

The library is the file that the environment variable ZRO_LIBRARY names; else the one in this package; else the system's.
Its texts name calls of C; in exceptions and in the log these become what the package calls them (WORDS).
"""
import builtins
import ctypes
import os
import re
import sys
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from typing import Any, Callable, Mapping, Optional

from . import _header
from ._header import *  # noqa: F401,F403
from ._header import FUNCTIONS, MUST, ZRO_ERR_STATE, ZRO_OK, ZRO_VERSION

# ---- errors ----


class Error(Exception):
    """What a call of the library failed with: the text of zro_last_error().  `status` is its number in include/zro.h."""

    status = ZRO_ERR_STATE


class InvalidError(Error, ValueError):
    """An argument, a file or a variable has a value that is not allowed."""

    status = _header.ZRO_ERR_INVALID


class StateError(Error, RuntimeError):
    """The call is right, but not at this moment."""


class MemoryError(Error, builtins.MemoryError):
    """Out of memory, or a limit would be exceeded."""

    status = _header.ZRO_ERR_MEMORY


class SystemError(Error, OSError):
    """The operating system refused; the text has its reason."""

    status = _header.ZRO_ERR_SYSTEM


class FormatError(Error, ValueError):
    """A file or a block of bytes does not have the format that it should have."""

    status = _header.ZRO_ERR_FORMAT


class UnsupportedError(Error, NotImplementedError):
    """Not possible here, in this build or for these types."""

    status = _header.ZRO_ERR_UNSUPPORTED


class MismatchError(Error, RuntimeError):
    """Ranks passed different arguments, or made different calls."""

    status = _header.ZRO_ERR_MISMATCH


class PeerError(Error, RuntimeError):
    """The call failed on another rank; the text is that rank's."""

    status = _header.ZRO_ERR_PEER


class LostError(Error, ConnectionError):
    """A rank is gone."""

    status = _header.ZRO_ERR_LOST


class TimeoutError(Error, builtins.TimeoutError):
    """A rank did not come before the deadline."""

    status = _header.ZRO_ERR_TIMEOUT


for _class in (Error, *Error.__subclasses__()):
    _class.__module__ = "zro"  # as programs know them


ERRORS = {kind.status: kind for kind in Error.__subclasses__()}


def check(status: int) -> None:
    """Raises the error that a status stands for; nothing if it is ZRO_OK."""
    if status != ZRO_OK:
        raise ERRORS.get(status, Error)(in_python(lib.zro_last_error() or lib.zro_status_text(status)))


# ---- texts ----

# What the library's texts tell a program to call or to set, and what that is in Python.
WORDS = {
    "begin with zro_param_make, or with zro_param p = ZRO_PARAM_INIT": "set requires_grad = True, or leave the gradient out",
    "grad_present": "has_grad",
    "zro_ddp_average": "Ddp.average()",
    "zro_ddp_backward_end": "Ddp.backward_end()",
    "zro_ddp_forward": "Ddp.forward()",
    "zro_ddp_grad_ready": "Ddp.ready()",
    "zro_group_create_tickets": "Group.from_tickets()",
    "zro_join_destroy": "Join.close()",
    "zro_join_run": "Join.run()",
    "zro_optim_consolidate": "Optimizer.consolidate()",
    "zro_optim_create": "zro.Optimizer()",
    "zro_optim_load": "Optimizer.load()",
    "zro_optim_resume": "Optimizer.resume()",
    "zro_optim_save": "Optimizer.save()",
    "zro_optim_step": "Optimizer.step()",
    "zro_optim_zero_grad": "Optimizer.zero_grad()",
    "zro_param_publish": "Optimizer.publish_param()",
    "zro_param_set_grad": "set Param.grad",
    "zro_params_all_reduce": "Params.all_reduce(group)",
    "zro_params_alloc": "Params.alloc()",
    "zro_params_mark_grads": "Params.mark_grads()",
    "zro_schedule_step": "Schedule.step()",
    "zro_schedule_step_metric": "Schedule.step(metric)",
    "zro_schedules_load": "zro.schedules.load()",
    "zro_spawn_threads": "zro.spawn(method=\"threads\")",
    "zro_state_add_group": "State.add_group()",
    "zro_state_broadcast": "State.broadcast()",
    "zro_state_read": "State.read()",
}


def translator(words: Mapping[str, str]) -> Callable[[str], str]:
    """A function that replaces these words in a text, also where arguments in C stand behind them."""
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, sorted(words, key=len, reverse=True)))})\b(\([^()]*\))?")
    return lambda text: pattern.sub(lambda found: words[found[1]], text)


in_python = translator(WORDS)
LEVELS = {_header.ZRO_LOG_WARN: "warning", _header.ZRO_LOG_INFO: "info", _header.ZRO_LOG_DEBUG: "debug"}


def log_to(function: Callable[[int, str], Any], translate: Callable[[str], str] = in_python) -> Any:
    """A function of (level, text) as one that the library gives lines of its log to; it must live as long as they may come."""

    def call(_: Any, level: int, text: bytes) -> None:
        function(level, translate(os.fsdecode(text)))

    return _header.zro_log_fn(call)


def say(level: int, text: str) -> None:
    """Where lines of the log go unless the program has said otherwise: standard error, as Python has it."""
    if sys.stderr is not None:  # it is None while the interpreter ends
        sys.stderr.write(f"zro {LEVELS[level]}: {text}\n")


SAY = log_to(say)


# ---- loading ----


class Text(c_char_p):
    """An argument that is a text: str, bytes, a path, or None."""

    @classmethod
    def from_param(cls, value: Any) -> Any:
        return c_char_p.from_param(value if value is None else os.fsencode(value))


def _find() -> str:
    named = os.environ.get("ZRO_LIBRARY")
    if named:
        return named
    own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libzro.so")
    return own if os.path.exists(own) else "libzro.so." + ZRO_VERSION.split(".", maxsplit=1)[0]


def _advice() -> str:
    """What to do where there is no library."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if os.path.exists(os.path.join(folder, "CMakeLists.txt")) and not os.environ.get("ZRO_LIBRARY"):
        return (f"{folder} is a folder of zro's sources, which has no library, and hides an installed package: run Python in another "
                "folder after pip install, or let ZRO_LIBRARY name the file libzro.so that make has built")
    return "install the package anew (pip install), or let ZRO_LIBRARY name the file libzro.so"


def _checked(status: int, *_: Any) -> None:
    if status != ZRO_OK:
        check(status)


def _decoded(text: Optional[bytes], *_: Any) -> Optional[str]:
    return None if text is None else os.fsdecode(text)


def _load(path: str) -> ctypes.CDLL:
    """The library with the types of all calls; refuses one whose version or structs are others than those here."""
    if not sys.platform.startswith("linux"):
        raise ImportError(f"zro runs on Linux, and this is {sys.platform}")
    try:
        loaded = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"zro cannot load its library: {error}; {_advice()}") from None
    found = getattr(loaded, "zro_version", None)
    if found is None:
        raise ImportError(f"{path} is not zro's library: it has no zro_version")
    found.restype = c_char_p
    if found().decode() != ZRO_VERSION:
        raise ImportError(f"{path} is version {found().decode()} of zro's library, and this package needs {ZRO_VERSION}: install "
                          "both from one release, or let ZRO_LIBRARY name the right file")
    for name, (result, arguments) in FUNCTIONS.items():
        try:
            call = getattr(loaded, name)
        except AttributeError:
            raise ImportError(f"{path} has no {name}: build it from the sources of this package") from None
        call.argtypes = [Text if argument is c_char_p else argument for argument in arguments]
        call.restype = c_int if result is MUST else result
        if result is MUST:
            call.errcheck = _checked
        elif result is c_char_p:
            call.errcheck = _decoded
    count = c_size_t()
    entries = loaded.zro_abi(byref(count))
    for entry in entries[:count.value]:
        ours = getattr(_header, entry.name.decode(), None)
        if ours is None or ctypes.sizeof(ours) != entry.bytes:
            raise ImportError(f"{entry.name.decode()} has {entry.bytes} bytes in {path}, and "
                              f"{ctypes.sizeof(ours) if ours else 'none'} in this package: build both from the same sources")
    return loaded


path = _find()
lib = _load(path)

# ---- calls ----


def new(kind: Any, **fields: Any) -> Any:
    """A struct, filled by its initializer (zro_x_init) and then by these fields."""
    struct = kind()
    getattr(lib, kind.__name__ + "_init")(byref(struct))
    for name, value in fields.items():
        if not hasattr(struct, name):
            raise TypeError(f"{kind.__name__} has no field {name!r}")
        setattr(struct, name, value)
    return struct


def make(call: Callable[..., None], *arguments: Any) -> Optional[int]:
    """Makes a call whose last argument is where it puts a pointer, and returns that: an int, or None."""
    out = c_void_p()
    call(*arguments, byref(out))
    return out.value


class Callback:
    """A function of Python's as one that the library calls and that returns a status.

    An exception in it makes the status an error, whose text names it; `with callback:` around the call of the library then raises
    the exception itself.  The object must live as long as the library may call it.
    """

    def __init__(self, kind: Any, function: Callable[..., Any]) -> None:
        self.error: Optional[BaseException] = None

        def call(*arguments: Any) -> int:
            try:
                function(*arguments)
                return ZRO_OK
            except BaseException as error:  # pylint: disable=broad-except  # it goes on in __exit__
                self.error = error
                return lib.zro_error_set(getattr(error, "status", ZRO_ERR_STATE), f"{type(error).__name__}: {error}")

        self._as_parameter_ = kind(call)

    def __enter__(self) -> "Callback":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, Error) and self.error is not None:
            raised, self.error = self.error, None
            raise raised from None
