"""What the programs here that compare zro with PyTorch share: the library, lists of tensors, samples.
"""
import argparse
import ctypes
import os
import resource
import subprocess
import sys
import time

size_t, pointer, ref = ctypes.c_size_t, ctypes.c_void_p, ctypes.byref


def fail(reason, code=1):
    print(f"{os.path.basename(sys.argv[0])}: {reason}", file=sys.stderr)
    sys.exit(code)


def use_venv():
    """Begins anew with the interpreter of scripts/venv, which has PyTorch, or ends with what it says."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "scripts", "venv")
    made = subprocess.run([script, "torch"], stdout=subprocess.PIPE, text=True, check=False)
    if made.returncode != 0:
        sys.exit(made.returncode)
    python = made.stdout.strip()
    os.execv(python, [python, *sys.argv])


try:
    import torch
except ImportError:
    use_venv()

# ---- the library ----


class Zro:
    """A library by the binding of the package zro (python/zro/_c.py): a call that fails raises zro.Error with the library's text."""

    def __init__(self, path):
        os.environ["ZRO_LIBRARY"] = os.path.abspath(path)
        sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
        try:
            from zro import _c
        except ImportError as error:
            fail(error, 2)
        self.c, self.lib, self.new = _c, _c.lib, _c.new

    def version(self):
        return self.lib.zro_version()

    def params(self, tensors, data=True):
        """torch's tensors as zro's parameters; data=False: without their data, to be handed out."""
        params = (self.c.zro_param * len(tensors))()
        for param, tensor in zip(params, tensors):
            assert tensor.is_contiguous() and tensor.dtype == torch.float32 and tensor.grad.is_contiguous()
            self.lib.zro_param_init(ref(param))
            param.data = tensor.data_ptr() if data else None
            param.grad, param.grad_present = tensor.grad.data_ptr(), 1
            param.n_dims = tensor.dim()
            for i, length in enumerate(tensor.shape):
                param.shape[i] = length
        return params


class ZroDdp:
    """A ddp of zro's with an attached Adam; step() is a training step without forward and backward."""

    def __init__(self, zro, group, params):
        self.zro, self.params, self.handle = zro, params, pointer()
        self.order = (size_t * len(params))(*reversed(range(len(params))))
        zro.lib.zro_ddp_create(group, params, len(params), None, ref(self.handle))
        self.optim = ZroOptim(zro, "adam", params, {}, group=group, ddp=self.handle).create()

    def step(self):
        lib = self.zro.lib
        lib.zro_ddp_forward(self.handle)
        lib.zro_ddp_grads_ready(self.handle, self.order, len(self.order))
        lib.zro_ddp_backward_end(self.handle)
        self.optim.step()

    def destroy(self):
        self.optim.destroy()
        self.zro.lib.zro_ddp_destroy(self.handle)


class ZroOptim:
    """An optimizer of zro's; the tensors that the parameters were made from must stay as they are."""

    def __init__(self, zro, rule, params, values, threads=1, group=None, views=False, ddp=None):
        self.zro, self.params, self.handle = zro, params, pointer()
        value_type = zro.c.zro_value
        self.values = (value_type * len(values))(*[value_type(name.encode(), value) for name, value in values.items()])
        self.groups = zro.c.zro_param_group(params=params, n=len(params), values=self.values, n_values=len(values))
        self.config, self.group, self.rule = zro.new(zro.c.zro_optim_config), group, zro.lib.zro_rule_find(rule)
        self.config.settings.threads = threads
        self.config.parameters_as_bucket_view = views
        self.config.ddp = ddp

    def create(self):
        self.zro.lib.zro_optim_create(self.group, ref(self.groups), 1, self.rule, None, ref(self.config), ref(self.handle))
        return self

    def step(self):
        self.zro.lib.zro_optim_step(self.handle, None)

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
    """The worst |ours - theirs| / tolerance of the golden vectors, over one tensor: in pieces that fit the caches."""
    piece, worst = 1 << 17, []
    for x, y in zip(theirs.detach().flatten().split(piece), ours.detach().flatten().split(piece)):
        x, y = x.double(), y.double()
        worst.append(((x - y).abs() / (2e-6 * x.abs() + 2e-7 * max(1, largest_grad))).max())
    return torch.stack(worst).max().item()


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
