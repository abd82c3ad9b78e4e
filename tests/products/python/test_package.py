"""Tests of the package `zro` on NumPy arrays; ranks are threads, or processes where that matters.

   ZRO_LIBRARY=build/lib/libzro.so PYTHONPATH=python python tests/products/python/test_package.py
"""
import contextlib
import ctypes
import gc
import io
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import weakref

import numpy
import zro
from zro import _c, _core, _header

ROOT = pathlib.Path(__file__).resolve().parents[3]


def on(size, function, *arguments, method="threads", **settings):
    return zro.spawn(function, size, *arguments, method=method, **settings)


def make_params(**keywords):
    start = numpy.random.default_rng(1)
    return zro.Params({"w": start.normal(size=(40, 30)).astype("f4"), "b": start.normal(size=50).astype("f4"),
                       "s": start.normal(size=()).astype("f4")}, **keywords)


def gradients(step, rank=0):
    start = numpy.random.default_rng((step, rank))
    return [start.normal(size=shape).astype("f4") for shape in ((40, 30), (50,), ())]


def train(params, optim, steps, rank=0, first=0):
    for step in range(first, first + steps):
        for param, grad in zip(params, gradients(step, rank)):
            param.grad = grad
        optim.step()
    return params.hash()


class Binding(unittest.TestCase):
    """_header.py and _c.py are the public header and the library."""

    def test_names(self):
        symbols = set((ROOT / "include" / "symbols.txt").read_text(encoding="ascii").split())
        self.assertEqual(symbols, set(_header.FUNCTIONS))
        header = (ROOT / "include" / "zro.h").read_text(encoding="utf-8")
        for name in symbols:
            self.assertEqual(f"ZRO_MUST zro_status {name}(" in header, _header.FUNCTIONS[name][0] is _header.MUST, name)

    def test_sizes(self):
        count = ctypes.c_size_t()
        entries = _c.lib.zro_abi(ctypes.byref(count))
        sizes = {entry.name.decode(): entry.bytes for entry in entries[:count.value]}
        structs = {name: ctypes.sizeof(kind) for name, kind in vars(_header).items()
                   if isinstance(kind, type) and issubclass(kind, ctypes.Structure) and kind is not ctypes.Structure}
        self.assertEqual(sizes, structs)

    def test_up_to_date(self):
        subprocess.run([sys.executable, ROOT / "scripts" / "bindings"], check=True)

    def test_no_torch(self):
        code = "import sys, zro; sys.exit('torch' in sys.modules)"
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_wrong_library(self):
        for library, text in (("/nowhere/libzro.so", "ZRO_LIBRARY"), ("libm.so.6", "is not zro's library")):
            done = subprocess.run([sys.executable, "-c", "import zro"], env={**os.environ, "ZRO_LIBRARY": library}, check=False,
                                  capture_output=True, text=True)
            self.assertIn(text, done.stderr)
            self.assertIn("ImportError", done.stderr)

    def test_source_folder(self):
        """Without a library, the package in the source tree says that it hides an installed one."""
        env = {name: value for name, value in os.environ.items() if name not in ("ZRO_LIBRARY", "PYTHONPATH")}
        done = subprocess.run([sys.executable, "-c", "import zro"], cwd=ROOT / "python", env=env, check=False, capture_output=True, text=True)
        if done.returncode != 0:  # 0: a library is installed where the system finds it
            self.assertIn(f"{ROOT / 'python'} is a folder of zro's sources", done.stderr)

    def test_other_version(self):
        code = ("import sys, types; package = types.ModuleType('zro'); package.__path__ = [sys.argv[1]]\n"
                "sys.modules['zro'] = package; import zro._header as header\n"
                "header.ZRO_VERSION = '9.9.9'; import zro._c\n")
        done = subprocess.run([sys.executable, "-c", code, os.path.dirname(zro.__file__)], check=False, capture_output=True, text=True)
        self.assertIn(f"is version {zro.__version__} of zro's library, and this package needs 9.9.9", done.stderr)

    def test_errors(self):
        self.assertEqual(sorted(_c.ERRORS), list(range(1, 11)))
        with self.assertRaisesRegex(zro.SystemError, "/nowhere") as caught:
            zro.State.read("/nowhere")
        self.assertIsInstance(caught.exception, OSError)
        self.assertEqual(caught.exception.status, _c.ZRO_ERR_SYSTEM)
        with self.assertRaisesRegex(ValueError, "lr = -1"):
            zro.Optimizer(make_params(), zro.sgd(lr=-1))
        with self.assertRaisesRegex(TypeError, "no value 'momentun', only lr, momentum"):
            zro.sgd(momentun=0.9)
        with self.assertRaisesRegex(TypeError, "no setting 'clip', only"):
            zro.Optimizer(make_params(), zro.sgd(), clip=1)
        with self.assertRaisesRegex(ValueError, "kernels = 'newest' is not known to zro, only auto, base, avx2, avx512"):
            zro.Group(kernels="newest")
        for op in ("mean", "ok"):  # ZRO_OK is a constant, and no op
            with self.assertRaisesRegex(ValueError, f"op = '{op}' is not known to zro, only sum, avg, min, max"):
                zro.Group().all_reduce(numpy.ones(2), op)
        for rule, name in (("adamw", "adamw"), (zro.sgd, "sgd"), ("newest", "adamw"), (3, "adamw")):
            for settings in ({}, {"lr": 3}):
                with self.assertRaisesRegex(TypeError, rf"is not a rule; a rule is made by zro\.{name}\(lr=\.\.\.\)"):
                    zro.Optimizer(make_params(), rule, **settings)
        for name in ("lr", "betas"):
            with self.assertRaisesRegex(TypeError, rf"{name} is a value of the rule: zro\.adam\({name}=\.\.\.\)"):
                zro.Optimizer(make_params(), zro.adam(), **{name: 3})

    def test_constants(self):
        for what, (prefix, texts) in _core.TEXTS.items():
            for text in texts.split():
                self.assertEqual(_core.constant(what, text), getattr(_header, prefix + text.upper()), (what, text))
            if prefix != "ZRO_":
                known = {name[len(prefix):].lower() for name in vars(_header) if name.startswith(prefix)}
                self.assertEqual(set(texts.split()), known, what)


