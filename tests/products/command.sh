#!/bin/sh
# Tests of the zro command:  tests/products/command.sh [BUILD]
#
# Prints "ok NAME" or "not ok NAME" for each; fails if one failed.  Whatever is started here ends by itself or is ended by what
# is tested; the deadline of each run is that of `timeout`.
set -u

build=$(cd "${1:-build}" && pwd) || exit 2
man=$(cd "$(dirname "$0")/../../docs/man" && pwd) || exit 2
zro=$build/bin/zro
hello=$build/examples/01_hello
tests=$build/bin/zro-tests
for program in "$zro" "$hello" "$tests"; do
    [ -x "$program" ] || { echo "not ok command: there is no $program"; exit 2; }
done
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 2
unset ZRO_RANK ZRO_SIZE ZRO_LOCAL_RANK ZRO_LOCAL_SIZE ZRO_RESTART ZRO_MEET
unset OMP_NUM_THREADS OPENBLAS_NUM_THREADS MKL_NUM_THREADS NO_COLOR
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

# soon CONDITION...: waits until it is true, at most 30 seconds.
soon()
{
    tries=0
    until "$@"; do
        [ $tries -lt 600 ] || return 1
        sleep 0.05
        tries=$((tries + 1))
    done
}

# pids FILE: the numbers in lines "[RANK] NUMBER" or "NUMBER".
pids() { sed -n 's/^\(\[[0-9]*\] \)\{0,1\}\([0-9][0-9]*\)$/\2/p' "$1"; }

# none_left NAME FILE: of the processes whose numbers are in it, none lives.
none_left()
{
    is "$1.some" [ -n "$(pids "$2")" ]
    for pid in $(pids "$2"); do
        is "$1.none_left" dead "$pid"
    done
}

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
run run --version
is unknown.option.whole refuses '^zro run: there is no option --version$'
run run --help=1
is help.value refuses '^zro run: --help=1: this option has no value$'
run run --timeout 10m true
is run.timeout.unit refuses '"10m", must be a number of seconds'
run run -n
is run.ranks.missing refuses 'needs a value'
for option in '--bind core2' '--bind=' '--timeout 0' '--timeout x' '--timeout -1' '--grace -1' '--grace nan' '--restarts -1' \
    '--restarts 1.5' '--no-prefix=1' '--pipe=1'; do
    # shellcheck disable=SC2086 # an option and its value
    run run $option true
    is "run.$option" refuses "${option%%[ =]*}"
done
run run --bind core -n $(($(nproc) + 1)) true
is run.bind.too_many refuses "only $(nproc) processors"
run help run
for option in --ranks --bind --no-prefix --pipe --timeout --grace --restarts --help; do
    is "help.run.$option" says "$option"
done
sed -n 's/^  ....\(--[a-z-]*\).*/\1/p' out | sort >options
sed -n 's/^\.It .*Fl -\([a-z-]*\).*/--\1/p' "$man/zro-run.1" | sort >man_options
is help.run.man cmp options man_options
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
run help bench optim
is help.bench.optim says 'usage: zro bench group'
for option in --help -h; do
    run bench optim $option
    is bench.optim.help exits 0
    for known in --json --rules --dtypes --kernels --threads --params --samples --quick; do
        is "bench.optim.help.$known" says "$known"
    done
done
for option in '--rules adam,frobnicate' '--rules ,' '--dtypes f32,i8' '--kernels fast' '--threads 0' '--threads 257' '--params 999' \
    '--params 1e9' '--params 2147483648' '--samples 0' '--samples x' '--json=1' --frobnicate; do
    # shellcheck disable=SC2086 # an option and its value
    run bench optim $option
    is "bench.optim.$option" refuses "${option%%[ =]*}"
done
run bench optim --rules
is bench.optim.missing refuses 'needs a value'
run bench optim more
is bench.optim.more refuses '"more"'
run help bench step
is help.bench.step says 'zro bench step'
for option in --help -h; do
    run bench step $option
    is bench.step.help exits 0
    for known in --ranks --params --rule --json --quick; do
        is "bench.step.help.$known" says "$known"
    done
done
for option in '--ranks 0' '--ranks 65' '--ranks x' '--params 999' '--params gpt3' '--params 1e9' '--params -1' '--params 2147483648' \
    '--rule frobnicate' '--rule adam,sgd' '--json=1' '--quick=1' --frobnicate; do
    # shellcheck disable=SC2086 # an option and its value
    run bench step $option
    is "bench.step.$option" refuses "${option%%[ =]*}"
