#!/bin/sh
# A comparison of bench/ starts, measures a small case, and writes what it should:  tests/products/compare.sh NAME OPTIONS...
#
# NAME is compare, all_reduce or train.  It works on copies of the documents.  77: a rival is missing.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
name=$1
shift
docs=$(mktemp -d)
trap 'rm -rf "$docs"' EXIT
cp "$root/docs/performance.md" "$docs"
timeout 900 "$root/bench/$name" --quick --docs "$docs" "$@"
python3 - "$docs" "$root/docs" "$name" <<'END'
import os, re, sys
import xml.etree.ElementTree as xml

docs, before, name = sys.argv[1:]
begin, end = f"<!-- bench/{name}: begin -->", f"<!-- bench/{name}: end -->"


def parts(folder):
    with open(os.path.join(folder, "performance.md"), encoding="utf-8") as file:
        head, rest = file.read().split(begin)
        return [head, *rest.split(end)]


old, new = parts(before), parts(docs)
assert old[0] == new[0] and old[2] == new[2], "text outside of the marks has changed"
assert "Not measured" not in new[1], new[1]
rows = [line.strip("| ").split(" | ") for line in new[1].splitlines() if line.startswith("|")]
head, rows = rows[0], rows[2:]
number = {"compare": r"\d+\.\d+ \[\d+\.\d+-\d+\.\d+\]", "all_reduce": r"(\*\*)?[\d,]+\.\d+(\*\*)?",
          "train": r"-?[\d,]+(\.\d)? \[-?[\d,]+(\.\d)?--?[\d,]+(\.\d)?\]|[\d,]+ MB|\*\*-?\d+\.\d\dx\*\*"}[name]
for row in rows:
    assert all(re.fullmatch(number, cell) for cell in row[1:]), row
wanted = {"compare": ["zro, handed out", "zro, private gradients", "zro, in place", "PyTorch ZeRO, default Adam",
                      "PyTorch ZeRO, bucket views, fused Adam", "PyTorch DDP, full fused Adam", "Open MPI"],
          "all_reduce": ["zro, own memory", "zro, group memory", "**best rival / own memory", "**best rival / group memory"],
          "train": ["zro", "PyTorch", "**zro: better by**"]}[name]
for label in wanted:
    assert any(row[0].startswith(label) for row in rows), f"no row {label}"
if name == "compare":
    chart = xml.parse(os.path.join(docs, "compare.svg")).getroot()
    texts = [text.text for text in chart.iter("{http://www.w3.org/2000/svg}text")]
    assert all(row[0] in texts for row in rows), texts
END
