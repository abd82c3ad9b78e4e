#!/bin/bash
# Tests of `zro train` and `zro sample`:  tests/products/train.sh [BUILD]
#
# Prints "ok NAME" or "not ok NAME" for each; fails if one failed.  Every mode of a training on two ranks must have the same
# parameters after every step, by their hashes.
set -u

build=$(cd "${1:-build}" && pwd) || exit 2
man=$(cd "$(dirname "$0")/../../docs/man" && pwd) || exit 2
zro=$build/bin/zro
[ -x "$build/bin/zro-train" ] || {
    echo "there is no $build/bin/zro-train: it was built without a BLAS"
    exit 77
}
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 2
unset ZRO_RANK ZRO_SIZE ZRO_LOCAL_RANK ZRO_LOCAL_SIZE ZRO_RESTART ZRO_MEET ZRO_THREADS
failed=0 status=0

# run COMMAND...: with a deadline; output in out and err, exit status in $status.
run()
{
    timeout -k 5 120 "$@" >out 2>err </dev/null
    status=$?
}
train() { run "$zro" train --model nano "$@"; }

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
# refuses STATUS TEXT: nothing was started, and one line says why.
refuses() { exits "$1" && grep -q -e "$2" err && [ "$(grep -c '^zro' err)" -eq 1 ] && [ ! -s out ]; }
# hints TOOL: and where its options stand.
hints() { [ "$(tail -n 1 err)" = "Try \`zro $1 --help\`." ]; }
# hashes LOG: step and hash of each line.
hashes() { sed -n 's/.*"step":\([0-9]*\),.*"hash":"\([0-9a-f]\{16\}\)".*/\1 \2/p' "$1"; }
# same LOG LINES: as the first run, and so many.
same() { exits 0 && [ "$(hashes "$1" | wc -l)" -eq "$2" ] && [ "$(hashes "$1")" = "$(hashes first.log | tail -n "$2")" ]; }
# falls LOG: the loss.
falls() { sed -n 's/.*"loss":\([0-9.]*\),.*/\1/p' "$1" | awk 'NR == 1 { first = $1 } END { exit !(NR == 20 && $1 < first - 1) }'; }

# ---- equal bits ----

train -n 2 --steps 20 --hash --log first.log
is train.first exits 0
is train.loss falls first.log
is train.table says '^unsharded .* 8\.2$'
is train.settings says '^model *nano: 3 layers, 4 heads'
is train.line says '^step 20/20  loss .*  val .*  norm .*  lr .* ms .* tok/s  comm .*%'
is train.json awk '!/^{"step":[0-9]+,"loss":[0-9.]+,"val_loss":(null|[0-9.]+),"norm":[0-9.]+,"lr":[0-9.e-]+,"ms":[0-9.]+,"tokens_per_s":[0-9.e+]+,.*}$/ { exit 1 }' first.log
for mode in 'partition greedy' 'partition buckets' 'sharding off' 'overlap after-last' 'overlap interleaved'; do
    # shellcheck disable=SC2086  # two words
    train -n 2 --steps 20 --hash --log mode.log --${mode% *} "${mode#* }"
    is "train.${mode// /.}" same mode.log 20
done
run "$zro" run -n 2 -- "$build/bin/zro-train" --model nano --steps 20 --hash --log mode.log
is train.under_run same mode.log 20
for mpi in openmpi mpich; do
    if [ ! -x "$build/bin/zro-train_$mpi" ] || ! command -v mpirun.$mpi >/dev/null; then
        echo "skip train.$mpi: it is not installed"
        continue
    fi
    how=
    [ $mpi = mpich ] || how='--allow-run-as-root --oversubscribe --bind-to none'
    # shellcheck disable=SC2086  # words
    run mpirun.$mpi $how -n 2 "$zro" train --model nano --steps 20 --hash --log mode.log
    is train.$mpi same mode.log 20