done
run bench step --rule
is bench.step.missing refuses 'needs a value'
run bench step more
is bench.step.more refuses '"more"'
run help bench overlap
is help.bench.overlap says 'zro bench overlap'
for option in '--ranks 0' '--ranks 65' '--params 999' '--json=1' --frobnicate; do
    # shellcheck disable=SC2086 # an option and its value
    run bench overlap $option
    is "bench.overlap.$option" refuses "${option%%[ =]*}"
done
run bench overlap more
is bench.overlap.more refuses '"more"'
# The man page has every option that the help has, of all four.
run help bench
sed -n 's/^  ....\(--[a-z-]*\).*/\1/p' out | sort >options
sed -n 's/^\.It .*Fl -\([a-z-]*\).*/--\1/p' "$man/zro-bench.1" | sort >man_options
is help.bench.man cmp options man_options

# ---- the log ----

run run -n 2 -- env ZRO_LOG=info "$build/examples/03_sharded"
is log.plan exits 0
is log.plan.rank complains '^\[1\] zro info: rank 1: [0-9]* of [0-9]* elements'
is log.plan.owners complains '^\[0\] zro info: rank 1 owns [0-9]* elements'

# ---- zro run: what a rank gets ----

# shellcheck disable=SC2016 # the ranks' variables
run run -n 3 sh -c 'echo "$ZRO_RANK $ZRO_LOCAL_RANK $ZRO_SIZE $ZRO_LOCAL_SIZE $ZRO_RESTART"'
sort -o out out
is run.variables prints "[0] 0 0 3 3 0
[1] 1 1 3 3 0
[2] 2 2 3 3 0"
alone='zro run: none of the 3 ranks made a group, so each ran alone; to work together, they call zro_group_create_env(), '\
'in Python zro.Group() (is the program linked with zro?); a program of MPI is started by mpirun, one of PyTorch by torchrun'
is run.alone [ "$(cat err)" = "$alone" ]
run run -n 1 true
is run.alone.one quiet
# shellcheck disable=SC2016
run run -n 2 sh -c 'exit $ZRO_RANK'
is run.alone.failed exits 1
is run.alone.failed.text [ "$(cat err)" = 'zro run: rank 1 exited with 1' ]
run run --ranks 1 -- printf '%s|' -n 5 -- --help
is run.arguments prints '[0] -n|5|--|--help|'
# shellcheck disable=SC2016
run run sh -c 'echo $ZRO_SIZE'
is run.default [ "$(wc -l <out)" -eq "$(nproc)" ]
# shellcheck disable=SC2016
run run -n 1 sh -c 'readlink /proc/$$/fd/$ZRO_MEET'
is run.table says 'memfd:zro-meet'
# shellcheck disable=SC2016 # that is one descriptor more than without zro run
timeout 60 sh -c 'ls -1 /proc/$$/fd' >plain 2>err </dev/null
for option in --no-prefix --pipe --ranks=1; do
    run run -n 1 $option sh -c 'ls -1 /proc/$$/fd'
    is run.descriptors [ "$(wc -l <out)" -eq $(($(wc -l <plain) + 1)) ]
done
run run -n 4 -- "$hello"
is run.hello exits 0
is run.quiet quiet
is run.hello.sum [ "$(grep -c 'is 6, and 4 of us' out)" -eq 4 ]
timeout 60 "$zro" run -n 1 true <&- >&- 2>&-
status=$?
is run.closed exits 0
if [ "$(ulimit -n)" != unlimited ] && [ "$(ulimit -n)" -gt 100 ]; then
    # shellcheck disable=SC3045 # dash and bash have it
    (ulimit -S -n 100 && timeout 60 "$zro" run -n 60 sh -c 'ulimit -n' >out 2>err)
    status=$?
    is run.many exits 0
    is run.many.limit [ "$(grep -c '\] 100$' out)" -eq 60 ]
fi

# Standard input belongs to rank 0.
echo hello | timeout 60 "$zro" run -n 3 cat >out 2>err
status=$?
is run.input prints '[0] hello'

