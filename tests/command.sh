#!/bin/sh
# Tests of the zro command:  tests/command.sh [BUILD]
#
# Prints "ok NAME" or "not ok NAME" for each; fails if one failed.  Whatever is started here ends by itself or is ended by what
# is tested; the deadline of each run is that of `timeout`.
set -u

build=$(cd "${1:-build}" && pwd) || exit 2
zro=$build/bin/zro
hello=$build/examples/01_hello
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 2
unset ZRO_RANK ZRO_SIZE ZRO_LOCAL_RANK ZRO_MEET
failed=0

# run ARGUMENTS...: the command with a deadline; output in out and err, exit status in $status.
run()
{
    timeout -k 5 60 "$zro" "$@" >out 2>err </dev/null
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
        sed 's/^/  out: /' out
        sed 's/^/  err: /' err
        failed=1
    fi
}

exits() { [ "$status" -eq "$1" ]; }
says() { grep -q -e "$1" out; }
complains() { grep -q -e "$1" err; }
quiet() { [ ! -s err ]; }
prints() { [ "$(cat out)" = "$1" ]; }
refuses() { exits 2 && complains "$1" && complains 'zro help' && [ ! -s out ]; }

# A process that has ended but that nobody has waited for is dead too.
lives() { [ -r "/proc/$1/stat" ] && ! grep -q ') [ZX] ' "/proc/$1/stat" 2>/dev/null; }
dead() { ! lives "$1"; }

