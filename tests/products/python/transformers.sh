#!/bin/sh
# Takes weights to Hugging Face's transformers and back, in the environment of scripts/venv:  tests/products/python/transformers.sh BUILD
#
# Where that cannot be made, or zro-train was not built, the answer is 77.
set -eu

here=$(dirname "$0")
build=$(cd "$1" && pwd)
[ -x "$build/bin/zro-train" ] || {
    echo "there is no $build/bin/zro-train: it was built without a BLAS"
    exit 77
}
python=$("$here/../../../scripts/venv" transformers)
export HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=warning PYTHONDONTWRITEBYTECODE=1
exec "$python" "$here/test_transformers.py" "$build/bin/zro"
