#!/bin/sh
# The commands of README.md and docs/gpt.md work:  tests/products/readme.sh BUILD
#
# Every `make` in README.md is a target of the Makefile.  `make demo` is run, with few steps: it ends with a sample of text, what
# sharding saved, the speed, and where the picture is.  The commands of docs/gpt.md are run with few steps.
set -eu

build=$(cd "$1" && pwd)
tree=$(cd "$(dirname "$0")/../.." && pwd)
[ -x "$build/bin/zro-train" ] || {
    echo "there is no $build/bin/zro-train: it was built without a BLAS"
    exit 77
}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset ZRO_RANK ZRO_SIZE ZRO_LOCAL_RANK ZRO_MEET
fail() { cat "$dir/out"; echo "$*" >&2; exit 1; }

# Words behind a `make` that begins a line or a piece in code font, up to an option or a comment.
sed -n 's/^make \([a-z-]*\).*/\1/p; s/.*`make \([a-z-]*\)`.*/\1/p' "$tree/README.md" | sort -u >"$dir/targets"
grep -qx demo "$dir/targets" && grep -qx check "$dir/targets" || { echo 'README.md has no make demo or no make check' >&2; exit 1; }
while read -r target; do
    grep -q "^$target:" "$tree/Makefile" || { echo "README.md: there is no make $target" >&2; exit 1; }
done <"$dir/targets"

make --no-print-directory -C "$tree" -s demo DEMO_STEPS=12 DEMO="$dir/demo" >"$dir/out" 2>&1 </dev/null || fail 'make demo failed'
grep -q '^static zro_status ' "$dir/out" || fail 'make demo shows no sample of text'
tail -n 4 "$dir/out" | grep -q 'MB saved by sharding' || fail 'make demo does not say what sharding saved'
tail -n 4 "$dir/out" | grep -q 'tokens/s' || fail 'make demo does not say how fast it was'
tail -n 1 "$dir/out" | grep -qx "the picture: $dir/demo/report.html" || fail 'make demo does not end with where the picture is'
[ -s "$dir/demo/report.html" ] || fail 'make demo made no picture'

cd "$dir"
PATH=$build/bin:$PATH
sed -n 's/^    zro /zro /p' "$tree/docs/gpt.md" | sed 's/--steps 300/--steps 4/; s/--steps 600/--steps 8/; s/--model micro/--model nano/' >commands
[ "$(wc -l <commands)" -eq 5 ] || { echo 'docs/gpt.md must have five commands' >&2; exit 1; }
cat "$tree"/docs/*.md >my.txt
sh -eux commands >out 2>&1 </dev/null || fail 'a command of docs/gpt.md failed'
[ -s run/report.html ] || fail 'zro report made no page'