class Texts(unittest.TestCase):
    """Texts of the library name what the package has, and not calls of C."""

    # Texts with these are about mistakes that a program in Python cannot make.
    C_ALONE = {"zro_ddp_joinable", "zro_optim_joinable", "zro_optim_set_user", "zro_param_make", "zro_rule_find", "zro_rule_none"}

    def test_words(self):
        named = set()
        for path in (ROOT / "src").rglob("*.[ch]"):
            code = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.S)
            for text in re.findall(r'"((?:[^"\\\n]|\\.)*)"', code):
                named.update(re.findall(r"zro_\w+", text))
        self.assertEqual(named & set(_header.FUNCTIONS), {word for word in _c.WORDS if word in _header.FUNCTIONS} | self.C_ALONE)
        for word in _c.WORDS.values():
            for name in re.findall(r"[A-Za-z_.]+(?=\()|[A-Z]\w+\.\w+", word):
                value = zro
                for part in name.replace("zro.", "").split("."):
                    value = getattr(value, part)

    def test_errors(self):
        params = make_params()
        with zro.Group() as group:
            ddp = zro.Ddp(group, params)
            with self.assertRaisesRegex(zro.StateError, r"call Ddp\.forward\(\) first"):
                ddp.backward_end()
            optim = zro.Optimizer(params, zro.sgd(), group, ddp)
            with self.assertRaisesRegex(zro.StateError, r"call Ddp\.forward\(\), backward, and Ddp\.backward_end\(\)"):
                optim.step()

    def test_log(self):
        """Lines of the log: in a function of the program's, or on Python's standard error."""
        lines = []
        zro.Optimizer(make_params(), zro.sgd(), log=lambda level, text: lines.append(text)).step()
        with contextlib.redirect_stderr(io.StringIO()) as said:
            zro.Optimizer(make_params(), zro.sgd()).step()
            params = make_params(grads=True, grad_dtype="f32")
            params["w"].grad += 1
            params["w"].requires_grad = False
            zro.Optimizer(params, zro.sgd())
        self.assertEqual(len(lines), 1)
        self.assertIn("after backward call Params.mark_grads() or set Param.grad, or set has_grad", lines[0])
        self.assertIn(f"zro warning: {lines[0]}\n", said.getvalue())
        self.assertIn("set requires_grad = True, or leave the gradient out", said.getvalue())
        self.assertNotIn("zro_", said.getvalue())

    def test_log_of_ranks(self):
        def rank(group):
            params = make_params()
            optim = zro.Optimizer(params, zro.sgd(), group)
            for param, grad in zip(params, gradients(0, group.rank)):
                param.grad = grad
            optim.step()

        with contextlib.redirect_stderr(io.StringIO()) as said:
            on(2, rank)
        self.assertIn("average gradients before each step: Params.all_reduce(group)\n", said.getvalue())


