#!/usr/bin/env python3
"""Makes the corpus of the fuzzer:  tests/products/fuzz/make_corpus.py [FOLDER]

Small files, states of several kinds ("good-...") and one for each thing that a reader must refuse ("bad-...").
"""
import json
import os
import struct
import sys

SIZES = {"F32": 4, "F64": 8, "BF16": 2, "F16": 2, "I8": 1, "U8": 1, "I32": 4, "I64": 8}


def file_of(header, data=b"", length=None):
    """The bytes of a file; `header` is a text, or what becomes one."""
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def count(shape):
    n = 1
    for d in shape:
        n *= d
    return n


def state(rule="adam", groups=None, params=None, slots=(), **more):
    """A whole file: slots are (slot, parameter's name, dtype, shape); slot None is the parameter's data."""
    if params is None:
        params = [{"name": "w", "shape": [2, 3], "dtype": "f32"}]
    if groups is None:
        groups = [{"lr": 0.1, "params": list(range(len(params)))}]
    about = {"format": 1, "rule": rule, "steps": 3, "scale": 0.0, "growth_tracker": 0, "groups": groups, "params": params}
    about.update(more)
    header = {"__metadata__": {"zro": json.dumps(about, separators=(",", ":"), ensure_ascii=False)}}
    at = 0
    for slot, name, dtype, shape in slots:
        n = count(shape) * SIZES[dtype]
        header[name if slot is None else f"{slot}:0:{name}"] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n]}
        at += n
    return header, bytes(range(256)) * (at // 256 + 1), at


def whole(*args, **more):
    header, data, n = state(*args, **more)
    return file_of(header, data[:n])


W = ("exp_avg", "w", "F32", [2, 3])
STEP = ("step", "w", "F64", [])
DATA = (None, "w", "F32", [2, 3])
WITH_DATA = [{"name": "w", "shape": [2, 3], "dtype": "f32", "data": True}]
SCHEDULES = [
    {"kind": "sequential", "children": 2, "n_milestones": 1, "milestones": [4], "steps": 5, "n_groups": 1},
    {"kind": "linear", "start_factor": 0.5, "end_factor": 1, "total_iters": 4, "n_milestones": 0, "steps": 3, "n_groups": 1,
     "first_lr": [0.1]},
    {"kind": "exponential", "gamma": 0.9, "n_milestones": 0, "steps": 1, "n_groups": 1, "first_lr": [0.1]},
    {"kind": "plateau", "best": "inf", "bad_steps": 2, "cooldown_left": 0, "steps": 5, "n_groups": 1, "first_lr": [1e-300]},
]


def good():
    yield "empty", whole("", groups=[], params=[])
    yield "no-slots", whole()
    yield "adam", whole(slots=[STEP, W, ("exp_avg_sq", "w", "F32", [2, 3])])
    yield "reversed", whole(slots=[W, STEP])
    yield "values", whole("adamw", groups=[{"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "amsgrad": False, "maximize": True,
                                            "foreach": None, "fused": "no", "capturable": False, "params": [0]}], slots=[W])
    yield "group-numbers", whole(groups=[{"a": 1, "b": -0.0, "c": 1e308, "d": 5e-324, "e": 12345678901234567, "params": [0]}])
    yield "types", whole("mine", params=[{"name": d.lower(), "shape": [1, 2], "dtype": d.lower(), "grad_dtype": "f32"}
                                          for d in SIZES], slots=[("s", d.lower(), d, [1, 2]) for d in SIZES])
    yield "unnamed", whole(params=[{"name": None, "shape": [], "dtype": "f32"}, {"name": None, "shape": [1], "dtype": "f64"}],
                           slots=[("a", "0", "F32", []), ("a", "1", "F64", [1]), ("b", "1", "F32", [])])
    names = ("a b", 'q"', "\\", "ä€😀", "x:0:y", "\n")
    yield "names", whole(params=[{"name": n, "shape": [1], "dtype": "f32"} for n in names],
                         slots=[("s", n, "F32", [1]) for n in names])
    yield "no-elements", whole(params=[{"name": "w", "shape": [0, 5], "dtype": "f32"}],
                               slots=[("exp_avg", "w", "F32", [0, 5]), ("step", "w", "F64", [])])
    yield "groups", whole(groups=[{"params": [0]}, {"params": []}, {"params": [1, 2]}],
                          params=[{"name": n, "shape": [2], "dtype": "bf16"} for n in "abc"],
                          slots=[("master", n, "F32", [2]) for n in "abc"])
    yield "dims", whole(params=[{"name": "w", "shape": [1] * 8, "dtype": "i8"}], slots=[("s", "w", "I8", [1] * 8)])
    yield "scale", whole(scale=65536.5, growth_tracker=4294967295, steps=9223372036854775807)
    yield "more-keys", whole(more={"deep": [[[[[[]]]]]]})
    yield "data", whole(params=WITH_DATA, slots=[STEP, DATA, W])
    yield "data-only", whole("", params=WITH_DATA, slots=[DATA])
    names = ("w", "m:0:w", "m:0:m:0:w")
    yield "data-names", whole(params=[{"name": n, "shape": [2], "dtype": "bf16", "data": n != "w"} for n in names],
                              slots=[(None, "m:0:w", "BF16", [2]), (None, "m:0:m:0:w", "BF16", [2]), ("n", "w", "F32", [2])])
    yield "schedules", whole(schedules=SCHEDULES)
    yield "numbers", whole(numbers={"epoch": 3, "loss": "nan", "best": "-inf", "ä": -0.0, "x:0": 1e300, "n": 2**53})
    yield "everything", whole(params=WITH_DATA, slots=[STEP, DATA, W], schedules=SCHEDULES, numbers={"epoch": 1})
    header, data, n = state(slots=[W])
    header["__metadata__"]["other"] = "text"
    yield "other-metadata", file_of(header, data[:n])
    yield "spaces", file_of(json.dumps(header, indent=1).encode() + b" " * 9, data[:n])


def bad_heads():
    yield "nothing", b""
    yield "short", b"1234567"
    yield "long-header", struct.pack("<Q", 100000001) + b"{}" * 8
    yield "huge-header", struct.pack("<Q", 2**64 - 1) + b"{}"
    yield "header-beyond", file_of(b"{}", length=3)
    yield "no-header", file_of(b"")
    yield "no-brace", file_of(b" {}")
    yield "rest", file_of(b"{} {}")
    yield "open", file_of(b'{"a":')
    yield "no-metadata", file_of({})
    yield "other-file", file_of({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"1234")
    yield "metadata-list", file_of({"__metadata__": []})
    yield "metadata-number", file_of({"__metadata__": {"zro": 1}})
    yield "nul", file_of(b'{"a\\u0000":1}')
    yield "utf8", file_of(b'{"\xff":1}')
    yield "deep", file_of(b'{"a":' + b"[" * 17 + b"]" * 17 + b"}")
    yield "twice", file_of(b'{"a":{},"a":{}}')


def bad_tensors():
    def with_tensor(name="exp_avg:0:w", data_bytes=24, **change):
        header, data, _ = state()
        header[name] = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24], **change}
        header[name] = {k: v for k, v in header[name].items() if v is not ...}
        return file_of(header, data[:data_bytes].ljust(data_bytes, b"x"))

    yield "trailing", with_tensor(data_bytes=25)
    yield "cut", with_tensor(data_bytes=23)
    yield "turned", with_tensor(data_offsets=[24, 0])
    yield "hole", with_tensor(data_bytes=28, data_offsets=[4, 28])
    yield "too-few", with_tensor(data_bytes=20, data_offsets=[0, 20])
    yield "product", with_tensor(data_bytes=0, shape=[2**62, 4], data_offsets=[0, 0])
    yield "bytes", with_tensor(data_bytes=0, shape=[2**62], data_offsets=[0, 0])
    yield "dtype", with_tensor(dtype="F8_E5M2")
    yield "dtype-number", with_tensor(dtype=1)
    yield "dims", with_tensor(shape=[1] * 7 + [2, 3])
    yield "negative", with_tensor(shape=[-2, -3])
    yield "real", with_tensor(shape=[2, 3.0])
    yield "offsets", with_tensor(data_offsets=[0, 24, 24])
    yield "offsets-negative", with_tensor(data_offsets=[-24, 0])
    yield "missing", with_tensor(shape=...)
    yield "unknown", with_tensor(more=1)
    yield "stranger", with_tensor(name="exp_avg:0:v")
    yield "piece", with_tensor(name="exp_avg:6:w")
    yield "nameless", with_tensor(name=":0:w")
    yield "shape", with_tensor(shape=[3, 2])
    header, data, n = state(slots=[W, STEP])
    header["step:0:w"]["data_offsets"] = [16, 24]
    yield "overlap", file_of(header, data[:24])


