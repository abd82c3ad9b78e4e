"""Changes PyTorch for its own tests of ZeroRedundancyOptimizer, as soon as a process has imported it; ranks are new processes, too.

zro's optimizer and hooks stand where PyTorch's did; tests that ask for accelerators run on CPUs; there are 4 devices, hence 4 ranks; a
device that is a number is the CPU; and a test fails if any of its ranks does.  What cannot be changed ends the process, so that no
test passes on PyTorch's own classes by mistake."""
import builtins
import importlib
import os
import sys
import traceback

RANKS = 4
_import = builtins.__import__


def _change(torch):
    common = importlib.import_module("torch.testing._internal.common_distributed")
    hooks = importlib.import_module("torch.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook")
    optim = importlib.import_module("torch.distributed.optim")
    ours = importlib.import_module("zro.torch")
    assert callable(common.skip_if_no_gpu) and callable(common.skip_if_lt_x_gpu) and callable(common.requires_accelerator_dist_backend)
    common.skip_if_no_gpu = lambda test: test
    common.skip_if_lt_x_gpu = common.requires_accelerator_dist_backend = lambda *_: lambda test: test
    optim.ZeroRedundancyOptimizer = ours.ZeroRedundancyOptimizer
    for name in ("hook_with_zero_step", "hook_with_zero_step_interleaved"):
        assert callable(getattr(hooks, name))
        setattr(hooks, name, getattr(ours, name))
    torch.cpu.device_count = lambda: RANKS
    _number_devices(torch)
    _watch_ranks(common.MultiProcessTestCase)


def _number_devices(torch):
    device = torch.device

    class Kind(type):
        def __instancecheck__(cls, obj):
            return isinstance(obj, device)

        def __call__(cls, *args, **kwargs):
            return device("cpu") if args and type(args[0]) is int else device(*args, **kwargs)

    torch.device = Kind("device", (), {})


def _watch_ranks(case):
    check = case._check_return_codes

    def check_all(self, *args):
        check(self, *args)
        codes = [process.exitcode for process in self.processes]
        assert not any(codes), f"exit codes of the ranks: {codes}"

    case._check_return_codes = check_all


def _watch(name, *args, **kwargs):
    """Waits until somebody outside of PyTorch has imported it."""
    result = _import(name, *args, **kwargs)
    torch = sys.modules.get("torch")
    if torch is not None and not getattr(torch.__spec__, "_initializing", False):
        builtins.__import__ = _import
        try:
            _change(torch)
        except BaseException:
            traceback.print_exc()
            os._exit(97)
    return result


builtins.__import__ = _watch
