"""Calls of zro from Python, as far as the tests here need them, on PyTorch's tensors."""
import ctypes
import os

import torch

size_t, u32, u64, real, pointer, enum = (ctypes.c_size_t, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_double, ctypes.c_void_p,
                                         ctypes.c_int)
ALL = -1
DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}


class AbiEntry(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("bytes", size_t)]


class Param(ctypes.Structure):
    _fields_ = [("data", pointer), ("grad", pointer), ("grad_present", u32), ("requires_grad", u32), ("dtype", enum),
                ("grad_dtype", enum), ("device", ctypes.c_int32), ("layout", enum), ("n_dims", u32), ("reserved32", u32),
                ("name", ctypes.c_char_p), ("shape", size_t * 8), ("memory", pointer), ("reserved", u64 * 3)]


class ParamGroup(ctypes.Structure):
    _fields_ = [("params", ctypes.POINTER(Param)), ("index", ctypes.POINTER(size_t)), ("n", size_t), ("config", pointer),
                ("values", pointer), ("n_values", size_t), ("owners", pointer), ("reserved", u64 * 3)]


class OneCycle(ctypes.Structure):
    _fields_ = [("struct_size", size_t), ("max_lr", real), ("total_steps", u64), ("pct_start", real), ("linear", enum),
                ("three_phase", enum), ("cycle_momentum", enum), ("base_momentum", real), ("max_momentum", real),
                ("div_factor", real), ("final_div_factor", real)]


STRUCTS = (("zro_param", Param), ("zro_param_group", ParamGroup), ("zro_one_cycle_config", OneCycle))


class Zro:
    """The calls that are needed; a status that is not 0 is an exception with the text."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.zro_last_error.restype = ctypes.c_char_p
        self.lib.zro_rule_find.restype = pointer
        self.lib.zro_abi.restype = ctypes.POINTER(AbiEntry)
        count = size_t()
        entries = self.lib.zro_abi(ctypes.byref(count))
        sizes = {entries[i].name.decode(): entries[i].bytes for i in range(count.value)}
        for name, ours in STRUCTS:
            assert sizes[name] == ctypes.sizeof(ours), f"{name} has {sizes[name]} bytes: bring the structs here up to date"

    def __call__(self, name, *args):
        if getattr(self.lib, name)(*args) != 0:
            raise RuntimeError(self.lib.zro_last_error().decode())


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
        found = pointer(zro.lib.zro_rule_find(rule.encode()))
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


LrFn = ctypes.CFUNCTYPE(real, pointer, size_t, u64)


class Schedule:
    """A schedule of zro's; combined ones take over their parts."""

    def __init__(self, zro, kind, *args):
        self.zro, self.handle, self.args = zro, pointer(), args  # a lambda must live as long as the schedule
        zro("zro_schedule_" + kind, *args, ctypes.byref(self.handle))

    def step(self):
        self.zro("zro_schedule_step", self.handle)

    def destroy(self):
        self.zro.lib.zro_schedule_destroy(self.handle)
