#!/bin/sh
# Tests the package `zro`, without PyTorch, in the environment of scripts/venv:  tests/products/python/package.sh BUILD
#
# Where that cannot be made the answer is 77.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$here/../../..
ZRO_LIBRARY=$(cd "$1" && pwd)/lib/libzro.so
python=$("$root/scripts/venv" torch)
export ZRO_LIBRARY PYTHONPATH="$root/python" PYTHONDONTWRITEBYTECODE=1
exec timeout 300 "$python" -W error "$here/test_package.py"
