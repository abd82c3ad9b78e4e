#!/bin/sh
# Every piece of C in README.md and docs/ compiles, runs and does what its text says:  tests/products/snippets.sh BUILD
#
# A piece has a name, in a line "<!-- snippet: NAME -->" above it.  tests/products/snippets/NAME.c is the program around it: the line
# that says SNIPPET is replaced by the piece.  Its head says how many ranks run it ("ranks: 2"; "ranks: 1 2": one
# run with each) and may say what it prints ("prints: TEXT"); it must end with 0.
set -eu

build=$(cd "$1" && pwd)
tree=$(cd "$(dirname "$0")/../.." && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset ZRO_RANK ZRO_SIZE ZRO_LOCAL_RANK ZRO_MEET
cd "$dir"

# Pieces become files NAME.piece; one without a name, or with that of another, is an error.
for page in "$tree"/README.md "$tree"/docs/*.md; do
    awk -v page="$(basename "$page")" '
        /^<!-- snippet: / { name = $3; next }
        /^```c$/ {
            if (name == "") { print page ":" NR ": a piece of C without a name" > "/dev/stderr"; exit 1 }
            if ((getline line < (name ".piece")) >= 0) { print page ":" NR ": two pieces are named " name > "/dev/stderr"; exit 1 }
            inside = 1; next
        }
        /^```$/ && inside { inside = 0; close(name ".piece"); name = ""; next }
        inside { print > (name ".piece"); next }
        NF > 0 { name = "" }
    ' "$page"
done

for piece in *.piece; do
    name=${piece%.piece}
    around=$tree/tests/products/snippets/$name.c
    [ -f "$around" ] || { echo "$around: there is no program around the snippet $name" >&2; exit 1; }
    sed -e "/SNIPPET/{r $piece" -e 'd;}' "$around" >"$name.c"
    cc -std=gnu11 -Wall -Wextra -Wno-unused-result -Werror -I"$tree/include" "$name.c" -o "$name" -L"$build/lib" -lzro -lm -Wl,-rpath,"$build/lib"
    ranks=$(sed -n 's/.*ranks: \([0-9 ]*\).*/\1/p' "$around" | head -n 1)
    prints=$(sed -n 's/.*prints: \(.*[^ ]\) *\*\/.*/\1/p' "$around" | head -n 1)
    for n in ${ranks:-1}; do
        "$build/bin/zro" run -n "$n" --no-prefix -- "./$name" >out 2>&1 || { cat out; echo "the snippet $name failed on $n ranks" >&2; exit 1; }
        if grep 'zro warning' out; then exit 1; fi
        [ -z "$prints" ] || grep -qF "$prints" out || { cat out; echo "the snippet $name does not print: $prints" >&2; exit 1; }
    done
done
for around in "$tree"/tests/products/snippets/*.c; do
    name=$(basename "$around" .c)
    [ -f "$name.piece" ] || { echo "$around: no page has the snippet $name" >&2; exit 1; }
done
