#!/bin/sh
# The page of `zro report` in a real browser:  tests/products/browser.sh [BUILD]
#
# Chromium draws a page of a log that is made here, in light and in dark colours, without a word on its console; and the picture
# has the lines and bars in their colours, on the background that it should have.  Skipped where there is no Chromium.
set -eu

build=$(cd "${1:-build}" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
command -v chromium >/dev/null || {
    echo "there is no chromium (scripts/setup check-full installs it where it can be had): the page of zro report was not looked at"
    exit 77
}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

awk 'BEGIN {
    memory = "{\"parameters\":4e6,\"gradients\":8e6,\"optimizer\":8e6,\"activations\":9e6}"
    for (i = 1; i <= 3000; i++) {
        printf "{\"step\":%d,\"loss\":%g,\"val_loss\":%s,\"norm\":%g,\"lr\":%g,\"ms\":50,\"tokens_per_s\":%g,\"comm\":0.1", i,
               2 + 3 / (1 + i / 200) + i % 7 / 50, i % 100 ? "null" : 2.5, 1 + i % 5 / 9, 1e-3 * (1 - i / 3000), 40000 + i % 11 * 100
        if (i == 1)
            printf ",\"run\":{\"ranks\":2,\"options\":{\"model\":\"made up\"},\"memory\":[%s,%s],\"memory_unsharded\":%s}", memory, memory, memory
        print "}"
    }
}' >"$dir/log.jsonl"
"$build/bin/zro" report "$dir/log.jsonl" >/dev/null

# draw NAME OPTIONS...: the picture, and no word of the page on the console.
draw()
{
    name=$1
    shift
    root=
    [ "$(id -u)" -ne 0 ] || root=--no-sandbox
    HOME=$dir timeout -k 5 120 chromium --headless $root --disable-gpu --hide-scrollbars --enable-logging=stderr --user-data-dir="$dir/profile" \
        --window-size=1100,1500 "$@" --screenshot="$dir/$name.png" "file://$dir/log.html" >"$dir/out" 2>&1 || {
        cat "$dir/out"
        echo "chromium failed"
        exit 1
    }
    ! grep -e CONSOLE -e 'load failed' "$dir/out"
}

# look FILE TRAINING VALIDATION GRADIENTS ACTIVATIONS BACKGROUND: the curves stand above the bars of memory.
look()
{
    "$here/pixels.py" "$1" 0 1110 "$2:2000" "$3:1000" "$6:100000"
    "$here/pixels.py" "$1" 1110 1500 "$2:4000" "$3:9000" "$4:9000" "$5:9000"
}
draw light --blink-settings=preferredColorScheme=1
look "$dir/light.png" 0072b2 d55e00 009e73 cc79a7 ffffff
draw dark --blink-settings=preferredColorScheme=0
look "$dir/dark.png" 56b4e9 ff9d4d 2fc79a e3a0c8 14171b
