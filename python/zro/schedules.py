"""Schedules of learning rates.  Names of arguments, defaults and numbers are PyTorch's.

A schedule sets the lr of the groups that an optimizer has when the schedule is made; Schedule.step(), after each step of the
optimizer, sets that of the next step.  Several schedules on one optimizer multiply.
"""
from __future__ import annotations

import ctypes
from typing import Any, Callable, Sequence

from . import _c
from ._c import byref, lib, make
from ._core import Box, Handle, configure, handles
from .optim import Optimizer
from .state import State


class Schedule(Handle):
    """Made by one of the functions of this module (zro_schedule)."""

    def __init__(self, call: Callable[..., None], optim: Any, *arguments: Any, kept: Any = None) -> None:
        first = () if optim is None else (optim.box,)
        self._box = Box(lib.zro_schedule_destroy, make(call, *first, *arguments), kept)

    def step(self, metric: Any = None) -> None:
        """Sets the lr of the next step; a plateau needs the metric."""
        if metric is None:
            lib.zro_schedule_step(self.box)
        else:
            lib.zro_schedule_step_metric(self.box, metric)


def step_lr(optim: Optimizer, step_size: int, gamma: float = 0.1) -> Schedule:
    """Multiplies lr by gamma every step_size steps."""
    return Schedule(lib.zro_schedule_step_lr, optim, step_size, gamma)


def multi_step(optim: Optimizer, milestones: Sequence[int], gamma: float = 0.1) -> Schedule:
    """Multiplies lr by gamma at each of the milestones."""
    return Schedule(lib.zro_schedule_multi_step, optim, _steps(milestones), len(milestones), gamma)


def exponential(optim: Optimizer, gamma: float) -> Schedule:
    """Multiplies lr by gamma after every step."""
    return Schedule(lib.zro_schedule_exponential, optim, gamma)


def polynomial(optim: Optimizer, total_iters: int = 5, power: float = 1.0) -> Schedule:
    """Brings lr to 0 within total_iters steps."""
    return Schedule(lib.zro_schedule_polynomial, optim, total_iters, power)


def cosine(optim: Optimizer, t_max: int, eta_min: float = 0.0) -> Schedule:
    """Half a cosine down to eta_min within t_max steps, and back."""
    return Schedule(lib.zro_schedule_cosine, optim, t_max, eta_min)


def cosine_restarts(optim: Optimizer, t_0: int, t_mult: int = 1, eta_min: float = 0.0) -> Schedule:
    """Half a cosine down to eta_min, again and again, each time t_mult times as long."""
    return Schedule(lib.zro_schedule_cosine_restarts, optim, t_0, t_mult, eta_min)


def linear(optim: Optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0, total_iters: int = 5) -> Schedule:
    """Multiplies lr by a factor that goes from start_factor to end_factor within total_iters steps."""
    return Schedule(lib.zro_schedule_linear, optim, start_factor, end_factor, total_iters)


def constant(optim: Optimizer, factor: float = 1 / 3, total_iters: int = 5) -> Schedule:
    """Multiplies lr by a factor for total_iters steps."""
    return Schedule(lib.zro_schedule_constant, optim, factor, total_iters)


def one_cycle(optim: Optimizer, max_lr: float, total_steps: int, **settings: Any) -> Schedule:
    """lr goes up to max_lr and down again, and momentum the other way round; settings are the fields of zro_one_cycle_config."""
    config = configure(_c.zro_one_cycle_config, {"max_lr": max_lr, "total_steps": total_steps, **settings})
    return Schedule(lib.zro_schedule_one_cycle, optim, byref(config))


def plateau(optim: Optimizer, **settings: Any) -> Schedule:
    """Multiplies lr by `factor` when the metric has not improved for `patience` steps; settings are the fields of zro_plateau_config."""
    return Schedule(lib.zro_schedule_plateau, optim, byref(configure(_c.zro_plateau_config, settings)))


def function(optim: Optimizer, factor: Callable[[int, int], float]) -> Schedule:
    """Sets lr to the first lr times factor(group, steps so far)."""
    callback = _c.zro_lr_fn(lambda _, group, steps: factor(group, steps))
    return Schedule(lib.zro_schedule_lambda, optim, callback, None, kept=callback)


def chained(schedules: Sequence[Schedule]) -> Schedule:
    """Every step applies all of these, which it takes over."""
    return _combined(lib.zro_schedule_chained, schedules)


def sequential(schedules: Sequence[Schedule], milestones: Sequence[int]) -> Schedule:
    """The i-th of these, which it takes over, applies until milestones[i], and then the next one begins anew."""
    if len(milestones) != len(schedules) - 1:
        raise ValueError(f"{len(schedules)} schedules need {len(schedules) - 1} milestones, not {len(milestones)}")
    return _combined(lib.zro_schedule_sequential, schedules, _steps(milestones))


def load(schedules: Sequence[Schedule], state: State) -> None:
    """Puts schedules to the positions that a state has, after the state was loaded into their optimizer."""
    lib.zro_schedules_load(handles(schedules), len(schedules), state.box)


def _combined(call: Callable[..., None], schedules: Sequence[Schedule], *arguments: Any) -> Schedule:
    listed = handles(schedules)
    kept = [schedule.box.give_up() for schedule in schedules]
    for schedule in schedules:
        schedule.close()
    return Schedule(call, None, listed, len(listed), *arguments, kept=kept)


def _steps(milestones: Sequence[int]) -> Any:
    return (ctypes.c_uint64 * len(milestones))(*milestones)