# Processors: each rank its own, unless told otherwise or where there are too few.
allowed='grep Cpus_allowed_list: /proc/self/status'
n=$(nproc)
distinct() { [ "$(sed 's/^\[[0-9]*\] //' out | sort -u | wc -l)" -eq "$1" ]; }
# shellcheck disable=SC2086 # a command
{
    run run -n "$n" $allowed
    is run.bind distinct "$n"
    run run -n "$n" --bind core $allowed
    is run.bind.core distinct "$n"
    run run -n "$n" --bind none $allowed
    is run.bind.none distinct 1
    run run -n $((n + 1)) $allowed
    is run.bind.more distinct 1
}
threads="sh -c 'echo \$OMP_NUM_THREADS \$OPENBLAS_NUM_THREADS \$MKL_NUM_THREADS'"
eval "run run -n 1 $threads"
is run.threads prints "[0] $n $n $n"
eval "run run -n $((n + 1)) $threads"
is run.threads.more says "^\\[$n\\] 1 1 1\$"
eval "OMP_NUM_THREADS=77 run run -n 1 $threads"
is run.threads.own prints "[0] 77 $n $n"

# ---- zro run: output ----

run run -n 2 sh -c 'echo out; echo error >&2; echo; printf end'
sort -o out out
sort -o err err
is run.prefix prints '[0] 
[0] end
[0] out
[1] 
[1] end
[1] out'
is run.prefix.error [ "$(cat err)" = "[0] error
[1] error
$(printf %s "$alone" | sed 's/the 3/the 2/')" ]
run run -n 1 --no-prefix sh -c 'printf out; printf error >&2'
is run.no_prefix prints out
is run.no_prefix.error [ "$(cat err)" = error ]

# Every line of every rank, in order, and whole; also when standard output and error are one pipe.
timeout 60 "$zro" run -n 4 sh -c 'seq 9999 & seq 9999 >&2; wait' 2>&1 </dev/null | sort -s -k 1,1 >out
: >err
for rank in 0 1 2 3; do
    for i in 1 2; do seq 9999; done | sort | sed "s/^/[$rank] /"
done >want
echo "$alone" | sed 's/the 3/the 4/' >>want
sort -o out out
sort -o want want
is run.lines cmp out want
run run -n 2 seq 9999
for rank in 0 1; do
    sed -n "s/^\\[$rank\\] //p" out >lines
    seq 9999 >want
    is run.order cmp lines want
done
# Lines that are too long are cut; nothing is lost.
run run -n 2 sh -c 'head -c 300000 /dev/zero | tr "\0" x'
is run.long [ "$(tr -dc x <out | wc -c)" -eq 600000 ]
is run.long.prefix [ "$(grep -cv '^\[[01]\] x*$' out)" -eq 0 ]
{
    head -c 60000 "$zro"
    for byte in $(seq 0 255); do
        # shellcheck disable=SC2059 # all that a terminal might change or obey
        printf "\\$(printf %o "$byte")"
    done
    echo
} >binary
for option in --ranks=1 --pipe; do
    run run -n 1 $option cat binary
    LC_ALL=C sed 's/^\[0\] //' out >stripped
    is "run.binary.$option" cmp stripped binary
done

# Standard output is a terminal, of which nobody asks for colours; with --pipe it is none.
terminal='for fd in 1 2; do test -t $fd && echo $fd; done; echo "$TERM <$NO_COLOR>"'
TERM=xterm run run -n 1 sh -c "$terminal"
is run.terminal prints '[0] 1
[0] dumb <1>'
TERM=xterm run run -n 1 --pipe sh -c "$terminal"
is run.pipe prints '[0] xterm <>'

# Programs that collect what they write into a pipe: grep, which waits for more here, and awk.  A line is seen at once, and what
# was written when the time is up is not lost.
mkfifo fifo
exec 9<>fifo
echo line >&9
{
    # shellcheck disable=SC2016
    timeout -k 5 60 "$zro" run -n 1 sh -c 'grep . <&9 & until grep -q "^\[0\] line$" out; do sleep 0.02; done; kill $!' 2>err
    echo $? >code
} </dev/null | cat >out
status=$(cat code)
is run.at_once exits 0
exec 9>&-
: >count.0
: >count.1
# shellcheck disable=SC2016
run run -n 2 --timeout 0.5 --grace 0 sh -c 'exec awk -v file="count.$ZRO_RANK" "BEGIN {
    for (;;) { print ++n; print n >>file; close(file) } }"'
