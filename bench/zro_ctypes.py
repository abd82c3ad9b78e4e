"""What the programs here that compare zro with PyTorch share: the library by its public structs, lists of tensors, samples.

Nothing but libzro.so is needed: structs are declared again, and checked against the sizes that the library tells (zro_abi).
"""
import argparse
import ctypes
import os
import resource
import sys
import time

size_t, u32, u64, real, pointer = ctypes.c_size_t, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_double, ctypes.c_void_p
enum, text = ctypes.c_int, ctypes.c_char_p
ref = ctypes.byref


def fail(reason, code=1):
    print(f"{os.path.basename(sys.argv[0])}: {reason}", file=sys.stderr)
    sys.exit(code)


try:
    import torch
except ImportError:
    fail("there is no PyTorch here.  Get its CPU build: pip install torch", 2)

# ---- the library ----


class AbiEntry(ctypes.Structure):
    _fields_ = [("name", text), ("bytes", size_t)]


class Settings(ctypes.Structure):
    _fields_ = [("threads", u32), ("kernels", enum), ("fast", enum), ("log_level", enum), ("log", pointer),
                ("log_user", pointer), ("reserved", u64 * 4)]


class GroupConfig(ctypes.Structure):
    _fields_ = [("struct_size", size_t), ("settings", Settings), ("timeout_ms", u64), ("cells", pointer),
                ("machine", ctypes.c_int64), ("link", pointer)]


class Param(ctypes.Structure):
    _fields_ = [("data", pointer), ("grad", pointer), ("grad_present", u32), ("requires_grad", u32), ("dtype", enum),
                ("grad_dtype", enum), ("device", ctypes.c_int32), ("layout", enum), ("n_dims", u32), ("reserved32", u32),
                ("name", text), ("shape", size_t * 8), ("memory", pointer), ("reserved", u64 * 3)]


class AllocConfig(ctypes.Structure):
    _fields_ = [("struct_size", size_t), ("data", enum), ("grads", enum), ("data_kind", enum)]


class Value(ctypes.Structure):
    _fields_ = [("name", text), ("value", real)]


class ParamGroup(ctypes.Structure):
    _fields_ = [("params", ctypes.POINTER(Param)), ("index", ctypes.POINTER(size_t)), ("n", size_t), ("config", pointer),
                ("values", ctypes.POINTER(Value)), ("n_values", size_t), ("owners", pointer), ("reserved", u64 * 3)]


class OptimConfig(ctypes.Structure):
    _fields_ = [("struct_size", size_t), ("settings", Settings), ("masters", enum), ("rounding", enum), ("seed", u64),
                ("clip_norm", real), ("clip_norm_type", real), ("clip_value", real), ("skip_non_finite", enum),
                ("loss_scale", enum), ("scale_init", real), ("scale_growth", real), ("scale_backoff", real),
                ("growth_interval", u32), ("plan", pointer), ("parameters_as_bucket_view", enum),
                ("ddp", pointer)]


class Slot(ctypes.Structure):
    _fields_ = [("data", pointer), ("first", size_t), ("count", size_t), ("dtype", enum), ("present", u32),
                ("reserved", u64 * 4)]


class Stats(ctypes.Structure):
    _fields_ = [("struct_size", size_t)] + [(name, u64) for name in (
        "operations", "direct_bytes", "link_bytes", "link_messages", "waits", "sleeps", "wait_ns", "heap_bytes",
        "heap_peak_bytes", "shared_bytes", "control_bytes", "deliveries", "state_bytes", "passes",
        "allocations")]


STRUCTS = {"zro_abi_entry": AbiEntry, "zro_settings": Settings, "zro_group_config": GroupConfig, "zro_param": Param,
           "zro_alloc_config": AllocConfig, "zro_value": Value, "zro_param_group": ParamGroup, "zro_optim_config": OptimConfig,
           "zro_slot": Slot, "zro_stats": Stats}

