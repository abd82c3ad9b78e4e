#!/bin/sh
# Builds the wheel, installs it in a fresh virtual environment, and uses it there:  tests/products/python/wheel.sh
#
# Where Python cannot make environments, or no package index has what the build needs, the answer is 77.
set -eu

root=$(cd "$(dirname "$0")/../../.." && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset ZRO_LIBRARY PYTHONPATH

skip()
{
    echo "python.wheel: $*"
    exit 77
}

python3 -m venv "$dir/venv" 2>/dev/null || skip "python3 cannot make virtual environments (Debian: python3-venv)"
python=$dir/venv/bin/python
pip() { "$python" -m pip --disable-pip-version-check --no-input -q "$@" >"$dir/log" 2>&1; }
pip install --retries 1 numpy 'scikit-build-core>=0.10' || skip "no package index gave numpy and scikit-build-core: $(tail -n 1 "$dir/log")"

# The same wheel comes from the cache when nothing has changed.
! command -v ccache >/dev/null || export CMAKE_C_COMPILER_LAUNCHER=ccache
pip install --no-build-isolation --no-deps "$root/python" || {
    cat "$dir/log"
    exit 1
}

cd "$dir"
cat >train.py <<'PYTHON'
import numpy
import os
import zro


def train(group):
    params = zro.Params.alloc(group, {"w": (3,)})
    ddp = zro.Ddp(group, params)
    optim = zro.Optimizer(params, zro.adamw(lr=0.1), group, ddp)
    for _ in range(100):
        with ddp.iteration():
            params["w"].grad = 2 * (params["w"].data - group.rank)
            ddp.ready()
        optim.step()
    optim.save("state.safetensors")
    assert numpy.allclose(params["w"].data, 0.5, atol=0.01), params["w"].data


if __name__ == "__main__":
    folder = os.path.dirname(zro.__file__)
    assert zro._c.path.startswith(folder), zro._c.path
    with open("/proc/self/maps", encoding="ascii") as maps:
        assert f"{folder}/libjansson" in maps.read(), "jansson is not the one of the wheel"
    if "ZRO_RANK" in os.environ:
        train(zro.Group())
    else:
        zro.spawn(train, 2)
PYTHON
"$python" train.py
"$dir/venv/bin/zro" run -n 2 -- "$python" train.py
"$python" -m zro --version

# What the package says where it does not fit.
says()
{
    text=$1
    shift
    ! "$@" >"$dir/log" 2>&1 && grep -q "$text" "$dir/log" || {
        cat "$dir/log"
        echo "python.wheel: $* did not say: $text"
        exit 1
    }
}
says 'zro needs NumPy' "$python" -c 'import sys; sys.modules["numpy"] = None; import zro'
cp -r "$root/python" alone
says 'belong beside this folder' "$python" -m pip install -q --no-build-isolation --no-deps ./alone