is run.ended_in_time exits 124
for rank in 0 1; do
    sed -n "s/^\\[$rank\\] //p" out | head -n "$(wc -l <count.$rank)" >lines
    is run.none_lost cmp lines count.$rank
done

# A reader that comes only when the rank waits for it gets everything.
seq -f %999.0f 10000 >want
{
    # shellcheck disable=SC2016
    timeout -k 5 60 "$zro" run -n 1 sh -c 'echo $$ >pid; exec cat want' 2>err
    echo $? >code
} </dev/null | {
    soon [ -s pid ]
    soon grep -q ') S ' "/proc/$(cat pid)/stat"
    sed 's/^\[0\] //' >out
}
status=$(cat code)
is run.slow_reader exits 0
is run.slow_reader.all cmp out want

# Where there is no pseudo-terminal, pipes do.
# shellcheck disable=SC2016
no_terminals='mount --bind /dev/null /dev/ptmx && exec timeout -k 5 60 "$0" run -n 2 sh -c "test -t 1 || echo pipe"'
if unshare -rm mount --bind /dev/null /dev/ptmx 2>/dev/null; then
    unshare -rm sh -c "$no_terminals" "$zro" >out 2>err </dev/null
    status=$?
    is run.no_terminals exits 0
    is run.no_terminals.pipe [ "$(grep -c '^\[[01]\] pipe$' out)" -eq 2 ]
    is run.no_terminals.text complains '^zro run: no pseudo-terminal for rank 0 (.*): pipes are used'
    is run.no_terminals.once [ "$(grep -c pseudo-terminal err)" -eq 1 ]
else
    echo "skip run.no_terminals: /dev/ptmx cannot be taken away"
fi

# Who does not read us holds up the ranks, not zro run; who stops reading ends them, as it would without zro run.
exec 9<>fifo
timeout 60 "$zro" run -n 2 --timeout 0.2 --grace 0.1 yes >&9 2>err </dev/null
status=$?
is run.unread exits 124
exec 9>&-
{
    timeout 60 "$zro" run -n 2 yes 2>err </dev/null
    echo $? >code
} | head -n 1 >out
status=$(cat code)
is run.broken exits 141
is run.broken.text complains 'SIGPIPE (broken pipe)'

# What cannot be written is no success.
if [ -e /dev/full ]; then
    "$zro" --version >/dev/full 2>err
    status=$?
    is full exits 1
    timeout 60 "$zro" run -n 2 echo hello >/dev/full 2>err </dev/null
    status=$?
    is run.full exits 1
    is run.full.text complains '^zro run: standard output: '
fi

# ---- zro run: failures ----

# What cannot be started; and nothing has run then.
run run -n 2 "$dir/nosuch"
is run.nosuch exits 127
is run.nosuch.text complains '^zro run: cannot start ".*/nosuch": No such file'
run run -n 2 --restarts 2 nosuch-program
is run.nosuch.path exits 127
is run.nosuch.path.text complains '"nosuch-program" (looked for in PATH'
is run.nosuch.once [ "$(wc -l <err)" -eq 1 ]
run run -n 2 'echo hello'
is run.quoted exits 127
is run.quoted.text complains '"echo hello" (a program and its arguments are separate words'
run run -n 2 "$dir"
is run.directory exits 126
is run.directory.text complains 'Is a directory'
echo 'echo ran' >script
run run -n 2 ./script
is run.not_executable exits 126
is run.not_executable.text complains 'chmod +x'
printf '#!/nosuch/interpreter\n' >script
chmod +x script
run run -n 2 ./script
is run.interpreter exits 127
is run.interpreter.text complains 'interpreter'

# A rank that fails; the others would take longer than the deadline.
# shellcheck disable=SC2016
run run -n 3 sh -c 'echo $$; [ $ZRO_RANK != 1 ] || exit 3; exec sleep 90'
is run.code exits 3
is run.code.text complains '^zro run: rank 1 exited with 3$'
is run.code.once [ "$(wc -l <err)" -eq 1 ]
none_left run.code out
# shellcheck disable=SC2016
run run -n 3 sh -c 'echo $$; [ $ZRO_RANK != 2 ] || kill -9 $$; exec sleep 90'
is run.signal exits 137
is run.signal.text complains '^zro run: rank 2 was killed by SIGKILL (killed)$'
none_left run.signal out

