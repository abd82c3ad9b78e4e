#!/bin/sh
# A program that was compiled with the header of 0.1.0 runs with today's shared library:  tests/products/old_program.sh BUILD
set -eu

build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset ZRO_RANK ZRO_SIZE ZRO_LOCAL_RANK ZRO_MEET
cc -std=c11 -Wall -Wextra -Werror "$here/old_program.c" -o "$dir/old_program" -L"$build/lib" -Wl,-rpath,"$build/lib" -lzro -lm
"$build/bin/zro" run -n 2 --no-prefix -- "$dir/old_program" >"$dir/out" 2>&1 || { cat "$dir/out"; exit 1; }
[ "$(grep -c '^compiled with 0.1.0, runs with 0\.' "$dir/out")" -eq 2 ] || { cat "$dir/out"; exit 1; }
