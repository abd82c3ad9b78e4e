#!/bin/sh
# Tests of `zro report` and of `make demo`:  tests/products/report.sh [BUILD]
#
# Prints "ok NAME" or "not ok NAME" for each; fails if one failed.  What the page looks like is the business of browser.sh.
set -u

build=$(cd "${1:-build}" && pwd) || exit 2
tree=$(cd "$(dirname "$0")/../.." && pwd) || exit 2
zro=$build/bin/zro
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 2
unset ZRO_RANK ZRO_SIZE ZRO_LOCAL_RANK ZRO_LOCAL_SIZE ZRO_RESTART ZRO_MEET ZRO_THREADS
failed=0

# run ARGUMENTS...: the command with a deadline; output in out and err, exit status in $status.
run()
{
    timeout -k 5 120 "$zro" "$@" >out 2>err </dev/null
    status=$?
}

# is NAME CONDITION...: one result.
is()
{
    name=$1
    shift
    if "$@"; then
        echo "ok $name"
    else
        echo "not ok $name: $*"
        echo "  status $status"
        tail -n 8 out | sed 's/^/  out: /'
        sed 's/^/  err: /' err
        failed=1
    fi
}
exits() { [ "$status" -eq "$1" ]; }
says() { grep -q -e "$1" out; }
# refuses STATUS TEXT: nothing but a message.
refuses() { exits "$1" && grep -q -e "$2" err && [ ! -s out ]; }
# warns TEXT: it is done nevertheless.
warns() { exits 0 && [ "$(grep -c . err)" -eq 1 ] && grep -q -e "$1" err; }
has() { grep -q -e "$1" "$2"; }
# whole FILE: a page from its first tag to its last, with no NaN, nothing from elsewhere, and no script.
whole()
{
    [ "$(head -c 15 "$1")" = '<!DOCTYPE html>' ] && [ "$(tail -n 1 "$1")" = '</html>' ] && ! grep -qi -e '[" MLs]-\{0,1\}nan[" ,LM<]' -e '[" ]-\{0,1\}inf"' \
        -e 'http' -e '<script' -e 'url(' "$1"
}
# charts FILE: how many.
charts() { grep -c '<svg ' "$1"; }

# made FIRST LAST [LOSS]: lines of a log.
made()
{
    awk -v a="$1" -v b="$2" -v loss="${3:-5}" 'BEGIN {
        for (i = a; i <= b; i++)
            printf "{\"step\":%d,\"loss\":%g,\"val_loss\":%s,\"norm\":%g,\"lr\":%g,\"ms\":50,\"tokens_per_s\":%g,\"comm\":0.1}\n",
                   i, loss / (1 + i / 100), i % 10 ? "null" : loss, i == 777 ? 50 : 1, 1e-3 * i, 40000 + i % 7 }'
}

# ---- the command line ----

run help report
is help says 'usage: zro report'
for option in --output --help; do
    is "help.$option" says "$option"
done
sed -n 's/^  ....\(--[a-z-]*\).*/\1/p' out | sort >options
sed -n 's/^\.It .*Fl -\([a-z-]*\).*/--\1/p' "$tree/docs/man/zro-report.1" | sort >man_options
is help.man cmp options man_options
run report
is nothing refuses 2 'which run'
run report a b
is two refuses 2 '"b": only one run'
run report --frobnicate a
is option refuses 2 '--frobnicate'
run report -o
is option.value refuses 2 'needs a value'

# ---- logs that are no logs ----

run report missing.jsonl
is missing refuses 1 'missing.jsonl cannot be read: No such file'
mkdir folder
run report folder
is folder refuses 1 'folder/log.jsonl cannot be read: No such file'
: >empty.jsonl
run report empty.jsonl
is empty refuses 1 'empty.jsonl is empty: the run has made no step yet'
is empty.no_page [ ! -e empty.html ]
head -c 3000 "$zro" >binary.log
run report binary.log
is binary refuses 1 'is no log of zro train'
printf '[1]\n{"step":0,"loss":1}\n{"step":"1","loss":1}\n{"loss":1}\n"step"\n' >other.log
run report other.log
is other refuses 1 'none of its 5 lines is a step; give the folder of the run, or its log.jsonl'
echo '<!DOCTYPE html>' >folder/report.html
run report folder/report.html
is page refuses 2 'report.html would be log and page at once: give the folder of the run, or its log.jsonl'
is page.kept has DOCTYPE folder/report.html

# ---- damaged, resumed, long ----

