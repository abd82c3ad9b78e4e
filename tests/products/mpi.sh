#!/usr/bin/env bash
# Programs under the MPI launchers: tests/products/mpi.sh [BUILD]
#
# For each MPI of the build: a program with each level of thread support (tests/products/mpi_levels.c), compiled against the public
# headers; the example, with and without zro's MPI library.  Prints what failed; 77 where the build has no MPI.
set -u

build=$(cd "${1:-build}" && pwd) || exit 2
tree=$(cd "$(dirname "$0")/../.." && pwd)
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
unset ZRO_RANK ZRO_SIZE ZRO_LOCAL_RANK ZRO_MEET
failed=0

[ -s "$build/mpi.txt" ] || {
    echo "this build has no MPI"
    exit 77
}

# launch N COMMAND...: under the launcher of $mpi; output in $dir/out.
launch()
{
    local n=$1 how=("$mpirun")
    shift
    [ "$mpi" != openmpi ] || how+=(--allow-run-as-root --oversubscribe --bind-to none)
    timeout -k 5 60 "${how[@]}" -n "$n" "$@" >"$dir/out" 2>&1 </dev/null
}

# is NAME CONDITION...
is()
{
    local name=$1
    shift
    "$@" && return
    echo "FAIL $mpi: $name"
    sed 's/^/    /' "$dir/out"
    failed=1
}
has() { grep -q -- "$1" "$dir/out"; }
lines() { [ "$(grep -c -- "$2" "$dir/out")" -eq "$1" ]; }

while read -r mpi wrapper _; do
    mpirun=${wrapper/mpicc/mpirun}
    command -v "$mpirun" >/dev/null || {
        echo "SKIP $mpi: there is no $mpirun"
        continue
    }
    "$wrapper" -std=c11 -Wall -Werror -g -I"$tree/include" "$tree/tests/products/mpi_levels.c" -o "$dir/levels" \
        -L"$build/lib" "-lzro_mpi_$mpi" -lzro "-Wl,-rpath,$build/lib" >"$dir/out" 2>&1
    is 'tests/products/mpi_levels.c compiles' [ $? -eq 0 ]
    for run in 'single 1' 'single 2' 'single 3' 'funneled 2' 'serialized 2' 'serialized 3' 'multiple 2'; do
        launch "${run#* }" "$dir/levels" "${run% *}"
        is "levels $run ends well" [ $? -eq 0 ]
        is "levels $run" has "${run% *} passed"
    done
    launch 3 "$build/examples/01_hello_$mpi"
    is '01_hello ends well' [ $? -eq 0 ]
    is '01_hello is one world' lines 3 'of 3: the sum of all ranks is 3'
    launch 2 sh -c "ZRO_MACHINE=\${OMPI_COMM_WORLD_RANK:-\$PMI_RANK} exec '$build/examples/01_hello_$mpi'"
    is '01_hello on pretended machines' lines 2 'of 2: the sum of all ranks is 1'
    launch 2 "$build/examples/04_ddp_$mpi"
    is '04_ddp ends well' [ $? -eq 0 ]
    launch 2 sh -c "ZRO_MACHINE=\${OMPI_COMM_WORLD_RANK:-\$PMI_RANK} exec '$build/examples/05_overlap_$mpi'"
    is '05_overlap on pretended machines ends well' [ $? -eq 0 ]
    launch 2 sh -c "ZRO_MACHINE=\${OMPI_COMM_WORLD_RANK:-\$PMI_RANK} exec '$build/examples/07_hook_$mpi'"
    is '07_hook on pretended machines ends well' [ $? -eq 0 ]
    is '07_hook on pretended machines' lines 2 'b = 3.000, w\[30\] = 3.000'
    launch 2 "$build/examples/01_hello"
    is '01_hello without the MPI library fails' [ $? -ne 0 ]
    is '01_hello without the MPI library says why' has 'not linked with zro.s MPI library'
    launch 1 "$build/examples/01_hello"
    is '01_hello without the MPI library as the only task' lines 1 'rank 0 of 1'
done <"$build/mpi.txt"
exit $failed