done
train -n 2 --steps 4 --batch 4 --accumulate 2 --hash --overlap after-last --log a.log
cp a.log b.log
train -n 2 --steps 4 --batch 4 --accumulate 2 --hash --sharding off --log b.log
is train.accumulate [ "$(hashes a.log)" = "$(hashes b.log)" ]
train -n 2 --steps 3 --precision bf16 --clip 0 --hash --overlap interleaved --log a.log --trace trace.json
is train.trace eval 'exits 0 && grep -q "forward and backward" trace.json'
train -n 2 --steps 3 --precision bf16 --clip 0 --hash --sharding off --log b.log
is train.bf16 [ "$(hashes a.log | wc -l) $(hashes a.log)" = "3 $(hashes b.log)" ]
is train.not_measured grep -q '"norm":null' a.log

# ---- save and resume ----

train -n 2 --steps 10 --hash --out ten --log ten.log
is resume.first exits 0
cp -r ten more
train -n 2 --steps 20 --hash --out ten --resume --log ten.log
is resume.exact same ten.log 20
train -n 2 --steps 20 --hash --out more --resume --sharding off --partition greedy --log more.log
is resume.unsharded same more.log 10
rm -r more
train -n 2 --steps 10 --out more
# One rank with twice the batch sees the same sequences; its first loss is that of the parameters that were saved.
train --batch 16 --steps 20 --out more --resume --log one.log
loss_of() { sed -n "s/^{\"step\":$1,\"loss\":\([0-9.]*\),.*/\1/p" "$2"; }
near() { exits 0 && awk -v a="$(loss_of 11 one.log)" -v b="$(loss_of 11 first.log)" 'BEGIN { exit !(a > 0 && a / b - 1 < 1e-4 && b / a - 1 < 1e-4) }'; }
is resume.other_ranks near
is resume.weights [ -s more/model.safetensors ] && [ -s more/config.json ]
train -n 2 --steps 1 --init ten --log init.log
is init exits 0
is init.loss awk -F '[:,]' '{ exit !($4 < 4) }' init.log