made 1 50 >log
run report log
is log exits 0
is log.told says '^50 steps, loss 4.950 to 3.333, validation 5.000, 40,003 tokens/s$'
is log.where says '^the picture: log.html$'
is log.page whole log.html
is log.charts [ "$(charts log.html)" -eq 5 ]
printf '{"step":51,"lo' >>log
run report log
is killed warns 'log: the last line is not whole and left out'
is killed.told says '^50 steps'
made 40 60 9 >>log # the half line goes on with the whole one behind it
run report log
is resumed warns '1 of 71 lines are damaged and left out, the first is line 51'
is resumed.told says '^60 steps, loss 4.950 to 5.625, validation 9.000'
is resumed.once [ "$(grep -c '<circle.*at step 50<' log.html)" -eq 1 ]
is resumed.later has '<circle.*validation 9.0000 at step 50<' log.html

made 1 5000 >long.jsonl
run report long.jsonl
is long whole long.html
is long.thinned [ "$(wc -c <long.html)" -lt 120000 ]
# The spike of one step in 5000 is in the picture: the norm's axis has to reach 50, and its line to touch that.
is long.spike awk '/aria-label="Gradient norm"/ { inside = 1 } inside && /class="faint/ { exit !(/L[0-9.]+ 44\.0/) }' long.html

printf '{"step":7,"loss":null,"lr":1e999}\n{"step":8,"loss":1e300,"lr":0}\n{"step":9,"loss":2,"lr":-1}\n' >odd
run report odd -o odd.html
is odd whole odd.html
is odd.line warns '1 of 3 lines are damaged'
printf '{"step":1,"loss":2,"run":{"ranks":1,"data":"<script>&\\"","memory":[],"options":{"model":"<b>","value":{"a":null}}}}\n' >evil
run report evil
is evil whole evil.html
is evil.text has '&lt;script&gt;&amp;&quot;' evil.html
is evil.title has '<h1>&lt;b&gt; on 1 rank</h1>' evil.html

# ---- where the page goes ----

run report long.jsonl -o -
is stdout cmp out long.html
cp long.jsonl before
run report long.jsonl -o ./long.jsonl
is itself refuses 2 'is the log itself'
is itself.kept cmp long.jsonl before
run report long.jsonl --output /nonexistent/x.html
is nowhere refuses 1 '/nonexistent/x.html'
if [ "$(id -u)" -eq 0 ] && mkdir full && mount -t tmpfs -o size=64k none full 2>/dev/null; then
    echo old >full/page.html
    run report long.jsonl -o full/page.html
    is full refuses 1 'full/page.html'
    is full.kept [ "$(cat full/page.html) $(ls -A full)" = 'old page.html' ]
    umount full
else
    echo 'skip full: no disk of 64 kB can be made here'
fi

# ---- a real run ----

if [ ! -x "$build/bin/zro-train" ]; then
    echo 'skip trained: zro-train was built without a BLAS'
    exit $failed
fi
run train -n 2 --model nano --steps 6 --eval-every 3 --out run --data "$tree/include/zro.h"
is trained exits 0
is trained.log has '"run":{.*"options":{.*"memory":\[.*"memory_unsharded":' run/log.jsonl
is trained.steps [ "$(grep -c '^{"step":' run/log.jsonl) $(grep -c '"run":' run/log.jsonl)" = '6 1' ]
run report run
is trained.report says '^6 steps, .* MB saved by sharding$'
is trained.page whole run/report.html
is trained.charts [ "$(charts run/report.html)" -eq 6 ]
for text in '<h1>nano on 2 ranks' 'rank 1, optimizer: ' 'without sharding, optimizer: ' 'include/zro.h</dd>' '<dt>schedule</dt><dd>constant'; do
    is "trained.text" has "$text" run/report.html
done
run train -n 2 --model nano --steps 8 --out run --data "$tree/include/zro.h" --resume
run report run
is trained.resumed says '^8 steps'
is trained.resumed.run [ "$(grep -c '"run":' run/log.jsonl)" -eq 2 ]

# The demo, with few steps.
if [ "$build" = "$tree/build" ]; then
    timeout -k 5 300 make -s -C "$tree" demo DEMO_STEPS=3 >out 2>err </dev/null
    status=$?
    is demo exits 0
    is demo.saved says '^sharding saved .* MB'
    is demo.sample says '^static zro_status '
    is demo.picture says '^the picture: build/demo/report.html$'
    is demo.page whole "$build/demo/report.html"
fi
exit $failed
