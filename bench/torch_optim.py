#!/usr/bin/env python3
"""zro's optimizers side by side with PyTorch's:  bench/torch_optim.py build/lib/libzro.so

One process holds two equal sets of torch's own tensors: PyTorch's optimizers step the first, zro steps the second in place, through
nothing but the shared library and the layout of its public structs.  Two lists: "gpt2", the 148 tensors of GPT-2 124M, and "tiny",
100,000 tensors of 16 to 127 floats.

Times on a shared machine are not comparable from one second to the next.  So in each repetition every contender makes one step,
beginning with another one each time, on the same processors and with as many threads; what counts is the ratio of medians.  Before
that, three steps with changing gradients must give both sets the same parameters, within the tolerance of the golden vectors.
"""
import argparse
import ctypes
import gc
import json
import os
import resource
import sys
import time

try:
    import torch
except ImportError:
    print("torch_optim.py: there is no PyTorch here.  Get its CPU build: pip install torch", file=sys.stderr)
    sys.exit(2)

# ---- the library ----

size_t, u32, u64, real, pointer = ctypes.c_size_t, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_double, ctypes.c_void_p
enum = ctypes.c_int


class AbiEntry(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("bytes", size_t)]


class Settings(ctypes.Structure):
    _fields_ = [("threads", u32), ("kernels", enum), ("fast", enum), ("log_level", enum), ("log", pointer), ("log_user", pointer),
                ("reserved", u64 * 4)]


class Param(ctypes.Structure):
    _fields_ = [("data", pointer), ("grad", pointer), ("grad_present", u32), ("requires_grad", u32), ("dtype", enum),
                ("grad_dtype", enum), ("device", ctypes.c_int32), ("layout", enum), ("n_dims", u32), ("reserved32", u32),
                ("name", ctypes.c_char_p), ("shape", size_t * 8), ("reserved", u64 * 4)]