class Documents(unittest.TestCase):
    def test_programs(self):
        """The programs in docs/python.md run."""
        text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
        programs = re.findall(r"^```python\n(.*?)^```", text, flags=re.M | re.S)
        self.assertEqual(len(programs), 2)
        for program in programs:
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder, "program.py")
                path.write_text(program, encoding="utf-8")
                done = subprocess.run([sys.executable, path.name], cwd=folder, check=False, capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_names(self):
        """Every public name has a docstring, and those in the map exist."""
        for name in zro.__all__:
            value = getattr(zro, name)
            self.assertTrue(isinstance(value, (str, tuple)) or value.__doc__, name)
        text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
        for name in set(re.findall(r"\bzro\.([A-Za-z_]+)\(", text)):
            self.assertTrue(hasattr(zro, name), name)


class Groups(unittest.TestCase):
    def test_calls(self):
        def rank(group):
            mine = numpy.full((2, 3), group.rank + 1, "f4")
            self.assertEqual(group.all_reduce(mine.copy()).tolist(), [[6] * 3] * 2)
            self.assertEqual(group.all_reduce(mine.copy(), "avg").tolist(), [[2] * 3] * 2)
            self.assertEqual(group.broadcast(mine.copy(), root=2)[0, 0], 3)
            self.assertEqual(group.all_gather(mine)[:, 0, 0].tolist(), [1, 2, 3])
            counts = [1, 2, 3]
            self.assertEqual(group.all_gather(numpy.full(group.rank + 1, group.rank), counts).tolist(), [0, 1, 1, 2, 2, 2])
            gathered, reduced = group.gather(mine, root=1), group.reduce(mine, root=1, op="max")
            self.assertEqual(gathered is not None, group.rank == 1)
            if group.rank == 1:
                self.assertEqual((gathered[:, 0, 0].tolist(), reduced[0, 0]), ([1, 2, 3], 3))
            self.assertEqual(group.reduce_scatter(numpy.arange(6, dtype="i8").reshape(3, 2)).tolist(),
                             [6 * group.rank, 6 * group.rank + 3])
            self.assertEqual(group.reduce_scatter(numpy.ones(6), counts=counts).tolist(), [3.0] * counts[group.rank])
            self.assertEqual(group.broadcast_object({"rank": group.rank}, root=2), {"rank": 2})
            self.assertEqual(group.all_gather_object("x" * group.rank), ["", "x", "xx"])
            self.assertEqual(group.stop_requested(group.rank == 1), True)
            pair = group.sub([2, 0])
            self.assertEqual(None if pair is None else (pair.rank, pair.size, pair.label(0)), [(1, 2, 2), None, (0, 2, 2)][group.rank])
            shared = group.zeros((4,), "f64", kind="once")
            if group.rank == 0:
                shared[:] = 7
            group.barrier()
            self.assertEqual(shared.tolist(), [7.0] * 4)
            group.barrier()
            with self.assertRaisesRegex(ValueError, "counts"):
                group.all_gather(mine, [1, 1, 1])
            with self.assertRaisesRegex(ValueError, "contiguous"):
                group.all_reduce(mine.T)
            self.assertGreater(group.stats().operations, 10)
            return group.rank

        self.assertEqual(on(3, rank), [0, 1, 2])

    def test_work(self):
        def rank(group):
            array = numpy.ones(10)
            work = group.submit(lambda: group.all_reduce(array) is array)
            self.assertTrue(work.wait() and work.done())
            self.assertEqual(array[0], 2)

            def fails():
                raise KeyError("mine")

            with self.assertRaisesRegex(KeyError, "mine"):
                group.submit(fails).wait()

        on(2, rank)

    def test_log_and_environment(self):
        lines = []
        with zro.Group(log=lambda level, text: lines.append(text), log_level="debug", threads=2, cells=[0]) as group:
            self.assertEqual((group.rank, group.size), (0, 1))
            group.barrier()
        self.assertTrue(group.closed)
        with self.assertRaisesRegex(zro.StateError, "this Group is closed"):
            group.barrier()

    def test_trace(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "trace.json")
            with zro.Group(trace=path) as group:
                with group.trace("a slice of mine"):
                    pass
                group.flush_trace()
                self.assertIn("a slice of mine", path.read_text(encoding="utf-8"))


def process_rank(group, number):
    return group.all_reduce(numpy.array([number + group.rank]))[0], os.getpid()


def process_fails(group, how):
    if group.rank == 1:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise KeyError("mine")
    group.barrier()


class Spawn(unittest.TestCase):
    def test_processes(self):
        results = on(2, process_rank, 10, method="spawn")
        self.assertEqual([int(value) for value, _ in results], [21, 21])
        self.assertEqual(len({os.getpid(), *(process for _, process in results)}), 3)

    def test_failures(self):
        with self.assertRaisesRegex(zro.PeerError, "(?s)rank 1 failed:.*KeyError: 'mine'"):
            on(3, process_fails, "raise", method="fork")
        with self.assertRaisesRegex(zro.LostError, "rank 1 was killed by signal 9"):
            on(3, process_fails, "kill", method="fork")
        with self.assertRaisesRegex(KeyError, "mine"):
            on(3, process_fails, "raise")

    def test_tickets(self):
        with self.assertRaisesRegex(ValueError, "all_gather returned 2 values"):
            zro.Group.from_tickets(0, 1, lambda ticket: [ticket, ticket])
        with zro.Group.from_tickets(0, 1, lambda ticket: [ticket]) as group:
            group.barrier()


class Parameters(unittest.TestCase):
    def test_in_place(self):
        w = numpy.ones((2, 3), "f4")
        params = zro.Params({"w": w}, grads=True)
        self.assertIs(params["w"].data, w)
        self.assertFalse(params[0].has_grad)
        params[0].grad += 1
        self.assertTrue(params[0].has_grad)
        zro.Optimizer(params, zro.sgd(lr=0.5)).step()
        self.assertEqual(w.tolist(), [[0.5] * 3] * 2)
        other = numpy.zeros((2, 3), "f4")
        params[0].data = other
        self.assertIs(params[0].data, other)
        params[0].grad = None
        self.assertIsNone(params[0].grad)
        params[0].grad = numpy.ones((3, 2)).T  # is made contiguous, and f4
        self.assertEqual((params[0].grad.dtype, params[0].grad.flags.c_contiguous), (numpy.float32, True))

    def test_refused(self):
        with self.assertRaisesRegex(ValueError, "parameter w must be contiguous"):
            zro.Params({"w": numpy.ones((2, 3)).T})
        with self.assertRaisesRegex(TypeError, "no element type complex128"):
            zro.Params([numpy.ones(2, complex)])
        params = zro.Params({"w": numpy.ones(2)})
        with self.assertRaisesRegex(ValueError, r"gradient of parameter w has shape \(3,\), must be \(2,\)"):
            params["w"].grad = numpy.ones(3)
        with self.assertRaisesRegex(TypeError, "data of parameter w has type float32, must be f64"):
            params["w"].data = numpy.ones(2, "f4")
        for params in (zro.Params({"w": numpy.ones((2, 3), "f4")}), zro.Params.alloc(zro.Group(), {"w": (2, 3)})):
            for value, shape in ((numpy.ones(3, "f4"), r"\(3,\)"), (1.0, r"\(\)")):  # NumPy would repeat them
                with self.assertRaisesRegex(ValueError, rf"gradient of parameter w has shape {shape}, must be \(2, 3\)"):
                    params["w"].grad = value
            with self.assertRaisesRegex(ValueError, r"data of parameter w has shape \(3,\), must be \(2, 3\)"):
                params["w"].data = numpy.ones(3, "f4")
        self.assertEqual(params["w"].grad.sum(), 0)
        with self.assertRaises(KeyError):
            params["v"]

    def test_alloc(self):
        def rank(group):
            with zro.Params.alloc(group, {"w": (3, 2), "b": 2}, dtype="f64") as params:
                data, grad = params["w"].data, params["w"].grad
                if group.rank == 0:
                    params["w"].data = numpy.ones((3, 2))  # is copied into memory that zro has handed out
                group.barrier()
                self.assertEqual(data.tolist(), [[1, 1]] * 3)  # once per machine
                params["w"].grad = numpy.full((3, 2), group.rank)
                self.assertEqual(grad[0, 0], group.rank)
                params["b"].grad = None
                self.assertEqual((params["b"].has_grad, params["b"].grad.shape), (False, (2,)))
                params.all_reduce(group, "sum")
                self.assertEqual(grad[0, 0], 1)
            self.assertEqual(data.sum() + grad.sum(), 12)  # arrays keep the memory

        on(2, rank)

    def test_bf16(self):
        bits = zro.convert([1.0, 1.00390625, 3.0], "bf16", "f64")
        self.assertEqual(bits.tolist(), [0x3F80, 0x3F80, 0x4040])
        self.assertEqual(zro.convert(bits, "f32", "bf16").tolist(), [1, 1, 3])
        params = zro.Params({"w": bits}, dtype="bf16", grad_dtype="f32")
        params["w"].grad = numpy.ones(3, "f4")
        optim = zro.Optimizer(params, zro.sgd(lr=1.0))
        optim.step()
        self.assertEqual(zro.convert(bits, "f32", "bf16").tolist(), [0, 0, 2])
        self.assertEqual(optim.slot("w", "master").data.tolist(), [0, 0, 2])

    def test_views(self):
        """parameters_as_bucket_view moves the data; arrays that show it keep the optimizer's memory."""
        params = make_params()
        own, before = params["w"].data, params.hash()
        optim = zro.Optimizer(params, zro.sgd(), zro.Group(), parameters_as_bucket_view=True)
        moved = params["w"].data
        self.assertIsNot(moved, own)
        self.assertEqual(moved.tolist(), own.tolist())
        moved += 1
        box = weakref.ref(optim.box)
        optim.close()
        gc.collect()
        self.assertIsNotNone(box())
        self.assertEqual(moved[0, 0], own[0, 0] + 1)
        del moved
        gc.collect()
        self.assertIsNone(box())
        self.assertIs(params["w"].data, own)
        self.assertNotEqual(params.hash(), before)  # the values came back


class Optimizers(unittest.TestCase):
    def test_rules(self):
        """All rules, sharded and not: the same bits."""
        def rank(group, name):
            params = make_params()
            return train(params, zro.Optimizer(params, getattr(zro, name)(lr=0.01), group), 3)

        hashes = set()
        for name in zro.RULES:
            alone = make_params()
            optim = zro.Optimizer(alone, getattr(zro, name)(lr=0.01))
            hashes.add(train(alone, optim, 3))
            self.assertEqual(on(3, rank, name), [alone.hash()] * 3, name)
            self.assertEqual(optim.info().n_steps, 3)
        self.assertEqual(len(hashes), len(zro.RULES))

    def test_adam_is_adam(self):
        params = zro.Params({"w": numpy.array([1.0, -2.0])})
        w, m, v, grad = params["w"].data.copy(), 0.0, 0.0, numpy.array([0.5, -1.5])
        optim = zro.Optimizer(params, zro.adam(lr=0.1, betas=(0.8, 0.9), eps=1e-6))
        for t in range(1, 4):
            params["w"].grad = grad * t
            optim.step()
            m, v = 0.8 * m + 0.2 * grad * t, 0.9 * v + 0.1 * (grad * t) ** 2
            w -= 0.1 / (1 - 0.8 ** t) * m / (numpy.sqrt(v / (1 - 0.9 ** t)) + 1e-6)
        numpy.testing.assert_allclose(params["w"].data, w, rtol=1e-12)
        numpy.testing.assert_allclose(optim.slot("w", "exp_avg").data, m, rtol=1e-12)
        self.assertEqual(optim.slot("w", "step").data.tolist(), [3.0])

    def test_groups(self):
        params = make_params()
        bias = [param for param in params if len(param.shape) < 2]
        optim = zro.Optimizer([{"params": [params["w"]], "betas": (0.5, 0.6)}, {"params": bias, "weight_decay": 0}], zro.adamw(lr=0.1))
        first, second = optim.groups
        self.assertEqual((first["betas"], second["beta1"], first["weight_decay"], second["weight_decay"]), ((0.5, 0.6), 0.9, 0.01, 0))
        second["lr"] = 0.5
        self.assertEqual((first["lr"], dict(second)["lr"]), (0.1, 0.5))
        with self.assertRaisesRegex(zro.InvalidError, "lr = -1"):
            second["lr"] = -1
        with self.assertRaises(KeyError):
            first["momentum"]
        extra = numpy.ones(4, "f4")
        optim.add_param_group({"params": {"extra": extra}, "lr": 1.0})
        self.assertEqual([param.name for param in optim.params], ["w", "b", "s", "extra"])
        optim.params[3].grad = numpy.ones(4, "f4")
        optim.step()
        self.assertEqual(optim.info().n_updated, 1)
        self.assertLess(extra[0], 0.5)
        with self.assertRaisesRegex(ValueError, "one zro.Params"):
            zro.Optimizer([params["w"], make_params()["b"]], zro.sgd())

    def test_clipping_and_scale(self):
        params = zro.Params({"w": numpy.zeros(4, "f4")}, grads={"w": numpy.full(4, 3, "f4")})
        optim = zro.Optimizer(params, zro.sgd(lr=1.0), clip_norm=1.0, loss_scale=True, scale_init=2.0, growth_interval=1)
        optim.step()
        numpy.testing.assert_allclose(params["w"].data, -0.5, rtol=1e-5)
        self.assertEqual((optim.info().norm, optim.scale), (3.0, 4.0))
        params["w"].grad[0] = numpy.inf
        optim.step()
        self.assertEqual((optim.info().skipped, optim.scale), (1, 2.0))
        plain = zro.Optimizer(zro.Params({"w": numpy.zeros(4)}, grads={"w": numpy.full(4, 3.0)}), zro.sgd())
        self.assertEqual(plain.grad_norm(), 6)
        self.assertEqual(plain.clip_grad_norm(3.0), 6)
        plain.clip_grad_value(1.0)
        self.assertEqual(plain.params[0].grad.tolist(), [1.0] * 4)
        plain.zero_grad("keep")
        self.assertEqual((plain.params[0].grad.tolist(), plain.params[0].has_grad), ([0.0] * 4, True))
        plain.zero_grad()
        self.assertFalse(plain.params[0].has_grad)

    def test_repr(self):
        optim = zro.Optimizer([{"params": {"w": numpy.ones((40, 30))}}, {"params": {"b": numpy.ones(50)}}], zro.adamw())
        self.assertEqual(repr(optim), "<zro.Optimizer adamw, 2 groups, 2 parameters, 1,250 elements, not sharded>")
        optim.close()
        self.assertEqual(repr(optim), "<zro.Optimizer, closed>")
        texts = on(2, lambda group: repr(zro.Optimizer(make_params(), None, group)))
        self.assertEqual(texts[0], "<zro.Optimizer without a rule, 1 group, 3 parameters, 1,251 elements, sharded over 2 ranks>")

    def test_closure(self):
        params = zro.Params({"w": numpy.ones(2)})
        optim = zro.Optimizer(params, zro.sgd(lr=0.25))

        def closure():
            params["w"].grad = 2 * params["w"].data
            return (params["w"].data ** 2).sum()

        self.assertEqual(optim.step(closure), 2.0)
        self.assertEqual(params["w"].data.tolist(), [0.5, 0.5])

        def fails():
            raise KeyError("mine")

        with self.assertRaisesRegex(KeyError, "mine"):
            optim.step(fails)
        lbfgs = zro.Lbfgs(params, strong_wolfe=True)
        self.assertEqual(lbfgs.step(closure), 0.5)
        self.assertLess(closure(), 1e-12)
        self.assertGreater(lbfgs.evaluations, 1)

    def test_own_rule(self):
        """Without a rule a program updates what it owns, and publish brings it to all."""
        def rank(group):
            params = make_params()
            optim = zro.Optimizer(params, None, group)
            for part in optim.plan.ranges(group.rank):
                optim.params[part.param].data.reshape(-1)[part.first:part.first + part.count] = part.owner + 10
            optim.publish()
            optim.params[1].data[:] = group.rank
            optim.publish_param("b", root=1)
            owners = {optim.plan.owner(param) for param in range(3)}
            self.assertEqual(optim.plan.elements(), sum(optim.plan.elements(each) for each in range(group.size)))
            self.assertIn("greedy", optim.describe())
            return {float(value) for param in params for value in param.data.reshape(-1)} - {owner + 10 for owner in owners}

        self.assertEqual(on(2, rank), [{1.0}] * 2)

    def test_plan(self):
        params = make_params()
        with zro.Plan(params, 3, partition="greedy") as plan:
            self.assertEqual((plan.ranks, [plan.owner(param) for param in range(3)]), (3, [0, 1, 2]))
            self.assertEqual(plan.ranges(1), [zro.Range(1, 0, 50, 0, 0, 1)])
        with zro.Plan(params, 2, partition="buckets", buckets=[[2, 1], [0]]) as plan:
            self.assertEqual([plan.owner(param) for param in range(3)], [1, 0, 0])

    def test_lifetime(self):
        """Nothing is destroyed while it is used, in whatever order names are dropped; nothing leaks."""
        def rank(group):
            params = zro.Params.alloc(group, {"w": (4096,)})
            ddp = zro.Ddp(group, params)
            optim = zro.Optimizer(params, zro.adam(), group, ddp)
            boxes = [weakref.ref(handle.box) for handle in (params, ddp, optim)]
            ddp.forward()
            params["w"].grad = numpy.ones(4096)
            ddp.ready()
            ddp.backward_end()
            data = params["w"].data
            del ddp, params
            gc.collect()
            optim.step()
            slot = optim.slot("w", "exp_avg")
            group.barrier()
            del optim
            gc.collect()
            self.assertEqual(len(slot.data), 2048)
            numpy.testing.assert_allclose(slot.data, 0.1, rtol=1e-6)
            self.assertIsNotNone(boxes[2]())
            del slot
            gc.collect()
            self.assertEqual([box() is None for box in boxes], [False, True, True])
            numpy.testing.assert_allclose(data, -0.001, rtol=1e-4)
            del data
            gc.collect()
            self.assertIsNone(boxes[0]())

        on(2, rank)


class States(unittest.TestCase):
    def test_round_trip(self):
        """A state of 3 ranks in a file, loaded on 2 and on 1: the next steps are the same bits."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "state.safetensors")

            def first(group):
                params = make_params()
                optim = zro.Optimizer(params, zro.adam(lr=0.01), group)
                train(params, optim, 3)
                state = optim.consolidate(to=1, data=True)
                self.assertEqual(state is not None, group.rank == 1)
                if state is not None:
                    state.set_number("epoch", 5)
                    state.write(path)
                    self.assertEqual((state.rule, len(state), len(state.groups)), ("adam", 3, 1))
                    self.assertEqual(state.groups[0].values["betas:0"], 0.9)
                    self.assertEqual(state["w"].slots["exp_avg"].shape, (40, 30))
                    self.assertEqual((state[0].slots["step"].shape, float(state[0].slots["step"])), ((), 3))
                    self.assertEqual(state["b"].data.tolist(), params["b"].data.tolist())
                    self.assertEqual((state.progress.steps, state.get_number("epoch")), (3, 5))
                return train(params, optim, 2, first=3)

            def second(group):
                params = make_params()
                optim = zro.Optimizer(params, zro.adam(), group)
                state = zro.State.broadcast(group, zro.State.read(path) if group.rank == 0 else None)
                optim.load(zro.State.unpack(state.pack()))
                return train(params, optim, 2, first=3)

            expected = on(3, first)
            self.assertEqual(on(2, second) + on(1, second), expected)

    def test_by_hand(self):
        state = zro.State("sgd")
        state.add_group({"lr": 0.5, "momentum": 0.9})
        param = state.add_param((2,), "f64", "w", data=[3.0, 4.0])
        state.add_slot(param, "momentum_buffer", numpy.array([1.0, 2.0]))
        state.set_progress(steps=7)
        params = zro.Params({"w": numpy.zeros(2)})
        optim = zro.Optimizer(params, zro.sgd())
        optim.load(state)
        self.assertEqual((optim.groups[0]["momentum"], optim.info().n_steps, params["w"].data.tolist()), (0.9, 7, [3, 4]))
        view = optim.slot("w", "momentum_buffer").data
        self.assertEqual(view.tolist(), [1, 2])
        state["w"].slots["momentum_buffer"][0] = 9
        self.assertEqual(state["w"].slots["momentum_buffer"][0], 9)
        del optim, params
        gc.collect()
        self.assertEqual(view.tolist(), [1, 2])  # the array keeps the optimizer's memory

    def test_save_and_resume(self):
        def parts(group):
            params = make_params()
            optim = zro.Optimizer(params, zro.adamw(lr=0.1), group)
            schedule = zro.schedules.sequential([zro.schedules.linear(optim, total_iters=3), zro.schedules.cosine(optim, 10)], [3])
            return params, optim, schedule

        def steps(params, optim, schedule, first, count):
            for step in range(first, first + count):
                train(params, optim, 1, first=step)
                schedule.step()

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.safetensors")

            def whole(group):
                params, optim, schedule = parts(group)
                steps(params, optim, schedule, 0, 4)
                optim.save(path, [schedule], {"epoch": 4})
                steps(params, optim, schedule, 4, 3)
                return params.hash(), optim.groups[0]["lr"]

            def resumed(group):
                params, optim, schedule = parts(group)
                numbers = optim.resume(path, [schedule], ["epoch"])
                steps(params, optim, schedule, int(numbers["epoch"]), 3)
                return params.hash(), optim.groups[0]["lr"]

            expected = on(2, whole)
            self.assertEqual(on(2, resumed), expected)
            self.assertEqual(on(3, resumed)[:2], expected)


class Schedules(unittest.TestCase):
    def test_numbers(self):
        make = zro.schedules
        for build, expected in (
                (lambda optim: make.step_lr(optim, 2), [1, 1, 0.1, 0.1, 0.01]),
                (lambda optim: make.multi_step(optim, [1, 3], 0.5), [1, 0.5, 0.5, 0.25, 0.25]),
                (lambda optim: make.exponential(optim, 0.5), [1, 0.5, 0.25, 0.125, 0.0625]),
                (lambda optim: make.polynomial(optim, 4), [1, 0.75, 0.5, 0.25, 0]),
                (lambda optim: make.cosine(optim, 2), [1, 0.5, 0, 0.5, 1]),
                (lambda optim: make.cosine_restarts(optim, 2), [1, 0.5, 1, 0.5, 1]),
                (lambda optim: make.linear(optim, 0.5, 1, 2), [0.5, 0.75, 1, 1, 1]),
                (lambda optim: make.constant(optim, 0.5, 2), [0.5, 0.5, 1, 1, 1]),
                (lambda optim: make.one_cycle(optim, 2, 5, cycle_momentum=False, linear=True, pct_start=0.5),
                 [0.08, 1.36, None, None, None]),
                (lambda optim: make.function(optim, lambda group, step: 1 / (step + 1)), [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5]),
                (lambda optim: make.chained([make.exponential(optim, 0.5), make.step_lr(optim, 2)]), [1, 0.5, 0.025, 0.0125, 0.000625])):
            optim = zro.Optimizer({"w": numpy.zeros(1)}, zro.sgd(lr=1.0))
            schedule, found = build(optim), []
            for _ in range(5):
                found.append(optim.groups[0]["lr"])
                optim.params[0].grad = numpy.zeros(1)
                optim.step()
                if len(found) < 5:
                    schedule.step()
            numpy.testing.assert_allclose([a for a, b in zip(found, expected) if b is not None],
                                          [b for b in expected if b is not None], atol=1e-12)

    def test_plateau_and_errors(self):
        optim = zro.Optimizer({"w": numpy.zeros(1)}, zro.sgd(lr=1.0))
        plateau = zro.schedules.plateau(optim, patience=0, factor=0.5)
        with self.assertRaises(zro.StateError):
            plateau.step()
        for metric in (1.0, 1.0):
            plateau.step(metric)
        self.assertEqual(optim.groups[0]["lr"], 0.5)
        taken = zro.schedules.exponential(optim, 0.5)
        zro.schedules.chained([taken])
        with self.assertRaisesRegex(zro.StateError, "this Schedule is closed"):
            taken.step()


class DataParallel(unittest.TestCase):
    def expected(self, steps):
        """One process with the averages of two."""
        params = make_params()
        optim = zro.Optimizer(params, zro.adam(lr=0.01))
        for step in range(steps):
            for param, a, b in zip(params, gradients(step, 0), gradients(step, 1)):
                param.grad = (a + b) / 2
            optim.step()
        return params.hash()

    def rank(self, group, attached, **settings):
        params = make_params()
        if group.rank == 1:
            params["w"].data[:] = 0  # only rank 0's values count
        with zro.Ddp(group, params, **settings) as ddp:
            optim = zro.Optimizer(params, zro.adam(lr=0.01), group, ddp if attached else None)
            for step in range(3):
                with ddp.iteration():
                    for param, grad in reversed(list(zip(params, gradients(step, group.rank)))):
                        param.grad = grad
                        ddp.ready(param)
                optim.step()
            ddp.check()
            self.assertEqual(sorted(sum(ddp.buckets(), [])), [0, 1, 2])
            return params.hash()

    def test_averages(self):
        for attached in (False, True):
            for settings in ({}, {"gradient_as_bucket_view": True}, {"bucket_limits": [256, 1024]}, {"hook": "all_reduce"}):
                found = on(2, lambda group: self.rank(group, attached, **settings))
                self.assertEqual(found, [self.expected(3)] * 2, (attached, settings))

    def test_hooks(self):
        def hook(bucket):
            self.assertEqual((bucket.group.size, bucket.divisor, sorted(bucket.params)), (2, 2.0, [0, 1, 2]))
            self.assertTrue(bucket.is_last and bucket.index == 0)
            bucket.buffer = bucket.group.all_reduce(bucket.buffer.copy(), "avg")

        self.assertEqual(on(2, lambda group: self.rank(group, False, hook=hook)), [self.expected(3)] * 2)

        def fails(bucket):
            raise KeyError("mine")

        with self.assertRaisesRegex(KeyError, "mine"):
            on(2, lambda group: self.rank(group, False, hook=fails))
        with self.assertRaisesRegex(ValueError, "no hook 'f8'"):
            zro.Ddp(zro.Group(), make_params(), hook="f8")

    def test_no_sync_and_weights(self):
        def rank(group):
            params = zro.Params({"w": numpy.zeros(2)}, grads=True)
            ddp = zro.Ddp(group, params, weighted=True, find_unused=True)
            ddp.set_weight(1 + 2 * group.rank)
            with ddp.no_sync():
                with ddp.iteration():
                    params["w"].grad[:] = group.rank
                    ddp.ready(0)
            self.assertEqual(params["w"].grad[0], group.rank)
            with ddp.iteration():
                params["w"].grad += group.rank
                ddp.ready(0)
            return params["w"].grad[0]

        self.assertEqual(on(2, rank), [1.5, 1.5])

    def test_join(self):
        """Rank 0 has one input, rank 1 three; a rank without inputs counts as zeros."""
        def rank(group):
            params = zro.Params({"w": numpy.zeros(2)}, grads=True)
            ddp = zro.Ddp(group, params)
            optim = zro.Optimizer(params, zro.sgd(lr=1.0), group, ddp)
            with zro.Join(group, [ddp]) as join:
                for _ in range(1 + 2 * group.rank):
                    with ddp.iteration():
                        params["w"].grad = numpy.ones(2)
                        ddp.ready()
                    optim.step()
                self.assertEqual(join.info().ranks, 2)
            return params["w"].data.tolist()

        self.assertEqual(on(2, rank), [[-2.0, -2.0]] * 2)

    def test_samples(self):
        parts = [zro.sample_indices(10, rank, 3) for rank in range(3)]
        self.assertEqual([part.tolist() for part in parts], [[0, 3, 6, 9], [1, 4, 7, 0], [2, 5, 8, 1]])
        shuffled = [zro.sample_indices(9, rank, 3, shuffle=True, seed=1, epoch=2) for rank in range(3)]
        self.assertEqual(sorted(numpy.concatenate(shuffled)), list(range(9)))


if __name__ == "__main__":
    unittest.main()