# Ranks are killed by the kernel soon after zro run, not before it is gone.
dies()
{
    tries=0
    while lives "$1" && [ $tries -lt 100 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
    dead "$1"
}

seconds() { date +%s; }

# ---- the command line ----

run
is overview exits 0
is overview.text says 'zro COMMAND'
run --help
is help exits 0
run help run
is help.run says 'usage: zro run'
run run --help
is help.run.option says 'usage: zro run'
run help bench group
is help.bench says 'usage: zro bench group'
run --version
is version says '^zro [0-9]*\.[0-9]*\.[0-9]*$'
run frobnicate
is unknown.command refuses '"frobnicate"'
run help frobnicate
is unknown.help refuses '"frobnicate"'
run run --frobnicate true
is unknown.option refuses '--frobnicate'
run run -x true
is unknown.option.short refuses '-x'
run run
is run.nothing refuses 'no program'
for n in 0 -1 x 2x '' 4097 99999999999999999999; do
    run run -n "$n" true
    is "run.ranks.$n" refuses "\"$n\""
done
run run -n
is run.ranks.missing refuses 'needs a value'
run bench
is bench.nothing refuses 'group'
run bench frobnicate
is bench.unknown refuses '"frobnicate"'
run bench group --ops all_reduce,frobnicate
is bench.ops refuses '"frobnicate"'
run bench group --memory frobnicate
is bench.memory refuses '"frobnicate"'
run bench group --seconds nan
is bench.seconds refuses '"nan"'
run bench group --ranks 0
is bench.ranks refuses '"0"'
run bench group more
is bench.more refuses '"more"'

# ---- zro run ----

# shellcheck disable=SC2016 # the ranks' variables
run run -n 3 sh -c 'echo "$ZRO_RANK $ZRO_LOCAL_RANK $ZRO_SIZE"'
sort -o out out
is run.variables prints "0 0 3
1 1 3
2 2 3"
is run.quiet quiet
run run --ranks 1 -- printf '%s|' -n 5 -- --help
is run.arguments prints '-n|5|--|--help|'
# shellcheck disable=SC2016
run run sh -c 'echo $ZRO_SIZE'
is run.default [ "$(wc -l <out)" -eq "$(nproc)" ]
# shellcheck disable=SC2016
run run -n 1 sh -c 'readlink /proc/$$/fd/$ZRO_MEET'
is run.table says 'memfd:zro-meet'
# shellcheck disable=SC2016 # that is one descriptor more than without zro run
timeout 60 sh -c 'ls /proc/$$/fd' >plain 2>err </dev/null
run run -n 1 sh -c 'ls /proc/$$/fd'
is run.descriptors [ "$(wc -l <out)" -eq $(($(wc -l <plain) + 1)) ]
run run -n 4 -- "$hello"
is run.hello exits 0
is run.hello.sum [ "$(grep -c 'is 6, and 4 of us' out)" -eq 4 ]
run run -n 2 "$dir/nosuch"
is run.nosuch exits 127
is run.nosuch.text complains 'zro run: cannot start ".*nosuch": No such file'
run run -n 2 "$dir"
is run.directory exits 127

# A rank that fails; the others would take a minute.
start=$(seconds)
# shellcheck disable=SC2016
run run -n 3 sh -c 'echo $$; [ $ZRO_RANK != 1 ] || exit 3; exec sleep 60'
is run.code exits 3
is run.code.text complains '^zro run: rank 1 exited with 3$'
is run.code.once [ "$(wc -l <err)" -eq 1 ]
# shellcheck disable=SC2016
run run -n 3 sh -c 'echo $$; [ $ZRO_RANK != 2 ] || kill -9 $$; exec sleep 60'
is run.signal exits 137
is run.signal.text complains '^zro run: rank 2 was killed by signal 9 (Killed)$'
is run.prompt [ $(($(seconds) - start)) -lt 5 ]
for pid in $(cat out); do
    is run.none_left dead "$pid"
done

# A rank that answers the death of another with an error of its own is not what failed first, though it is seen first.
mkfifo fifo
# shellcheck disable=SC2016
run run -n 2 sh -c 'trap "" TERM
    if [ $ZRO_RANK = 0 ]; then read -r line <fifo; exit 1; fi
    exec 3>fifo; kill -SEGV $$'
is run.cause exits 139
is run.cause.text complains '^zro run: rank 1 was killed by signal 11'

# Settings of the environment reach the ranks: rank 1 never comes, and rank 0 does not wait for the default of ten minutes.
# shellcheck disable=SC2016
ZRO_TIMEOUT_MS=300 run run -n 2 sh -c '[ "$ZRO_RANK" = 0 ] || exec sleep 50; exec "$0"' "$hello"
is run.timeout exits 1
is run.timeout.text complains 'rank 1 did not come within 300 ms'

# What cannot be written is no success.
if [ -e /dev/full ]; then
    "$zro" --version >/dev/full 2>err
    status=$?
    is full exits 1
fi

# Signals to zro run: ended in time, ended after the grace, and when zro run cannot do anything any more.
exec 9<>fifo
# shellcheck disable=SC2016
timeout -k 5 60 "$zro" run -n 2 sh -c 'echo $$ >&9; exec sleep 60 9>&-' >out 2>err </dev/null &
read -r one <&9
read -r two <&9
# The command is the one child of timeout.
kill -TERM "$(cut -d ' ' -f 4 "/proc/$one/stat")"
wait $! 2>/dev/null
status=$?
is run.term exits 143
is run.term.text complains 'zro run: ended by signal 15'
is run.term.0 dead "$one"
is run.term.1 dead "$two"

start=$(seconds)
# shellcheck disable=SC2016
run run -n 2 sh -c 'trap "" TERM; echo $$
    if [ $ZRO_RANK = 1 ]; then read -r line <&9; exit 4; fi
    echo >&9; exec sleep 60'
took=$(($(seconds) - start))
is run.grace exits 4
is run.grace.took [ $took -ge 4 ]
is run.grace.over [ $took -lt 20 ]
for pid in $(cat out); do
    is run.grace.none_left dead "$pid"
done

# shellcheck disable=SC2016
timeout -k 5 60 "$zro" run -n 2 sh -c 'echo $$ >&9; exec sleep 60 9>&-' >out 2>err </dev/null &
read -r one <&9
read -r two <&9
kill -KILL "$(cut -d ' ' -f 4 "/proc/$one/stat")"
wait $! 2>/dev/null
status=$?
is run.killed exits 137
is run.killed.0 dies "$one"
is run.killed.1 dies "$two"
exec 9>&-

# ---- zro bench ----

run bench group -n 2 --quick --seconds 0 --json
is bench exits 0
is bench.rows [ "$(grep -c '{"op": "[a-z_]*", "bytes": [0-9]*, "memory": "[a-z]*", "median_us": [0-9.]*, "limit_us": [0-9.]*, "share": [0-9.]*}' out)" -eq 16 ]
for row in '"all_reduce", "bytes": 1024, "memory": "group"' '"broadcast", "bytes": 33554432, "memory": "own"'; do
    is bench.row says "$row"
done
run bench group --ranks 3 --quick --seconds 0 --memory group --ops reduce,reduce_scatter,gather,all_gather
is bench.table exits 0
for op in reduce reduce_scatter gather all_gather; do
    is "bench.$op" [ "$(grep -c "^$op  *group " out)" -eq 4 ]
done

exit $failed