# A rank that answers the death of another with an error of its own is not what failed first, though it is seen first.
# shellcheck disable=SC2016
run run -n 2 sh -c 'ulimit -c 0; trap "" TERM
    if [ $ZRO_RANK = 0 ]; then read -r line <fifo; exit 1; fi
    exec 3>fifo; kill -SEGV $$'
is run.cause exits 139
is run.cause.text complains '^zro run: rank 1 was killed by SIGSEGV (segmentation fault)$'

# Nor is a rank whose group broke because another was lost, and that one because of a third (tests/group/launched.c).
# blames HOW CODE TEXT: `zro run` of 2 and of 3 ranks.
blames()
{
    for last in 1 2; do
        # shellcheck disable=SC2086 # words
        run run -n $((last + 1)) --grace 50 "$tests" --command launched $1
        is "run.blames.$1" exits "$2"
        is "run.blames.$1.text" complains "^zro run: rank $last $3\$"
    done
}
for _ in 1 2 3 4 5 6 7 8 9 10; do
    blames exit 3 'exited with 3'
done
blames 'exit and-abort' 3 'exited with 3'
blames slow 3 'exited with 3'
blames kill 137 'was killed by SIGKILL (killed)'
blames left 3 'exited with 3'
blames seen-last 3 'exited with 3'
ulimit -c 0 # what is left of a rank that aborts
blames abort 134 'was killed by SIGABRT (aborted)'
# Who has only left a group, and does not end, is not the cause, and does not hold up the end.
run run -n 2 --grace 50 "$tests" --command launched left-behind
is run.blames.left_behind exits 1
is run.blames.left_behind.text complains '^zro run: rank 0 exited with 1$'

# A long grace does not keep it secret: rank 0 ends when it has been told.
# shellcheck disable=SC2016
run run -n 2 --grace 90 sh -c '[ $ZRO_RANK = 0 ] || exit 5
    trap "" TERM; until grep -q "^zro run: rank 1 exited with 5$" err; do sleep 0.05; done'
is run.early exits 5
is run.early.once [ "$(wc -l <err)" -eq 1 ]

# Settings of the environment reach the ranks: rank 1 never comes, and rank 0 does not wait for the default of ten minutes.
# shellcheck disable=SC2016
ZRO_TIMEOUT_MS=300 run run -n 2 sh -c '[ "$ZRO_RANK" = 0 ] || exec sleep 90; exec "$0"' "$hello"
is run.timeout_ms exits 1
is run.timeout_ms.text complains 'rank 1 did not come within 300 ms'

# Who does not listen is killed, after the grace.
exec 9<>fifo
# shellcheck disable=SC2016
run run -n 2 --grace 0.3 sh -c 'trap "" TERM; echo $$
    if [ $ZRO_RANK = 1 ]; then read -r line <&9; exit 4; fi
    echo >&9; exec sleep 90'
is run.grace exits 4
none_left run.grace out
# shellcheck disable=SC2016 # longer than a script needs to end in order, shorter than the deadline
run run -n 2 --grace 50 sh -c 'trap "sleep 0.2; echo saved; exit 0" TERM; echo >&9
    [ $ZRO_RANK != 1 ] || { read -r line <&9; read -r line <&9; exit 4; }
    while :; do sleep 0.05; done'
is run.saved exits 4
is run.saved.text says 'saved'
exec 9>&-

# A job that takes too long.
# shellcheck disable=SC2016
run run -n 2 --timeout 0.2 --grace 0.2 --restarts 3 sh -c 'trap "" TERM; echo $$; exec sleep 90'
is run.timeout exits 124
is run.timeout.text complains '^zro run: ended, because it took longer than 0.2 s'
is run.timeout.once [ "$(wc -l <err)" -eq 2 ]
is run.timeout.alone complains 'none of the 2 ranks made a group'
none_left run.timeout out
run run -n 2 --timeout 50 true
is run.timeout.none exits 0

# Starting again: everybody, with a new table; not for ever, and not when somebody ended the job.
# shellcheck disable=SC2016
run run -n 2 --restarts 3 sh -c '[ $ZRO_RESTART != 2 ] || exec "$0"
    "$0"
    [ $ZRO_RANK = 1 ] || { : >said.$ZRO_RESTART; exec sleep 90; }
    until [ -e said.$ZRO_RESTART ]; do sleep 0.01; done # lest the other be ended before it has said its line
    exit 6' "$hello"