# Options of the run are taken over, and the table shows them; whoever gives another value is refused.
small='--batch 2 --tokens 16'
# shellcheck disable=SC2086  # words
{
    train -n 2 $small --steps 2 --out kept --lr 0.01 --min-lr 0.005 --schedule cosine --decay-steps 10 --clip 0.5 \
        --value beta1=0.8 --seed 5
    train -n 2 $small --steps 6 --out whole --lr 0.01 --min-lr 0.005 --schedule cosine --decay-steps 10 --clip 0.5 \
        --value beta1=0.8 --seed 5 --hash
    train -n 2 $small --steps 6 --out kept --resume --min-lr 0.005 --hash
    is resume.options says '^optimizer  adamw, lr 0.01 (cosine, warm-up 0), clip 0.5,'
    is resume.same_bits [ "$(hashes kept/log.jsonl | tail -n 4)" = "$(hashes whole/log.jsonl | tail -n 4)" ]
    before=$(cksum kept/*)
    for other in 'lr 0.02 0.01' 'schedule linear cosine' 'clip 1 0.5' 'val-fraction 0.2 0.1' 'seed 1 5' \
        'value beta1=0.9 0.8' 'weight-decay 0.5 0.01'; do
        set -- $other
        train $small --batch 4 --steps 9 --out kept --resume --$1 $2
        is resume.other_$1 refuses 1 "--resume: --$1 $2 was given, but the run in kept has $3"
    done
    train $small --batch 4 --steps 9 --out kept --resume --data "$man/zro-train.1"
    is resume.other_data refuses 1 'tokens of data: .* now, .* when the run in kept was saved; give the --data'
    is resume.nothing_changed [ "$before" = "$(cksum kept/*)" ]
}

# A signal ends all ranks after the step, saves, and loses nothing.
# stops SIGNAL FOLDER: one that it has begun.
stops()
{
    "$zro" train -n 2 --model nano --steps 100000 --hash --out "$2" --log "$2.log" >out 2>err </dev/null &
    pid=$!
    tries=0
    until [ "$(wc -l 2>/dev/null <"$2.log" || echo 0)" -ge 3 ] || [ $tries -gt 600 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    kill -"$1" $pid
    wait $pid
    status=$?
}
stops HUP hung
is signal.hang_up says '^saved in hung at step '
stops TERM stopped
is signal.saved says '^saved in stopped at step '
at=$(sed -n 's/^saved in stopped at step //p' out)
train -n 2 --steps $((at + 2)) --hash --out stopped --resume --log stopped.log
hashes stopped.log | head -n 20 >got
hashes first.log | head -n "$(wc -l <got)" >wanted
is signal.resumed cmp got wanted

# ---- numbers that are not finite ----

seq 5000 >numbers
# shellcheck disable=SC2086  # words
{
    train -n 2 $small --data numbers --steps 50 --rule sgd --lr 1e6 --clip 0 --out far --log far.log
    is diverged.loss eval 'exits 1 && grep -q "the loss is \(infinite\|not a number\), and must be a finite number: .*; try a smaller --lr" err'
    is diverged.logged eval 'tail -n 1 far.log | grep -q "\"loss\":null" && [ "$(wc -l <far.log)" -lt 50 ]'
    is diverged.not_saved [ -z "$(ls far)" ]
    # Positions behind --tokens have no gradient: 0 / 0 there, while the loss stays finite.
    train -n 2 $small --data numbers --steps 3 --rule adam --value eps=0 --save-every 1 --precision bf16 --out far
    is diverged.params eval 'exits 1 && grep -q "step 1: a parameter is not a number, and must be a finite number" err'
    is diverged.params_not_saved [ ! -e far/state.safetensors ]
}

# ---- little data ----

# little BYTES: a training on so many bytes, of which a tenth are for validation; a step takes 4 sequences of 16 tokens.
little()
{
    head -c "$1" numbers >little
    train -n 2 --batch 2 --tokens 16 --steps 2 --data little
}
little 170
is little.enough eval 'exits 0 && says "^step 2/2 .*  val " && ! says "no validation" && ! says "more than once"'
little 160
is little.validation eval 'exits 0 && ! says "  val " && says "^ *no validation: its part must have at least 17 tokens"'
train -n 2 --batch 2 --tokens 16 --steps 2 --data little --val-fraction 0
is little.not_wanted eval 'exits 0 && ! says "no validation"'
little 70
is little.step eval 'exits 0 && says "^ *the training part has 3 sequences of the 4 that a step takes: it takes some more than once"'

# ---- ranks that were started with different options ----

# unlike TEXT OPTION...: rank 1 has the options, too; all ranks end, nothing is written, and one says why.
unlike()
{
    text=$1
    shift
    # shellcheck disable=SC2016  # the rank's shell expands it
    run "$zro" run -n 2 -- sh -c 'train=$1; shift; [ "$ZRO_RANK" = 1 ] || set --
        exec "$train" --model nano --batch 2 --tokens 16 --steps 3 --out unlike "$@"' sh "$build/bin/zro-train" "$@"
    is "unlike$1" eval 'exits 1 && grep -q -e "$text" err && [ ! -e unlike/model.safetensors ] && [ ! -s out ]'
}
unlike '--seed is 1 on rank 0, but 7 on rank 1' --seed 7
unlike '--steps is 3 on rank 0, but 4 on rank 1' --steps 4
unlike '--accumulate is 1 on rank 0, but 2 on rank 1' --accumulate 2
unlike '--eval-every is 100 on rank 0, but 1 on rank 1' --eval-every 1
unlike '--save-every is not given on rank 0, but 1 on rank 1' --save-every 1
unlike '--resume is false on rank 0, but true on rank 1' --resume
unlike '--value is {} on rank 0, but {"beta1":0.8} on rank 1' --value beta1=0.8
unlike '--data has .* tokens on rank 0, but .* on rank 1' --data "$man/zro-train.1"

# ---- output that cannot be written ----

timeout 60 "$zro" train -n 2 --model nano --steps 2 --out unheard >/dev/full 2>err </dev/null
status=$?
is full.train eval 'exits 1 && grep -q "standard output could not be written to: .* saved in unheard" err'
is full.saved [ -s unheard/state.safetensors ]
timeout 60 "$zro" sample ten --tokens 3 >/dev/full 2>err </dev/null
status=$?
is full.sample eval 'exits 1 && grep -q "cannot be written: No space left" err'

# ---- sample ----

run "$zro" sample ten --tokens 50 --prompt 'static ' --seed 3
cp out again
is sample exits 0
is sample.prompt grep -q '^static ' out
run "$zro" sample ten --tokens 50 --prompt 'static ' --seed 3
is sample.same cmp out again
run "$zro" sample ten --tokens 50 --temperature 0 --prompt 'static '
is sample.greedy exits 0
run "$zro" sample nowhere
is sample.missing refuses 1 'nowhere/model.safetensors cannot be read'
run "$zro" sample ten/model.safetensors
is sample.file refuses 1 'ten/model.safetensors is a file: give the folder of the model, such as ten$'
# A model of 4 TB that has no bytes.
mkdir huge && echo '{"n_head": 1}' >huge/config.json
tensor() { printf '"%s":{"dtype":"F32","shape":[%s],"data_offsets":[0,0]}' "$1" "$2"; }
header="{$(tensor wte.weight 16777216,65536),$(tensor wpe.weight 2,65536),$(tensor h.0.ln_1.weight 65536)}"
# shellcheck disable=SC2059  # the length of the header, as a byte
printf "\\x$(printf %x ${#header})\0\0\0\0\0\0\0%s" "$header" >huge/model.safetensors
run sh -c 'ulimit -v 16000000 && exec "$@"' sh "$zro" sample huge
is sample.memory eval 'exits 1 && grep -q "out of memory: the model in huge has .* parameters, which take [0-9]* MB" err'
run "$zro" sample ten --top-k x
is sample.option refuses 2 '--top-k: must be a whole number'
is sample.option_help hints sample

# ---- help: the man pages have every option ----

for tool in train sample; do
    run "$zro" $tool --help
    is help.$tool exits 0
    sed -n 's/^  \(--[a-z-]*\) .*/\1/p' out | sort -u >options
    sed -n 's/^\.It .*Fl -\([a-z-]*\).*/--\1/p' "$man/zro-$tool.1" | grep -vx -e --help | sort -u >man_options
    is help.$tool.man cmp options man_options
done

# ---- what is refused, before anything is started ----

before=$(cksum ten/*)
train -n 2 --bogus
is refused.option refuses 2 'there is no option "--bogus"'
train -n 2 --steps x
is refused.number refuses 2 '--steps: must be a whole number'
train -n 2 --partition odd
is refused.word refuses 2 '--partition: must be one of flat|greedy|buckets'
train -n 2 --rule adamx
is refused.rule refuses 2 '--rule: must be adamw'
is refused.rule_help hints train
train -n 2 --value beta9=1
is refused.value refuses 2 '--value beta9: adamw has no such value; it has: beta1 beta2 eps'
is refused.value_help hints train
train -n 2 --value weight_decay=1
is refused.value_option refuses 2 '--value weight_decay: has an option of its own, --weight-decay'
train -n 2 --value beta1=2
is refused.value_range refuses 2 'adamw: beta1 = 2, must be in'
train -n 2 --schedule cosine --min-lr 5
is refused.min_lr refuses 2 '--min-lr 5 is above the learning rate of 0.003'
train -n 2 --out ''
is refused.empty refuses 2 '--out: must not be empty'
train -n 2 --model huge
is refused.model refuses 2 '--model: must be nano'
is refused.model_help hints train
train -n 2 --tokens 1000
is refused.tokens refuses 2 '--tokens 1000: the model nano has a context of 64'
is refused.tokens_help hints train
train -n 2 --resume
is refused.resume_nowhere refuses 2 '--resume needs --out'
train -n 2 --resume --out none
is refused.resume_none refuses 1 'there is no run in none'
train -n 2 --out ten
is refused.out_taken refuses 1 'ten has a run already'
for file in model.safetensors config.json; do
    mkdir "hf_$file" && cp "ten/$file" "hf_$file"
    train -n 2 --init ten --out "hf_$file"
    is "refused.out_$file" refuses 1 "--out hf_$file has a $file already, which a save would replace"
done
is refused.out_kept [ "$(ls hf_model.safetensors)" = model.safetensors ]
# A file that is read, under another name.
cp "$man/zro-train.1" text && ln text link && cp -r ten init
for both in '--data text --log link' '--data text --trace link' '--tokenizer text --log link' '--init init --log init/config.json'; do
    # shellcheck disable=SC2086  # words
    train --batch 1 --tokens 8 --steps 1 $both
    is "refused.same${both// /_}" refuses 2 'is the same file as .*, which it would destroy'
done
is refused.same_kept eval 'cmp -s text "$man/zro-train.1" && cmp -s init/config.json ten/config.json'
train -n 2 --out ten --resume --model micro
is refused.other_model refuses 1 'has another model: .* is 192 there, and 384 in the model asked for'
train -n 2 --init ten --model micro
is refused.other_init refuses 1 'has another model'
train -n 2 --data missing.txt
is refused.no_data refuses 1 'missing.txt cannot be read'
printf 'short' >short.txt
train -n 2 --data short.txt
is refused.short_data refuses 1 'less than one sequence of 64'
printf '\x88\xd8\x34\x01\x01\x00\x00\x00\x09' >tokens.bin # llm.c's magic number
train -n 2 --data tokens.bin
is refused.short_header refuses 1 'its header alone has 1024'
{
    printf '\x88\xd8\x34\x01\x01\x00\x00\x00\xe8\x03\x00\x00'
    head -c 1012 /dev/zero
    head -c 1000 /dev/zero
} >tokens.bin
train -n 2 --data tokens.bin
is refused.cut_tokens refuses 1 'the header says 1000 tokens, but the file has 2024 bytes, not 3024'
head -c 999 /dev/zero | tr '\0' '\377' >>tokens.bin
printf x >>tokens.bin
train -n 2 --data tokens.bin
is refused.token refuses 1 'token 500 is 65535, must be below 50257'
{ # a tokenizer of 1000 tokens of one byte, the last of which ends a text
    printf '\xc8\xd7\x34\x01\x02\x00\x00\x00\xe8\x03\x00\x00\xe7\x03\x00\x00'
    head -c 1008 /dev/zero
    for _ in $(seq 1000); do printf '\x01a'; done
} >tokenizer.bin
train -n 2 --tokenizer tokenizer.bin
is refused.tokenizer refuses 1 'tokenizer.bin has 1000 tokens, but the model has 256'
train -n 2 --model gpt2 --batch 100000
is refused.memory refuses 1 'MB are left: choose a smaller'
train -n 2 --log /nonexistent/x
is refused.log refuses 1 '--log /nonexistent/x cannot be written'
printf 'x%.0s' $(seq 100) >state
mkdir damaged && cp state damaged/state.safetensors
train -n 2 --out damaged --resume
is refused.damaged refuses 1 'is damaged, or no safetensors file'
train -n 2 --batch 9 --out ten --resume --steps 30
is refused.batch eval 'exits 1 && grep -q "sequences per step: 18 now, 16 when the run in ten was saved" err'
train -n 2 --out ten --resume --steps 20
is refused.steps eval 'exits 1 && grep -q "has made 20 steps; --steps 20 is not more" err'
is refused.nothing_changed [ "$before" = "$(cksum ten/*)" ]
if mkdir full && mount -t tmpfs -o size=1m none full 2>/dev/null; then
    train -n 2 --out full
    is refused.disk refuses 1 'a save takes .* MB, and the disk has .* MB left'
    umount full
else
    echo 'skip refused.disk: no disk of 1 MB can be made here'
fi
exit $failed
