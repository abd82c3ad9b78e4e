#!/usr/bin/env python3
"""Traces of zro (docs/trace.md): checks them, and draws them.

    zro_trace.py check FILE... [--ranks N] [--slices NAME,...] [--cut]
    zro_trace.py svg FILE... -o OUT.svg [--steps FIRST-LAST] [--from MS] [--to MS] [--width PIXELS] [--title TEXT]

Several files are those of one job, one per machine; their times are lined up by the clocks of the machines.

check compares every event with the schema below: its keys, their types and values; that the slices of a thread are nested; that
every process and thread has a name.  --ranks: there are the slices of ranks 0 to N - 1, and no others.  --slices: every rank has a
slice of each of these names.  --cut: the last line may be cut off, which a rank that was killed inside a write can leave behind.

svg draws a part of the time: --from and --to, in milliseconds since the beginning of the trace, or --steps, which takes the time
from the ddp_forward of the first step to the end of the last one, on all ranks.  Each rank is a band with a row for each of its
threads, and a further row below for slices inside of slices.  The picture needs nothing but itself; the times of a slice are seen
when the mouse is on it.  Needs Python 3.7, and no packages."""

import argparse
import json
import sys
from html import escape

# Key: type, and whether it must be there.  All numbers of zro are whole but times, which have three digits after the point.
INT, TIME, TEXT, DICT = int, (int, float), str, dict
SCHEMA = {
    "X": {"name": (TEXT, 1), "ph": (TEXT, 1), "pid": (INT, 1), "tid": (INT, 1), "ts": (TIME, 1), "dur": (TIME, 1), "args": (DICT, 0)},
    "M": {"name": (TEXT, 1), "ph": (TEXT, 1), "pid": (INT, 1), "tid": (INT, 0), "args": (DICT, 1)},
}
ARGS = {
    "X": {"index": (INT, 0), "bytes": (INT, 0)},
    "process_name": {"name": (TEXT, 1)},
    "thread_name": {"name": (TEXT, 1)},
    "zro_job": {"job": (TEXT, 1), "clock_ns": (TEXT, 1), "unix_ns": (TEXT, 1)},
}


class Bad(Exception):
    pass


def check_keys(what, found, schema):
    for key, (kind, needed) in schema.items():
        if needed and key not in found:
            raise Bad(f"{what} has no {key!r}")
    for key, value in found.items():
        if key not in schema:
            raise Bad(f"{what} has the key {key!r}, which is not known")
        if not isinstance(value, schema[key][0]) or isinstance(value, bool):
            raise Bad(f"{what}: {key!r} is {value!r}")
        if key in ("pid", "tid", "ts", "dur", "index", "bytes") and value < 0:
            raise Bad(f"{what}: {key!r} is negative: {value!r}")


def check_event(number, event):
    what = f"event {number}"
    if not isinstance(event, dict):
        raise Bad(f"{what} is no object")
    if event.get("ph") not in SCHEMA:
        raise Bad(f"{what}: 'ph' is {event.get('ph')!r}")
    check_keys(what, event, SCHEMA[event["ph"]])
    kind = "X" if event["ph"] == "X" else event["name"]
    if kind not in ARGS:
        raise Bad(f"{what}: metadata called {kind!r} is not known")
    check_keys(f"{what}, args", event.get("args", {}), ARGS[kind])


