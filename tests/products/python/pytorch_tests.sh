#!/bin/sh
# Runs PyTorch's own tests of its ZeroRedundancyOptimizer on zro's classes:  tests/products/python/pytorch_tests.sh BUILD
#
# ZRO_PYTORCH_TESTS is the path of test_zero_redundancy_optimizer.py, which belongs to PyTorch's repository
# (test/distributed/optim/, of the version that is installed) and is not part of this one.  Without it, and where scripts/venv can make
# no environment, the answer is 77.  pytorch_shim/sitecustomize.py says what is changed for the tests.
# One process per test; a failure on any rank is a failure.  All of them take about 12 minutes of processor time, because the 4 ranks of
# each test import PyTorch.  ONLY=PATTERN (of grep -E) takes some of the tests.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
file=${ZRO_PYTORCH_TESTS:-}
[ -n "$file" ] || {
    echo 'PyTorch'\''s own tests are SKIPPED: ZRO_PYTORCH_TESTS does not name its test_zero_redundancy_optimizer.py' >&2
    exit 77
}
[ -r "$file" ] || {
    echo "ZRO_PYTORCH_TESTS=$file cannot be read" >&2
    exit 1
}
python=$("$here/../../../scripts/venv" torch)
"$python" -c 'import expecttest' 2>/dev/null || {
    echo "PyTorch's own tests are SKIPPED: $python has no package expecttest" >&2
    exit 77
}
export PYTHONDONTWRITEBYTECODE=1 ZRO_LIBRARY="$build/lib/libzro.so" OMP_NUM_THREADS=1 PYTHONPATH="$here/pytorch_shim:$here/../../../python"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" - "$file" >"$work/list" <<'PY'
import importlib.util, sys, unittest
spec = importlib.util.spec_from_file_location("tests", sys.argv[1])
sys.modules["tests"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
for suite in unittest.TestLoader().loadTestsFromModule(module):
    for test in suite:
        print("%s.%s" % (type(test).__name__, test._testMethodName))
PY
passed=0 failed=0
for name in $(grep -E "${ONLY:-.}" "$work/list"); do
    if timeout -k 10 300 "$python" "$file" -v "$name" >"$work/log" 2>&1 </dev/null && grep -q '^OK$' "$work/log"; then
        passed=$((passed + 1))
        echo "ok $name"
    else
        failed=$((failed + 1))
        echo "not ok $name"
        tail -n 20 "$work/log"
    fi
done
echo "PyTorch's own tests: $passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
