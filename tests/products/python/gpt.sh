#!/bin/sh
# Compares the training of gpt/ with PyTorch's, in the environment of scripts/venv:  tests/products/python/gpt.sh BUILD
#
# Where that cannot be made, or zro-train was not built, the answer is 77.
set -eu

here=$(dirname "$0")
build=$(cd "$1" && pwd)
[ -x "$build/bin/zro-train" ] || {
    echo "there is no $build/bin/zro-train: it was built without a BLAS"
    exit 77
}
python=$("$here/../../../scripts/venv" torch)
PYTHONDONTWRITEBYTECODE=1 exec "$python" "$here/test_gpt.py" "$build/bin/zro"