class Value(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", real)]


class ParamGroup(ctypes.Structure):
    _fields_ = [("params", ctypes.POINTER(Param)), ("index", ctypes.POINTER(size_t)), ("n", size_t), ("config", pointer),
                ("values", ctypes.POINTER(Value)), ("n_values", size_t), ("reserved", u64 * 4)]


class OptimConfig(ctypes.Structure):
    _fields_ = [("struct_size", size_t), ("settings", Settings), ("masters", enum), ("rounding", enum), ("seed", u64),
                ("clip_norm", real), ("clip_norm_type", real), ("clip_value", real), ("skip_non_finite", enum),
                ("loss_scale", enum), ("scale_init", real), ("scale_growth", real), ("scale_backoff", real),
                ("growth_interval", u32)]


STRUCTS = {"zro_abi_entry": AbiEntry, "zro_settings": Settings, "zro_param": Param, "zro_value": Value,
           "zro_param_group": ParamGroup, "zro_optim_config": OptimConfig}


def fail(text, code=1):
    print(f"torch_optim.py: {text}", file=sys.stderr)
    sys.exit(code)


class Zro:
    """The calls that are needed, with their types; fails if the library's structs are not those above."""

    def __init__(self, path):
        try:
            self.lib = lib = ctypes.CDLL(path)
        except OSError as error:
            fail(error, 2)
        lib.zro_abi.restype = ctypes.POINTER(AbiEntry)
        lib.zro_abi.argtypes = [ctypes.POINTER(size_t)]
        lib.zro_version.restype = lib.zro_last_error.restype = ctypes.c_char_p
        lib.zro_rule_find.restype = pointer
        lib.zro_rule_find.argtypes = [ctypes.c_char_p]
        lib.zro_param_init.argtypes = [ctypes.POINTER(Param)]
        lib.zro_optim_config_init.argtypes = [ctypes.POINTER(OptimConfig)]
        lib.zro_optim_create.argtypes = [pointer, ctypes.POINTER(ParamGroup), size_t, pointer, pointer,
                                         ctypes.POINTER(OptimConfig), ctypes.POINTER(pointer)]
        lib.zro_optim_step.argtypes = [pointer, pointer]
        lib.zro_optim_destroy.argtypes = [pointer]
        lib.zro_optim_destroy.restype = None
        self.check_sizes()

    def check_sizes(self):
        count = size_t()
        entries = self.lib.zro_abi(ctypes.byref(count))
        theirs = {entries[i].name.decode(): entries[i].bytes for i in range(count.value)}
        for name, ours in STRUCTS.items():
            if theirs.get(name) != ctypes.sizeof(ours):
                fail(f"{name} has {theirs.get(name, 'no')} bytes in the library and {ctypes.sizeof(ours)} here: "
                     "bring the structs of this program up to date")

    def check(self, status):
        if status != 0:
            fail(f"zro: {self.lib.zro_last_error().decode()}")


class ZroOptim:
    """An optimizer of zro's on torch's tensors, which must stay as they are."""

    def __init__(self, zro, rule, tensors, threads, values):
        self.zro, self.handle = zro, pointer()
        self.params = (Param * len(tensors))()
        for param, tensor in zip(self.params, tensors):
            assert tensor.is_contiguous() and tensor.dtype == torch.float32 and tensor.grad.is_contiguous()
            zro.lib.zro_param_init(ctypes.byref(param))
            param.data, param.grad, param.grad_present = tensor.data_ptr(), tensor.grad.data_ptr(), 1
            param.n_dims = tensor.dim()
            for i, length in enumerate(tensor.shape):
                param.shape[i] = length
        self.values = (Value * len(values))(*[Value(name.encode(), value) for name, value in values.items()])
        group = ParamGroup(params=self.params, n=len(tensors), values=self.values, n_values=len(values))
        config = OptimConfig()
        zro.lib.zro_optim_config_init(ctypes.byref(config))
        config.settings.threads = threads
        zro.check(zro.lib.zro_optim_create(None, ctypes.byref(group), 1, zro.lib.zro_rule_find(rule.encode()), None,
                                           ctypes.byref(config), ctypes.byref(self.handle)))

    def step(self):
        self.zro.check(self.zro.lib.zro_optim_step(self.handle, None))

    def destroy(self):
        self.zro.lib.zro_optim_destroy(self.handle)
        self.handle = pointer()


# ---- what is measured ----

RULES = {"adam": (torch.optim.Adam, {}), "adamw": (torch.optim.AdamW, {}), "sgd": (torch.optim.SGD, {"momentum": 0.9})}
FORMS = {"default": {}, "foreach": {"foreach": True}, "fused": {"fused": True}}
RULES_OF = {"gpt2": ["adam", "adamw", "sgd"], "tiny": ["adam"]}


def gpt2_shapes(layers):
    width, vocabulary, context = 768, 50257, 1024
    layer = [(width,), (width,), (width, 3 * width), (3 * width,), (width, width), (width,),
             (width,), (width,), (width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    return [(vocabulary, width), (context, width)] + layer * layers + [(width,), (width,)]


def tiny_shapes(count):
    lengths = torch.randint(16, 128, (count,), generator=torch.Generator().manual_seed(1))
    return [(length,) for length in lengths.tolist()]


def make_set(shapes):
    """Parameters with gradients; equal each time."""
    generator = torch.Generator().manual_seed(2)
    tensors = []
    for shape in shapes:
        p = torch.nn.Parameter(torch.empty(shape).normal_(0, 0.02, generator=generator))
        p.grad = torch.empty(shape).normal_(0, 0.01, generator=generator)
        tensors.append(p)
    return tensors


def check_memory(shapes, rule):
    arrays = 1 if rule == "sgd" else 2  # of state; and torch's temporaries
    need = sum(torch.Size(s).numel() for s in shapes) * 4 * (2 + 2 + arrays * (len(FORMS) + 1) + 4)
    with open("/proc/meminfo", encoding="ascii") as file:
        available = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:")) * 1024
    if need > available:
        fail(f"{rule} needs about {need >> 20} MB, the machine has {available >> 20} MB")


def verify(zro, rule, shapes, threads):
    """Three steps, each with other gradients: the worst |zro - torch| / tolerance over all parameters."""
    make, values = RULES[rule]
    theirs, ours = make_set(shapes), make_set(shapes)
    first, second = make(theirs, foreach=False, **values), ZroOptim(zro, rule, ours, threads, values)
    largest = [0.0] * len(shapes)
    for step in range(3):
        for i, (a, b) in enumerate(zip(theirs, ours)):
            a.grad.mul_(-0.75 if step else 1)
            b.grad.copy_(a.grad)
            largest[i] = max(largest[i], a.grad.abs().max().item())
        first.step()
        second.step()
    second.destroy()
    worst = 0.0
    for a, b, g in zip(theirs, ours, largest):
        x, y = a.detach().double(), b.detach().double()
        tolerance = 2e-6 * x.abs() + 2e-7 * max(1, g)
        worst = max(worst, ((x - y).abs() / tolerance).max().item())
    if not worst <= 1:
        fail(f"{rule}: after three steps zro's parameters are {worst:.3g} tolerances away from torch's")
    return worst


# ---- samples ----

def switches():
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def timed(step):
    """Seconds, and how often a thread lost its processor.  The pause lets the other's threads fall asleep."""
    time.sleep(0.02)
    before, start = switches(), time.perf_counter_ns()
    step()
    seconds = (time.perf_counter_ns() - start) / 1e9
    return seconds, switches() - before


def quantile(sorted_values, q):
    at = q * (len(sorted_values) - 1)
    low = int(at)
    high = min(low + 1, len(sorted_values) - 1)
    return sorted_values[low] + (sorted_values[high] - sorted_values[low]) * (at - low)


def progress(text):
    if sys.stderr.isatty():
        print(f"\r{text}\033[K", end="", file=sys.stderr, flush=True)


def measure(contenders, options, title):
    """contenders: {name: step}.  Slow ones get fewer samples."""
    samples, wanted = {name: [] for name in contenders}, {}
    for name, step in contenders.items():  # not counted: state and threads come into being
        progress(f"{title}, {name}, first step")
        step()
        wanted[name] = options.slow_samples if timed(step)[0] > options.slow else options.samples
    names = list(contenders)
    gc.collect()
    gc.disable()
    for repetition in range(max(wanted.values())):
        progress(f"{title}, {repetition + 1} of {max(wanted.values())}")
        turn = repetition % len(names)
        for name in names[turn:] + names[:turn]:
            if len(samples[name]) < wanted[name]:
                samples[name].append(timed(contenders[name]))
    gc.enable()
    return samples


def measure_rule(zro, rule, shapes, options, title, rows, list_name):
    make, values = RULES[rule]
    check_memory(shapes, rule)
    progress(f"{title}: do they agree?")
    worst = verify(zro, rule, shapes, max(options.threads))
    theirs, ours = make_set(shapes), make_set(shapes)
    for threads in options.threads:
        use_processors(threads)
        torch.set_num_threads(threads)
        mine = ZroOptim(zro, rule, ours, threads, values)
        contenders = {}
        for form, how in FORMS.items():
            if form in options.forms:
                contenders[f"torch {form}"] = make(theirs, **how, **values).step
        contenders["zro"] = mine.step
        samples = measure(contenders, options, f"{title}, {threads} threads")
        mine.destroy()
        medians = {name: quantile(sorted(s for s, _ in taken), 0.5) for name, taken in samples.items()}
        for name, taken in samples.items():
            seconds = sorted(s for s, _ in taken)
            rows.append({"list": list_name, "rule": rule, "threads": threads, "contender": name,
                         "median_ms": round(medians[name] * 1e3, 4), "q1_ms": round(quantile(seconds, 0.25) * 1e3, 4),
                         "q3_ms": round(quantile(seconds, 0.75) * 1e3, 4), "ratio": round(medians[name] / medians["zro"], 4),
                         "samples": len(taken), "disturbed": sum(lost > 0 for _, lost in taken), "worst": round(worst, 4)})
        del contenders
        gc.collect()


ALLOWED = sorted(os.sched_getaffinity(0))


def use_processors(threads):
    """The calling thread, and those that it starts from now on."""
    os.sched_setaffinity(0, ALLOWED[:threads] if threads <= len(ALLOWED) else ALLOWED)


# ---- the command line ----

def numbers(text):
    values = [int(part) for part in text.split(",")]
    if not values or min(values) < 1:
        raise argparse.ArgumentTypeError("must be whole numbers from 1 on, with commas")
    return values


def names_of(known):
    def read(text):
        values = text.split(",")
        for value in values:
            if value not in known:
                raise argparse.ArgumentTypeError(f"there is no {value!r}, only {', '.join(known)}")
        return values
    return read


def read_options():
    parser = argparse.ArgumentParser(description="zro's optimizers side by side with PyTorch's.")
    parser.add_argument("library", help="libzro.so")
    parser.add_argument("--lists", type=names_of(RULES_OF), default=list(RULES_OF), help="of gpt2, tiny; default: both")
    parser.add_argument("--rules", type=names_of(RULES), default=list(RULES), help="of adam, adamw, sgd (tiny: adam alone)")
    parser.add_argument("--forms", type=names_of(FORMS), default=list(FORMS), help="of default, foreach, fused; default: all of torch's")
    parser.add_argument("--threads", type=numbers, default=[1, 2], help="default: 1,2")
    parser.add_argument("--samples", type=int, default=11, help="of each contender; default: 11")
    parser.add_argument("--slow", type=float, default=1.0, help="a step that takes more seconds than this is slow; default: 1")
    parser.add_argument("--slow-samples", type=int, default=5, help="of slow contenders; default: 5")
    parser.add_argument("--layers", type=int, default=12, help="of gpt2; fewer make a smaller list")
    parser.add_argument("--tensors", type=int, default=100000, help="of tiny")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    if min(options.samples, options.slow_samples, options.tensors) < 1 or options.layers < 0:
        parser.error("samples and tensors must be at least 1, layers not negative")
    return options


def print_table(rows, about):
    print(f"{about['machine']}, {about['date']}, zro {about['zro']}, torch {about['torch']}\n")
    print("| list | rule | threads | contender | median ms | quartiles | time / zro's | samples |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(f"| {row['list']} | {row['rule']} | {row['threads']} | {row['contender']} | {row['median_ms']:.2f} | "
              f"{row['q1_ms']:.2f}-{row['q3_ms']:.2f} | {row['ratio']:.2f} | {row['samples']}"
              f"{' (' + str(row['disturbed']) + ' disturbed)' if row['disturbed'] else ''} |")
    print(f"\nAfter three steps parameters differed by at most {max(row['worst'] for row in rows):.2f} of the tolerance.")


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown processor")


def main():
    options = read_options()
    zro = Zro(options.library)
    shapes = {"gpt2": gpt2_shapes(options.layers), "tiny": tiny_shapes(options.tensors)}
    rows = []
    for list_name in options.lists:
        for rule in RULES_OF[list_name]:
            if rule in options.rules:
                measure_rule(zro, rule, shapes[list_name], options, f"{list_name}, {rule}", rows, list_name)
    progress("")
    about = {"zro": zro.lib.zro_version().decode(), "torch": torch.__version__, "machine": machine(),
             "processors": len(ALLOWED), "date": time.strftime("%Y-%m-%d", time.gmtime())}
    if not rows:
        fail("nothing to measure: tiny has adam alone", 2)
    if options.json:
        print(json.dumps({**about, "rows": rows}, indent=1))
    else:
        print_table(rows, about)


if __name__ == "__main__":
    main()