is run.restarts exits 0
is run.restarts.sum [ "$(grep -c 'is 1, and 2 of us' out)" -eq 6 ]
is run.restarts.text complains '^zro run: starting again, restart 2 of 3$'
is run.restarts.times [ "$(grep -c 'starting again' err)" -eq 2 ]
run run -n 1 --restarts 2 sh -c 'echo; exit 7'
is run.restarts.all exits 7
is run.restarts.all.times [ "$(wc -l <out)" -eq 3 ]
# shellcheck disable=SC2016
run run -n 1 --restarts 2 sh -c 'echo; kill -TERM $PPID; exec sleep 90'
is run.restarts.ended exits 143
is run.restarts.ended.once [ "$(wc -l <out)" -eq 1 ]

# What ranks leave behind: ended, though it holds their output, has a session of its own, or does not listen.
# shellcheck disable=SC2016
run run -n 2 sh -c 'sleep 90 & echo $!'
is run.left exits 0
is run.left.text complains '^zro run: ended 2 processes that ranks had left behind (sleep, ...)$'
none_left run.left out
# shellcheck disable=SC2016
run run -n 1 --grace 0.2 sh -c 'setsid sh -c "trap \"\" TERM; echo \$\$; sleep 90 & echo \$!; wait" & exec 9>&1
    until [ "$(wc -l <out)" -eq 2 ]; do sleep 0.05; done; exit 8'
is run.left.daemon exits 8
none_left run.left.daemon out
# What was there before is not touched.
# shellcheck disable=SC2016
timeout 60 sh -c 'sleep 50 & echo $! >stranger; exec "$0" run -n 1 true' "$zro" >out 2>err </dev/null
status=$?
is run.stranger exits 0
is run.stranger.lives lives "$(cat stranger)"
kill "$(cat stranger)"

# ---- zro run: signals ----

# A program that does what it is told ends well.
exec 9<>fifo
for signal in TERM HUP QUIT INT USR1 USR2; do
    # shellcheck disable=SC2016
    run run -n 2 sh -c 'trap "echo $0 \$\$; exit 0" "$0"; echo >&9
        [ $ZRO_RANK = 1 ] || { read -r line <&9; read -r line <&9; kill -s "$0" $PPID; }
        while :; do sleep 0.02; done' $signal
    is run.forward.$signal exits 0
    is run.forward.$signal.all [ "$(grep -c "$signal" out)" -eq 2 ]
done
# One that does not know about them is ended by some.
for signal in HUP:129 QUIT:131 INT:130 TERM:143; do
    # shellcheck disable=SC2016
    run run -n 2 sh -c 'ulimit -c 0; echo $$; [ $ZRO_RANK = 1 ] || kill -s "$0" $PPID; exec sleep 90' "${signal%:*}"
    is "run.ended.$signal" exits "${signal#*:}"
    is "run.ended.$signal.text" complains "^zro run: ended by SIG${signal%:*} ("
    none_left "run.ended.$signal" out
done
# Who is in a hurry interrupts again.
# shellcheck disable=SC2016
run run -n 2 --grace 90 sh -c 'trap "" INT TERM; echo $$
    while [ $ZRO_RANK = 1 ]; do kill -INT $PPID; sleep 0.05; done; exec sleep 90'
is run.interrupt.again exits 130
none_left run.interrupt.again out

# When zro run cannot do anything any more.
# shellcheck disable=SC2016
timeout -k 5 60 "$zro" run -n 2 sh -c 'echo $$ >&9; exec sleep 90 9>&-' >out 2>err </dev/null &
read -r one <&9
read -r two <&9
# The command is the one child of timeout.
kill -KILL "$(cut -d ' ' -f 4 "/proc/$one/stat")"
wait $! 2>/dev/null
status=$?
is run.killed exits 137
is run.killed.0 soon dead "$one"
is run.killed.1 soon dead "$two"
exec 9>&-

# ---- zro run: terminals ----

# terminal FILE: runs a script on a terminal that types what is written into the fifo.
terminal()
{
    zro=$zro TERM=xterm timeout -k 5 60 script -qec "exec sh $1" /dev/null <&9 >out 2>err
    status=$?
    tr -d '\r' <out >plain
    mv plain out
}