def bad_states():
    yield "format", whole(format=2)
    yield "rule", whole(7)
    yield "steps", whole(steps=-1)
    yield "index", whole(groups=[{"params": [1]}])
    yield "no-group", whole(groups=[])
    yield "value", whole(groups=[{"lr": "big", "params": [0]}])
    yield "colon", whole(groups=[{"betas:0": 1, "params": [0]}])
    yield "param-dtype", whole(params=[{"name": "w", "shape": [], "dtype": "F32"}])
    yield "param-shape", whole(params=[{"name": "w", "shape": [-1], "dtype": "f32"}])
    yield "data-missing", whole(params=WITH_DATA)
    yield "data-unannounced", whole(slots=[DATA])
    yield "data-shape", whole(params=WITH_DATA, slots=[(None, "w", "F32", [6])])
    yield "data-type", whole(params=WITH_DATA, slots=[(None, "w", "I32", [2, 3])])
    yield "data-flag", whole(params=[{**WITH_DATA[0], "data": 1}], slots=[DATA])
    yield "schedules", whole(schedules={})
    yield "schedule-kind", whole(schedules=[{"steps": 1}])
    yield "schedule-children", whole(schedules=SCHEDULES[:2])
    yield "schedule-many-children", whole(schedules=[{"kind": "chained", "children": 2**31 - 1}] * 3)
    yield "schedule-number", whole(schedules=[{"kind": "linear", "steps": "many"}])
    yield "schedule-colon", whole(schedules=[{"kind": "linear", "first_lr:0": 1}])
    yield "number", whole(numbers={"epoch": [1]})
    yield "numbers", whole(numbers=[1])
    yield "number-name", whole(numbers={"": 1})
    yield "many-numbers", whole(numbers={str(i): i for i in range(257)})
    yield "two-names", whole(params=[{"name": "w", "shape": [], "dtype": "f32"}] * 2)
    yield "index-name", whole(params=[{"name": "1", "shape": [], "dtype": "f32"}, {"name": None, "shape": [], "dtype": "f32"}])


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
    os.makedirs(folder, exist_ok=True)
    made = [("good", good), ("bad-head", bad_heads), ("bad-tensor", bad_tensors), ("bad-state", bad_states)]
    for kind, files in made:
        for name, data in files():
            with open(os.path.join(folder, f"{kind}-{name}"), "wb") as f:
                f.write(data)


if __name__ == "__main__":
    main()