out = ctypes.POINTER(pointer)
STATUS, NOTHING = enum, None
CALLS = {  # name: (result, arguments)
    "zro_abi": (ctypes.POINTER(AbiEntry), [ctypes.POINTER(size_t)]),
    "zro_version": (text, []),
    "zro_last_error": (text, []),
    "zro_group_config_init": (NOTHING, [ctypes.POINTER(GroupConfig)]),
    "zro_group_ticket": (STATUS, [ctypes.POINTER(GroupConfig), enum, enum, pointer]),
    "zro_group_create_tickets": (STATUS, [ctypes.POINTER(GroupConfig), enum, enum, pointer, out]),
    "zro_group_destroy": (NOTHING, [pointer]),
    "zro_group_stats": (STATUS, [pointer, ctypes.POINTER(Stats)]),
    "zro_stats_init": (NOTHING, [ctypes.POINTER(Stats)]),
    "zro_barrier": (STATUS, [pointer]),
    "zro_memory_alloc": (STATUS, [pointer, enum, size_t, out]),
    "zro_memory_free": (NOTHING, [pointer]),
    "zro_param_init": (NOTHING, [ctypes.POINTER(Param)]),
    "zro_params_alloc": (STATUS, [pointer, ctypes.POINTER(Param), size_t, ctypes.POINTER(AllocConfig)]),
    "zro_params_free": (NOTHING, [ctypes.POINTER(Param), size_t]),
    "zro_alloc_config_init": (NOTHING, [ctypes.POINTER(AllocConfig)]),
    "zro_rule_find": (pointer, [text]),
    "zro_optim_config_init": (NOTHING, [ctypes.POINTER(OptimConfig)]),
    "zro_optim_create": (STATUS, [pointer, ctypes.POINTER(ParamGroup), size_t, pointer, pointer, ctypes.POINTER(OptimConfig),
                                  out]),
    "zro_optim_step": (STATUS, [pointer, pointer]),
    "zro_optim_stats": (STATUS, [pointer, ctypes.POINTER(Stats)]),
    "zro_optim_consolidate": (STATUS, [pointer, enum, out]),
    "zro_optim_destroy": (NOTHING, [pointer]),
    "zro_state_slot": (STATUS, [pointer, size_t, text, ctypes.POINTER(Slot)]),
    "zro_state_destroy": (NOTHING, [pointer]),
}


class Zro:
    """The calls that are needed, with their types; fails if the library's structs are not those above."""

    def __init__(self, path):
        try:
            self.lib = ctypes.CDLL(path)
            for name, (result, arguments) in CALLS.items():
                call = getattr(self.lib, name)
                call.restype, call.argtypes = result, arguments
        except (OSError, AttributeError) as error:
            fail(error, 2)
        count = size_t()
        entries = self.lib.zro_abi(ref(count))
        theirs = {entries[i].name.decode(): entries[i].bytes for i in range(count.value)}
        for name, ours in STRUCTS.items():
            if theirs.get(name) != ctypes.sizeof(ours):
                fail(f"{name} has {theirs.get(name, 'no')} bytes in the library and {ctypes.sizeof(ours)} here: "
                     "bring the structs of zro_ctypes.py up to date")

    def check(self, status):
        if status != 0:
            fail(f"zro: {self.lib.zro_last_error().decode()}")

    def version(self):
        return self.lib.zro_version().decode()

    def params(self, tensors, data=True):
        """torch's tensors as zro's parameters; data=False: without their data, to be handed out."""
        params = (Param * len(tensors))()
        for param, tensor in zip(params, tensors):
            assert tensor.is_contiguous() and tensor.dtype == torch.float32 and tensor.grad.is_contiguous()
            self.lib.zro_param_init(ref(param))
            param.data = tensor.data_ptr() if data else None
            param.grad, param.grad_present = tensor.grad.data_ptr(), 1
            param.n_dims = tensor.dim()
            for i, length in enumerate(tensor.shape):
                param.shape[i] = length
        return params


class ZroOptim:
    """An optimizer of zro's; the tensors that the parameters were made from must stay as they are."""

    def __init__(self, zro, rule, params, values, threads=1, group=None, views=False):
        self.zro, self.params, self.handle = zro, params, pointer()
        self.values = (Value * len(values))(*[Value(name.encode(), value) for name, value in values.items()])
        self.groups = ParamGroup(params=params, n=len(params), values=self.values, n_values=len(values))
        self.config, self.group, self.rule = OptimConfig(), group, zro.lib.zro_rule_find(rule.encode())
        zro.lib.zro_optim_config_init(ref(self.config))
        self.config.settings.threads = threads
        self.config.parameters_as_bucket_view = views

    def create(self):
        self.zro.check(self.zro.lib.zro_optim_create(self.group, ref(self.groups), 1, self.rule, None, ref(self.config),
                                                     ref(self.handle)))
        return self

    def step(self):
        self.zro.check(self.zro.lib.zro_optim_step(self.handle, None))

    def destroy(self):
        self.zro.lib.zro_optim_destroy(self.handle)
        self.handle = pointer()


