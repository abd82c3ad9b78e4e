#!/bin/sh
# Tests zro.torch, in the environment of scripts/venv:  tests/products/python/torch.sh BUILD
#
# Where that cannot be made the answer is 77.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$here/../../..
build=$(cd "$1" && pwd)
python=$("$root/scripts/venv" torch)
export PYTHONDONTWRITEBYTECODE=1 ZRO_LIBRARY="$build/lib/libzro.so" PYTHONPATH="$root/python" OMP_NUM_THREADS=1
export PYTHONWARNINGS=ignore # PyTorch says what of it is deprecated
for test in test_torch_optim test_torch_ddp; do
    echo "$test"
    "$python" "$here/$test.py"
done
echo 'zro.torch.check'
"$python" -m zro.torch.check
for form in '' --attached; do
    echo "examples/torch_train.py $form"
    # shellcheck disable=SC2086  # none or one word
    "$python" -m torch.distributed.run --standalone --nproc-per-node 2 "$root/python/examples/torch_train.py" --steps 5 $form >/dev/null
done
