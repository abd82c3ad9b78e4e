#!/bin/sh
# Every mistake of docs/mistakes.md gives the text that the page shows:  tests/products/mistakes.sh BUILD
#
# A row of the page's table is "| number | mistake | `text` | what to do |"; tests/products/mistakes.c makes the mistake with that number.
set -eu

build=$(cd "$1" && pwd)
tree=$(cd "$(dirname "$0")/../.." && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset ZRO_RANK ZRO_SIZE ZRO_LOCAL_RANK ZRO_MEET
cd "$dir"

cc -std=gnu11 -Wall -Wextra -Werror -I"$tree/include" "$tree/tests/products/mistakes.c" -o mistakes -L"$build/lib" -lzro -Wl,-rpath,"$build/lib"
sed -n 's/^| \([0-9]*\) |[^|]*| `\([^|]*\)` |.*/\1 \2/p' "$tree/docs/mistakes.md" >rows
failed=0
while read -r number text; do
    ZRO_TIMEOUT_MS=2000 "$build/bin/zro" run -n 2 -- ./mistakes "$number" >out 2>&1 </dev/null || true
    grep -qF "$text" out || {
        echo "mistake $number does not say: $text"
        cat out
        failed=1
    }
done <rows
count=$(grep -c . rows)
[ "$count" -ge 20 ] || { echo "docs/mistakes.md has only $count mistakes"; failed=1; }
./mistakes $((count + 1)) >out 2>&1 && { echo "mistakes.c has more than the page"; failed=1; }
exit $failed