def tensor_at(address, shape):
    """Memory of zro's as a tensor of torch's."""
    array = (ctypes.c_float * torch.Size(shape).numel()).from_address(address)
    return torch.frombuffer(array, dtype=torch.float32).view(shape)


# ---- lists of tensors ----


def gpt2_shapes(layers):
    width, vocabulary, context = 768, 50257, 1024
    layer = [(width,), (width,), (width, 3 * width), (3 * width,), (width, width), (width,),
             (width,), (width,), (width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    return [(vocabulary, width), (context, width)] + layer * layers + [(width,), (width,)]


def tiny_shapes(count):
    lengths = torch.randint(16, 128, (count,), generator=torch.Generator().manual_seed(1))
    return [(length,) for length in lengths.tolist()]


def elements(shapes):
    return sum(torch.Size(shape).numel() for shape in shapes)


def make_set(shapes, grads=None):
    """Parameters, equal each time, with gradients of their own or with those of another set."""
    values, slopes = torch.Generator().manual_seed(2), torch.Generator().manual_seed(3)
    tensors = []
    for i, shape in enumerate(shapes):
        p = torch.nn.Parameter(torch.empty(shape).normal_(0, 0.02, generator=values))
        p.grad = grads[i].grad if grads is not None else torch.empty(shape).normal_(0, 0.01, generator=slopes)
        tensors.append(p)
    return tensors


def distance(theirs, ours, largest_grad=0.0):
    """The worst |ours - theirs| / tolerance of the golden vectors, over one tensor."""
    x, y = theirs.detach().double(), ours.detach().double()
    return ((x - y).abs() / (2e-6 * x.abs() + 2e-7 * max(1, largest_grad))).max().item()


def check_memory(what, need):
    with open("/proc/meminfo", encoding="ascii") as file:
        available = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:")) * 1024
    if need > available:
        fail(f"{what} needs about {need >> 20} MB, the machine has {available >> 20} MB")


# ---- samples ----


def switches():
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def timed(call, ready=None):
    """Seconds, and how often a thread lost its processor.  The pause lets the other's threads fall asleep."""
    time.sleep(0.02)
    if ready is not None:
        ready()
    before, start = switches(), time.perf_counter_ns()
    call()
    seconds = (time.perf_counter_ns() - start) / 1e9
    return seconds, switches() - before


def quantile(sorted_values, q):
    at = q * (len(sorted_values) - 1)
    low = int(at)
    high = min(low + 1, len(sorted_values) - 1)
    return sorted_values[low] + (sorted_values[high] - sorted_values[low]) * (at - low)


def summary(taken):
    """What a row says of samples of timed()."""
    seconds = sorted(s for s, _ in taken)
    return {"median_ms": round(quantile(seconds, 0.5) * 1e3, 4), "q1_ms": round(quantile(seconds, 0.25) * 1e3, 4),
            "q3_ms": round(quantile(seconds, 0.75) * 1e3, 4), "samples": len(taken),
            "disturbed": sum(lost > 0 for _, lost in taken)}


def times(row):
    """The columns of a table: median, quartiles; and the number of samples."""
    disturbed = f" ({row['disturbed']} disturbed)" if row["disturbed"] else ""
    return f"{row['median_ms']:.2f} | {row['q1_ms']:.2f}-{row['q3_ms']:.2f}", f"{row['samples']}{disturbed}"


def progress(line):
    if sys.stderr.isatty():
        print(f"\r{line}\033[K", end="", file=sys.stderr, flush=True)


# ---- the command line ----


def names_of(known):
    """An argument's type: some of these names, with commas."""
    def read(line):
        values = line.split(",")
        for value in values:
            if value not in known:
                raise argparse.ArgumentTypeError(f"there is no {value!r}, only {', '.join(known)}")
        return values
    return read


def about(zro):
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        machine = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown processor")
    return {"zro": zro.version(), "torch": torch.__version__, "machine": machine,
            "processors": len(os.sched_getaffinity(0)), "date": time.strftime("%Y-%m-%d", time.gmtime())}


def heading(facts):
    return f"{facts['machine']}, {facts['date']}, zro {facts['zro']}, torch {facts['torch']}"