# when PATTERN N TEXT: types the text as soon as N lines of out match.
seen() { [ "$(grep -c -e "$1" out)" -ge "$2" ]; }
when()
{
    soon seen "$1" "$2"
    printf "$3" >&9
}

# lose_terminal NAME: when both ranks of the job in the background have written their numbers, kills the terminal.  Sets
# $launcher to the number of zro run.
parent_of() { cut -d ' ' -f 4 "/proc/$1/stat"; }
lose_terminal()
{
    for rank in 0 1; do
        is "$1.started" soon [ -s hung.$rank ]
    done
    launcher=$(parent_of "$(cat hung.0)")
    kill -KILL "$(parent_of "$launcher")"
    wait $! 2>/dev/null
}

terminals()
{
    exec 9<>fifo
    # shellcheck disable=SC2016
    echo 'exec "$zro" run -n 2 echo hello' >colours
    terminal colours
    is run.colours [ "$(grep -c "$(printf '^\033\\[3[0-9]m\\[[01]\\]\033\\[0m hello$')" out)" -eq 2 ]
    NO_COLOR=1 terminal colours
    is run.no_colour says '^\[0\] hello$'
    # shellcheck disable=SC2016
    echo 'exec "$zro" run --no-prefix -n 1 sh -c "test -t 1 && echo yes"' >on_terminal
    terminal on_terminal
    is run.on_terminal prints yes
    # shellcheck disable=SC2016
    echo 'exec "$zro" run -n 1 sh -c "test -t 1 && echo \$TERM"' >with_prefix
    terminal with_prefix
    is run.on_terminal.prefix says ' xterm$'
    # shellcheck disable=SC2016
    echo 'exec "$zro" run -n 2 sh -c "read -r line; echo \"got <\$line>\""' >reading
    echo typed >&9
    terminal reading
    is run.typed says 'got <typed>'
    is run.typed.other says 'got <>'

    # Ctrl-C comes once: what zro run would have sent has come before what it sends next.
    cat >interrupted <<'END'
exec "$zro" run -n 2 sh -c 'n=0
    trap "n=\$((n + 1)); [ $ZRO_RANK = 1 ] || kill -USR1 $PPID" INT
    trap "echo interrupts \$n; exit 0" USR1
    echo ready
    while :; do sleep 0.02; done'
END
    : >out
    when ready 2 '\003' &
    terminal interrupted
    wait $!
    is run.interrupt exits 0
    is run.interrupt.once [ "$(grep -c 'interrupts 1$' out)" -eq 2 ]

    # A stopped job stops as a whole and goes on as a whole.
    cat >stopped <<'END'
set -m
"$zro" run -n 2 sh -c 'echo $$ >pid.$ZRO_RANK; until [ -e go ]; do sleep 0.02; done; echo went' &
job=$!
tries=0
all_are() { [ "$(cat /proc/"$job"/stat /proc/"$(cat pid.0)"/stat /proc/"$(cat pid.1)"/stat | grep -c ") $1 ")" -eq 3 ]; }
until [ -s pid.0 ] && [ -s pid.1 ]; do sleep 0.02; done
kill -TSTP $job
until all_are T; do sleep 0.02; done
echo all stopped
kill -CONT $job
until all_are '[SR]'; do sleep 0.02; done
: >go
fg >/dev/null
END
    terminal stopped
    is run.stopped exits 0
    is run.stopped.all says 'all stopped'
    is run.stopped.went [ "$(grep -c 'went$' out)" -eq 2 ]

    # The terminal goes away: with SIGHUP as timeout(1) sets it, whatever it was when this script was started, and ignored.
    cat >hung_up <<'END'
exec "$zro" run -n 2 --grace 90 sh -c 'echo $$ >hung.$ZRO_RANK; until [ -e go ]; do sleep 0.02; done; echo went >went.$ZRO_RANK'
END
    rm -f go
    zro=$zro timeout -k 5 60 script -qec 'exec sh hung_up' /dev/null <&9 >out 2>err &
    lose_terminal run.hung_up
    for pid in $launcher $(cat hung.0 hung.1); do
        is run.hung_up soon dead "$pid"
    done
    is run.hung_up.ended [ ! -e went.0 ]
    rm -f hung.*
    zro=$zro timeout -k 5 60 sh -c 'trap "" HUP; exec script -qec "exec sh hung_up" /dev/null' <&9 >out 2>err &
    lose_terminal run.nohup
    : >go
    for pid in $launcher $(cat hung.0 hung.1); do
        is run.nohup.end soon dead "$pid"
    done
    is run.nohup [ -s went.0 -a -s went.1 ]
    exec 9>&-
}

