"""zro: the zero redundancy optimizer, for programs in Python.

    import zro

    def train(group):
        params = zro.Params.alloc(group, {"w": (3,)})           # or zro.Params({"w": w}): your arrays, updated in place
        ddp = zro.Ddp(group, params)
        optim = zro.Optimizer(params, zro.adamw(lr=0.1), group, ddp)
        for _ in range(100):
            with ddp.iteration():
                params["w"].grad = 2 * (params["w"].data - group.rank)
                ddp.ready()
            optim.step()
        return params["w"].data.copy()

    if __name__ == "__main__":
        print(zro.spawn(train, 2))

Classes are thin: each method is one call of include/zro.h, which has the full contract.  docs/python.md has the map.
"""
import sys as _sys

if _sys.version_info < (3, 9):
    raise ImportError(f"zro needs Python 3.9 or newer, and this is {_sys.version.split()[0]}")
try:
    import numpy as _numpy
except ImportError as _error:
    raise ImportError("zro needs NumPy: pip install numpy") from _error
if _numpy.lib.NumpyVersion(_numpy.__version__) < "1.20.0":
    raise ImportError(f"zro needs NumPy 1.20 or newer, and this is {_numpy.__version__}: pip install --upgrade numpy")

from . import schedules
from ._c import (Error, FormatError, InvalidError, LostError, MemoryError, MismatchError, PeerError, StateError, SystemError,
                 TimeoutError, UnsupportedError)
from ._core import convert
from ._header import ZRO_VERSION as __version__
from .ddp import Bucket, Ddp, Join, sample_indices
from .group import Group, Work
from .optim import (RULES, Lbfgs, Optimizer, Plan, Range, Rule, Slot, adadelta, adagrad, adam, adamax, adamw, asgd, nadam, radam,
                    rmsprop, rprop, sgd)
from .params import Param, Params
from .schedules import Schedule
from .start import spawn
from .state import State, StateGroup, StateParam

__all__ = ["RULES", "Bucket", "Ddp", "Error", "FormatError", "Group", "InvalidError", "Join", "Lbfgs", "LostError", "MemoryError",
           "MismatchError", "Optimizer", "Param", "Params", "PeerError", "Plan", "Range", "Rule", "Schedule", "Slot", "State",
           "StateError", "StateGroup", "StateParam", "SystemError", "TimeoutError", "UnsupportedError", "Work", "__version__", "adadelta",
           "adagrad", "adam", "adamax", "adamw", "asgd", "convert", "nadam", "radam", "rmsprop", "rprop", "sample_indices",
           "schedules", "sgd", "spawn"]
