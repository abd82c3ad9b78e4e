#!/bin/sh
# Tests of traces, with an example under `zro run`:  tests/products/trace.sh [BUILD]
#
# Prints "ok NAME" or "not ok NAME" for each; fails if one failed.  Where there is no python3 the answer is 77.
set -u

build=$(cd "${1:-build}" && pwd) || exit 2
python=${ZRO_PYTHON:-python3}
tool=$(cd "$(dirname "$0")/../../tools/python" && pwd)/zro_trace.py
"$python" -c '' 2>/dev/null || {
    echo "there is no $python, which checks and draws traces; ZRO_PYTHON= names another one"
    exit 77
}
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 2
export PYTHONDONTWRITEBYTECODE=1
unset ZRO_RANK ZRO_SIZE ZRO_LOCAL_RANK ZRO_LOCAL_SIZE ZRO_RESTART ZRO_MEET ZRO_TRACE ZRO_FAST
failed=0

# is NAME COMMAND...: one result.
is()
{
    name=$1
    shift
    if "$@" >out 2>&1; then
        echo "ok $name"
    else
        echo "not ok $name: $*"
        sed 's/^/  /' out
        failed=1
    fi
}

train() { timeout -k 5 60 env "$@" "$build/bin/zro" run -n 2 -- "$build/examples/04_ddp"; }
refuses() { ! "$@" 2>text && grep -q "$what" text; }

is one_pass train ZRO_TRACE=a.json
is one_pass.schema "$python" "$tool" check a.json --ranks 2 --slices forward,backward,ddp_forward,ddp_backward_end,step,reduce+update+publish
is buckets train ZRO_TRACE=b.json ZRO_FAST=off
is buckets.schema "$python" "$tool" check b.json --ranks 2 --slices forward,backward,bucket,step,update,publish

is svg "$python" "$tool" svg b.json -o b.svg --steps 300-302 --title 'a < b'
is svg.xml "$python" -c '
import sys, xml.etree.ElementTree as tree
root = tree.parse("b.svg").getroot()
texts = [e.text for e in root.iter() if e.tag.endswith("text")]
sys.exit(not {"a < b", "rank 0", "rank 1", "program", "lane", "forward", "backward", "bucket"} <= set(texts))'

# What the schema must notice, as changes of a good file.
what='is no JSON' && head -c 20000 a.json >cut.json
is cut refuses "$python" "$tool" check cut.json
is cut.opens "$python" "$tool" check cut.json --cut
for change in 's/"ph":"X"/"ph":"Y"/ ph' 's/"dur"/"duration"/ dur' 's/"tid":1,"ts"/"tid":9,"ts"/ name' 's/"ts":/"ts":-/ negative' \
    's/"bytes":/"bytes":0./ bytes' 's/"name":"rank 1"/"name":"rank 3"/ process' 's/"dur":[0-9]*/"dur":99999999/ crosses'; do
    what=${change##* } && sed "${change% *}" a.json >bad.json
    is "schema.$what" refuses "$python" "$tool" check bad.json
done
what='not of 3 ranks' && is schema.ranks refuses "$python" "$tool" check a.json --ranks 3
what='no slice' && is schema.slices refuses "$python" "$tool" check a.json --slices nothing

for path in /nonexistent/trace /dev/full /proc/trace; do
    what="trace: $path cannot be" && is "refused.$path" refuses train "ZRO_TRACE=$path"
done
exit $failed