if command -v script >/dev/null; then
    terminals
else
    echo "skip run.terminals: there is no script(1)"
fi

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
number='[0-9][0-9]*\.[0-9][0-9]*'
row='{"rule": "[a-z]*", "dtype": "f32", "kernels": "[a-z0-9]*", "threads": 1, "gbs": '$number', "share": '$number', '
run bench optim --params 100000 --samples 3 --json
is bench.optim exits 0
is bench.optim.quiet quiet
is bench.optim.rows [ "$(grep -c "$row" out)" -eq 11 ]
for rule in adam adamw sgd adagrad adadelta adamax rmsprop rprop asgd nadam radam; do
    is "bench.optim.$rule" [ "$(grep -c "\"rule\": \"$rule\"" out)" -eq 1 ]
done
is bench.optim.finite [ "$(grep -ci -e ': *-\{0,1\}nan' -e ': *-\{0,1\}inf' out)" -eq 0 ]
LC_ALL=de_DE.UTF-8 run bench optim --params 100000 --samples 1 --rules sgd,adam --dtypes f64,bf16 --kernels all --threads 2
is bench.optim.table exits 0
is bench.optim.table.rows [ "$(grep -c '^\(sgd\|adam\)  *\(f64\|bf16\)  *base ' out)" -eq 4 ]

# bench_step_is NAME: the last run printed what `bench step --json` must print, with numbers that make sense.
bench_step_is()
{
    is "$1" exits 0
    is "$1.quiet" quiet
    for key in share passes faults_per_step allocations_per_step first_over_steady median_ms limit_ms; do
        is "$1.$key" says "^ .*\"$key\": [0-9]"
    done
    for key in clip private_grads staged_grads in_place; do
        is "$1.$key" says "^ \"$key\": {\"share\": $number, \"passes\": [0-9]"
    done
    is "$1.finite" [ "$(grep -ci -e ': *-\{0,1\}nan' -e ': *-\{0,1\}inf' out)" -eq 0 ]
    is "$1.ready" says '"staged_grads": .*, "ready_ms": [0-9]'
    is "$1.passes.once" says '^ "share": [0-9.]*, "passes": 1,'
    is "$1.passes.clip" says '^ "clip": {"share": [0-9.]*, "passes": 2,'
    is "$1.allocations" says '"allocations_per_step": 0,'
}

run bench step --quick --params 100000 --json
bench_step_is bench.step
run bench step --quick --params 1000 --ranks 1 --rule sgd --json
bench_step_is bench.step.sgd.1
LC_ALL=de_DE.UTF-8 run bench step --quick --params 100000 -n 3 --rule adamw
is bench.step.table exits 0
is bench.step.table.rows [ "$(grep -c "^\(handed out\|handed out, clip_norm\|own gradients\|own\)  *$number  *( *$number- *$number) " out)" -eq 4 ]
run bench overlap --quick --params 100000 --json
is bench.overlap exits 0
is bench.overlap.quiet quiet
for key in plain_ms after_last_ms interleaved_ms cores_per_rank; do
    is "bench.overlap.$key" says "\"$key\": [0-9]"
done
is bench.overlap.hidden_share says '"hidden_share": -\{0,1\}[0-9]'
LC_ALL=de_DE.UTF-8 run bench overlap --quick --params 1000 -n 3
is bench.overlap.table.rows [ "$(grep -c "^\(plain\|after the last bucket\|interleaved\|backward alone\)  *$number  *( *$number- *$number) " out)" -eq 4 ]
# That is 2 TB.
run bench step --params 2147483647 --ranks 64
is bench.step.memory exits 1
is bench.step.memory.text complains '^zro bench step: 2147483647 parameters on 64 ranks need [0-9]* MB'
# As f64 with Adam that is 69 GB.
if [ "$(sed -n 's/^MemAvailable: *\([0-9]*\) kB$/\1/p' /proc/meminfo)" -lt 60000000 ]; then
    run bench optim --params 2147483647 --dtypes f64
    is bench.optim.memory exits 1
    is bench.optim.memory.text complains '^zro bench optim: 2147483647 parameters .* need [0-9]* MB'
fi

exit $failed