def load(path, cut=False):
    """The events of a file.  With `cut` the last line may be half a one, without a bracket behind it."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    if cut and not text.endswith("\n]\n"):
        text = text[: text.rfind("}\n") + 1] + "\n]\n"
    try:
        events = json.loads(text)
    except ValueError as e:
        raise Bad(f"{path} is no JSON: {e}") from None
    if not isinstance(events, list) or not events:
        raise Bad(f"{path} is no list of events")
    for number, event in enumerate(events):
        try:
            check_event(number, event)
        except Bad as e:
            raise Bad(f"{path}: {e}") from None
    if events[0]["name"] != "zro_job":
        raise Bad(f"{path}: the first event is not 'zro_job'")
    return events


class Trace:
    """slices: by (rank, thread), sorted, each (begin, end, name, args, depth) in microseconds since the first file began."""

    def __init__(self, paths, cut=False):
        files = [load(p, cut) for p in paths]
        first = min(int(f[0]["args"]["unix_ns"]) for f in files)
        self.slices, self.ranks, self.threads = {}, {}, {}
        for events in files:
            offset = (int(events[0]["args"]["unix_ns"]) - first) / 1000
            for e in events:
                if e["name"] == "process_name" and e["ph"] == "M":
                    self.ranks[e["pid"]] = e["args"]["name"]
                elif e["name"] == "thread_name" and e["ph"] == "M":
                    self.threads[e["pid"], e["tid"]] = e["args"]["name"]
                elif e["ph"] == "X":
                    of_thread = self.slices.setdefault((e["pid"], e["tid"]), [])
                    of_thread.append((offset + e["ts"], offset + e["ts"] + e["dur"], e["name"], e.get("args", {})))
        for key, of_thread in self.slices.items():
            self.slices[key] = self.nest(key, of_thread)

    def nest(self, key, slices):
        """Sorts slices, outer ones first, and gives each its depth."""
        nested, open_ends = [], []
        for begin, end, name, args in sorted(slices, key=lambda s: (s[0], -s[1])):
            while open_ends and open_ends[-1] <= begin + 0.0005:  # half of the last digit
                open_ends.pop()
            if open_ends and end > open_ends[-1] + 0.0015:
                raise Bad(f"rank {key[0]}, thread {key[1]}: the slice {name!r} from {begin:.3f} to {end:.3f} crosses another one")
            nested.append((begin, end, name, args, len(open_ends)))
            open_ends.append(end)
        return nested

    def of_rank(self, rank):
        return [s for key, slices in self.slices.items() if key[0] == rank for s in slices]

    def steps(self, first, last):
        """The time of these steps, on all ranks."""
        forward = [s[0] for slices in self.slices.values() for s in slices if s[2] == "ddp_forward" and s[3].get("index") == first]
        step = [s for slices in self.slices.values() for s in slices if s[2] == "step" and first <= s[3].get("index", -1) <= last]
        if not any(s[3]["index"] == last for s in step):
            raise Bad(f"there is no step {last} in the trace")
        return min(forward + [s[0] for s in step]), max(s[1] for s in step)


def check(arguments):
    trace = Trace(arguments.files, arguments.cut)
    for rank, tid in trace.slices:
        if rank not in trace.ranks or (rank, tid) not in trace.threads:
            raise Bad(f"rank {rank}, thread {tid}: it has slices, but no name")
        if trace.ranks[rank] != f"rank {rank}":
            raise Bad(f"the name of process {rank} is {trace.ranks[rank]!r}")
    if arguments.ranks is not None and {r for r, _ in trace.slices} != set(range(arguments.ranks)):
        raise Bad(f"there are slices of ranks {sorted({r for r, _ in trace.slices})}, not of {arguments.ranks} ranks")
    for rank in trace.ranks:
        names = {s[2] for s in trace.of_rank(rank)}
        for name in arguments.slices.split(",") if arguments.slices else []:
            if name not in names:
                raise Bad(f"rank {rank} has no slice {name!r}")
    print(f"{sum(map(len, trace.slices.values()))} slices of {len(trace.ranks)} ranks")


# ---- drawing ----

COLORS = {
    "forward": "#8ecae6", "backward": "#4a90c2", "step": "#f2b880", "reduce+update+publish": "#d9822b", "reduce": "#7cb518",
    "bucket": "#7cb518", "bucket_step": "#f2b880", "update": "#d9822b", "publish": "#b07aa1", "norm": "#bc9b2f", "wait": "#d5d5d5", "save": "#a08070",
    "ddp_forward": "#3d5a80", "ddp_backward_end": "#98a8c0",
}
OTHERS = ["#76b7b2", "#e7a8b0", "#c5b0d5", "#9edae5", "#c7a17a", "#a3be8c"]
ROW, GAP, TOP, LEFT, FONT = 22, 14, 58, 118, 12
LETTER = 6.6  # the width of a letter of that font, about


def family(name):
    return "wait" if name.startswith("wait for ") else name


def label_of(name, args):
    return f"{name} {args['index']}" if "index" in args and name in ("bucket", "bucket_step", "step") else name


def ticks(span):
    """A round distance of 4 to 10 marks on the axis, in microseconds."""
    distance = 1.0
    while span / distance > 10:
        distance *= 2.5 if str(distance).lstrip("0.").startswith("2") else 2
    return distance


class Picture:
    def __init__(self, trace, begin, end, width):
        self.begin, self.end, self.width = begin, end, width
        self.scale = (width - LEFT - 16) / (end - begin)
        self.parts, self.at, self.used = [], TOP, []
        for rank in sorted(trace.ranks):
            self.band(trace, rank)

    def x(self, time):
        return LEFT + (min(max(time, self.begin), self.end) - self.begin) * self.scale

    def color(self, name):
        if name not in self.used:
            self.used.append(name)
        others = [n for n in self.used if n not in COLORS]
        return COLORS.get(name) or OTHERS[others.index(name) % len(OTHERS)]

    def add(self, text):
        self.parts.append(text)

    def text(self, x, y, text, more=""):
        self.add(f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(text)}</text>')

    def band(self, trace, rank):
        first = self.at
        for key in sorted(k for k in trace.slices if k[0] == rank):
            seen = [s for s in trace.slices[key] if s[1] > self.begin and s[0] < self.end]
            if not seen:
                continue
            self.text(LEFT - 10, self.at + ROW / 2 + 4, trace.threads[key], 'text-anchor="end" fill="#777"')
            for s in seen:
                self.slice(s)
            self.at += ROW * (1 + max(s[4] for s in seen)) + 4
        self.at = max(self.at, first + ROW)
        self.text(10, first + ROW / 2 + 4, f"rank {rank}", 'font-weight="bold"')
        self.add(f'<line x1="10" x2="{self.width - 16}" y1="{self.at + GAP / 2 - 2:.1f}" y2="{self.at + GAP / 2 - 2:.1f}" stroke="#ddd"/>')
        self.at += GAP

    def slice(self, s):
        begin, end, name, args, depth = s
        x, y = self.x(begin), self.at + depth * ROW
        w, label = max(self.x(end) - x, 0.6), label_of(name, args)
        more = "".join(f", {key} {value:,}" for key, value in args.items())
        self.add(f'<rect x="{x:.2f}" y="{y}" width="{w:.2f}" height="{ROW - 2}" rx="2" fill="{self.color(family(name))}">'
                 f"<title>{escape(name)}: {end - begin:,.1f} us{more}</title></rect>")
        if len(label) * LETTER + 6 > w:
            label = family(name)
        if len(label) * LETTER + 6 <= w:
            self.text(x + w / 2, y + ROW / 2 + 3, label, 'text-anchor="middle" pointer-events="none"')

    def axis(self):
        span, distance = self.end - self.begin, ticks(self.end - self.begin)
        unit, per = ("ms", 1000) if span >= 5000 else ("us", 1)
        mark = 0.0
        while mark <= span:
            x = self.x(self.begin + mark)
            self.add(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 10}" y2="{self.at - GAP:.1f}" stroke="#eee"/>')
            self.text(x, TOP - 15, f"{mark / per:g}" + (f" {unit}" if mark == 0 else ""), 'text-anchor="middle" fill="#777"')
            mark += distance

    def legend(self):
        x, y = LEFT, self.at + 12
        for name in self.used:
            if x + 24 + len(name) * LETTER > self.width:
                x, y = LEFT, y + 20
            self.add(f'<rect x="{x}" y="{y}" width="12" height="12" rx="2" fill="{self.color(name)}"/>')
            self.text(x + 17, y + 10, name)
            x += 17 + len(name) * LETTER + 18
        return y + 28

    def svg(self, title):
        body, self.parts = self.parts, []
        self.axis()
        grid, self.parts = self.parts, []
        height = self.legend()
        self.text(10, 22, title, 'font-size="14" font-weight="bold"')
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {height:.0f}" width="{self.width}" '
                f'height="{height:.0f}" font-family="Helvetica, Arial, sans-serif" font-size="{FONT}" fill="#222">\n'
                f'<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(grid + body + self.parts) + "\n</svg>\n")


def draw(arguments):
    trace = Trace(arguments.files, cut=True)
    every = [s for slices in trace.slices.values() for s in slices]
    if not every:
        raise Bad("there are no slices in the trace")
    begin, end = min(s[0] for s in every), max(s[1] for s in every)
    if arguments.steps:
        begin, end = trace.steps(*(int(n) for n in arguments.steps.split("-")))
    if arguments.begin is not None:
        begin = arguments.begin * 1000
    if arguments.end is not None:
        end = arguments.end * 1000
    if end <= begin:
        raise Bad(f"the end, {end / 1000:g} ms, does not come after the beginning, {begin / 1000:g} ms")
    svg = Picture(trace, begin, end, arguments.width).svg(arguments.title)
    with open(arguments.out, "w", encoding="utf-8") as f:
        f.write(svg)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("check")
    one.add_argument("files", nargs="+")
    one.add_argument("--ranks", type=int)
    one.add_argument("--slices")
    one.add_argument("--cut", action="store_true")
    one.set_defaults(run=check)
    one = commands.add_parser("svg")
    one.add_argument("files", nargs="+")
    one.add_argument("-o", dest="out", required=True)
    one.add_argument("--steps")
    one.add_argument("--from", dest="begin", type=float)
    one.add_argument("--to", dest="end", type=float)
    one.add_argument("--width", type=int, default=1200)
    one.add_argument("--title", default="")
    one.set_defaults(run=draw)
    arguments = parser.parse_args()
    try:
        arguments.run(arguments)
    except (Bad, OSError, UnicodeDecodeError) as e:
        print(f"zro_trace.py: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
