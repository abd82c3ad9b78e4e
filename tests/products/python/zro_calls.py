"""Calls of zro from Python, as far as the tests here need them, on PyTorch's tensors."""
import ctypes
import os
import sys

import torch

# By the binding of the package zro, of the library that the command line names.
os.environ["ZRO_LIBRARY"] = os.path.abspath(sys.argv[1])
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "python"))
from zro import _c  # noqa: E402  # from the folder above

size_t, u64, real, pointer = ctypes.c_size_t, ctypes.c_uint64, ctypes.c_double, ctypes.c_void_p
ALL = _c.ZRO_ALL
DTYPES = {torch.float32: _c.ZRO_F32, torch.float64: _c.ZRO_F64, torch.bfloat16: _c.ZRO_BF16, torch.float16: _c.ZRO_F16}
Param, ParamGroup, OneCycle, LrFn = _c.zro_param, _c.zro_param_group, _c.zro_one_cycle_config, _c.zro_lr_fn


class Zro:
    """The calls by name; one that fails raises zro.Error with the library's text."""

    lib = _c.lib

    def __call__(self, name, *args):
        getattr(self.lib, name)(*args)


class Optim:
    """An optimizer of zro's on torch's tensors, in groups of them."""

    def __init__(self, zro, rule, groups, names):
        self.zro, self.handle = zro, pointer()
        self.tensors = [t for group in groups for t in group]
        self.params = (Param * len(self.tensors))()
        for param, tensor, name in zip(self.params, self.tensors, names):
            zro.lib.zro_param_init(ctypes.byref(param))
            param.data, param.dtype, param.n_dims = tensor.data_ptr(), DTYPES[tensor.dtype], tensor.dim()
            param.name = None if name is None else name.encode()
            for i, length in enumerate(tensor.shape):
                param.shape[i] = length
        self.groups, at = (ParamGroup * len(groups))(), 0
        for handed, group in zip(self.groups, groups):
            handed.params = ctypes.cast(ctypes.byref(self.params, at * ctypes.sizeof(Param)), ctypes.POINTER(Param))
            handed.n = len(group)
            at += len(group)
        found = zro.lib.zro_rule_find(rule)
        zro("zro_optim_create", None, self.groups, size_t(len(groups)), found, None, None, ctypes.byref(self.handle))

    def step(self, grads):
        for param, grad in zip(self.params, grads):
            param.grad, param.grad_present = (None, 0) if grad is None else (grad.data_ptr(), 1)
        self.zro("zro_optim_step", self.handle, None)

    def load(self, path, schedules=()):
        state = pointer()
        self.zro("zro_state_read", os.fsencode(path), ctypes.byref(state))
        try:
            self.zro("zro_optim_load", self.handle, state)
            if schedules:
                self.zro("zro_schedules_load", handles(schedules), size_t(len(schedules)), state)
        finally:
            self.zro.lib.zro_state_destroy(state)

    def save(self, path, schedules=()):
        state = pointer()
        self.zro("zro_optim_consolidate_with_data", self.handle, ALL, ctypes.byref(state))
        if schedules:
            self.zro("zro_state_set_schedules", state, handles(schedules), size_t(len(schedules)))
        self.zro("zro_state_write", state, os.fsencode(path))
        self.zro.lib.zro_state_destroy(state)

    def destroy(self):
        self.zro.lib.zro_optim_destroy(self.handle)

    def set_value(self, group, name, value):
        self.zro("zro_optim_set_value", self.handle, size_t(group), name.encode(), real(value))

    def get_value(self, group, name):
        value = real()
        self.zro("zro_optim_get_value", self.handle, size_t(group), name.encode(), ctypes.byref(value))
        return value.value


def handles(schedules):
    return (pointer * len(schedules))(*(s.handle for s in schedules))


class Schedule:
    """A schedule of zro's; combined ones take over their parts."""

    def __init__(self, zro, kind, *args):
        self.zro, self.handle, self.args = zro, pointer(), args  # a lambda must live as long as the schedule
        zro("zro_schedule_" + kind, *args, ctypes.byref(self.handle))

    def step(self):
        self.zro("zro_schedule_step", self.handle)

    def destroy(self):
        self.zro.lib.zro_schedule_destroy(self.handle)
