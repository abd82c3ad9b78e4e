#!/bin/sh
# What is installed is enough: tests/products/install.sh [BUILD]
#
# Installs the build into a folder, compiles the examples outside the tree with the installed headers alone (pkg-config in C and
# C++, and find_package where cmake is there), and runs them under the installed command.  Then the same for each MPI that the
# build has, under its launcher, static and shared, with a linker that leaves out what it thinks is not needed.
# Prints what failed.
set -eu

build=$(cd "${1:-build}" && pwd)
tree=$(cd "$(dirname "$0")/../.." && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset ZRO_RANK ZRO_SIZE ZRO_LOCAL_RANK ZRO_MEET DESTDIR

cmake --install "$build" --prefix "$dir/usr" >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
PKG_CONFIG_PATH=$(dirname "$(find "$dir/usr" -name zro.pc)")
libraries=$(dirname "$(find "$dir/usr" -name 'libzro.so')")
export PKG_CONFIG_PATH LD_LIBRARY_PATH="$libraries"
for file in share/zro/zro_state.py share/doc/zro/LICENSE share/doc/zro/README.md share/doc/zro/mistakes.md; do
    [ -f "$dir/usr/$file" ] || { echo "$file is not installed" >&2; exit 1; }
done
mkdir "$dir/work"
cd "$dir/work"

[ "$("$dir/usr/bin/zro" --version)" = "zro $(pkg-config --modversion zro)" ]
seq -f '%g 0.5' -1 0.05 1 >samples # for an example that reads some
for example in "$tree"/examples/*.c; do
    name=$(basename "$example" .c)
    cp "$example" .
    # shellcheck disable=SC2046  # flags
    cc -std=c11 -Wall -Werror "$name.c" -o "$name" $(pkg-config --cflags --libs zro) -lm
    "$dir/usr/bin/zro" run -n 2 -- "./$name" <samples >out
    [ "$(grep -c . out)" -ge 2 ]
    # A rank that trains says what its parameters are: the same on all ranks.
    [ "$(sed -n 's/.*parameters \([0-9a-f]\{16\}\).*/\1/p' out | sort -u | grep -c .)" -le 1 ] || { cat out; exit 1; }
done
# shellcheck disable=SC2046
cc -std=c11 01_hello.c -o hello_static $(pkg-config --cflags zro) "$libraries/libzro.a" $(pkg-config --static --libs-only-other zro) -lpthread -lm
./hello_static | grep -q 'rank 0 of 1'
cat >state.c <<'END'
#include <stdio.h>
#include <zro.h>

int main(void)
{
    zro_state *state, *again;
    void *bytes;
    size_t n;
    zro_status st = zro_state_create("adam", &state);

    if (st == ZRO_OK)
        st = zro_state_pack(state, &bytes, &n);
    if (st == ZRO_OK)
        st = zro_state_unpack(bytes, n, &again);
    printf("%s\n", st == ZRO_OK ? zro_state_rule(again) : zro_last_error());
    return st != ZRO_OK;
}
END
# shellcheck disable=SC2046  # what the archive needs besides itself
cc -std=c11 -Wall -Werror state.c -o state_static $(pkg-config --cflags zro) "$libraries/libzro.a" \
    $(pkg-config --static --libs zro | sed 's/-lzro//')
if ldd state_static | grep libzro; then exit 1; fi
[ "$(./state_static)" = adam ]
if command -v c++ >/dev/null; then
    printf '#include <zro.h>\nint main() { zro_group_config c = ZRO_GROUP_CONFIG_INIT; return c.timeout_ms == 0; }\n' >plus.cc
    # shellcheck disable=SC2046
    c++ -Wall -Werror plus.cc -o plus $(pkg-config --cflags --libs zro)
    ./plus
fi
mkdir package
cat >package/CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.18)
project(user C)
find_package(zro 0.1 REQUIRED)
add_executable(user ../01_hello.c)
target_link_libraries(user PRIVATE zro::zro)
add_executable(state_static ../state.c)
target_link_libraries(state_static PRIVATE zro::zro_static)
END
cmake -S package -B package/build -DCMAKE_PREFIX_PATH="$dir/usr" >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
cmake --build package/build >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
package/build/user | grep -q 'rank 0 of 1'
[ "$(package/build/state_static)" = adam ]

# launched PROGRAM: two ranks of it under the launcher of this MPI.
launched()
{
    mpirun=$(echo "$wrapper" | sed 's|mpicc\([^/]*\)$|mpirun\1|')
    [ "$mpi" != openmpi ] || mpirun="$mpirun --allow-run-as-root --oversubscribe --bind-to none"
    # shellcheck disable=SC2086  # options
    timeout 60 $mpirun -n 2 "$1" </dev/null >out 2>&1 || { cat out; echo "$1 failed under $mpirun"; exit 1; }
    [ "$(grep -c 'of 2: the sum of all ranks is 1' out)" -eq 2 ] || { cat out; echo "$1: not two ranks"; exit 1; }
}

# anywhere PROGRAM: there, alone, and under `zro run`.
anywhere()
{
    launched "$1"
    timeout 60 "$1" | grep -q 'rank 0 of 1'
    timeout 60 "$dir/usr/bin/zro" run -n 2 -- "$1" >out
    [ "$(grep -c 'of 2: the sum of all ranks is 1' out)" -eq 2 ]
}

cat >own.c <<'END'
#include <stdio.h>
#include <zro_mpi.h>

int main(int argc, char **argv)
{
    zro_group *group;
    float x = 0;
    int level;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    if (zro_mpi_group_create(NULL, MPI_COMM_WORLD, &group) != ZRO_OK)
        return fprintf(stderr, "%s\n", zro_last_error()), 1;
    x = (float)zro_group_rank(group);
    if (zro_all_reduce(group, &x, 1, ZRO_F32, ZRO_SUM) != ZRO_OK)
        return fprintf(stderr, "%s\n", zro_last_error()), 1;
    printf("rank %d of %d: the sum of all ranks is %g\n", zro_group_rank(group), zro_group_size(group), (double)x);
    zro_group_destroy(group);
    return MPI_Finalize();
}
END
cat >package/CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.18)
project(user C)
set(CMAKE_EXE_LINKER_FLAGS -Wl,--as-needed)
find_package(zro 0.1 REQUIRED)
foreach(mpi ${zro_MPIS})
    add_executable(${mpi} ../01_hello.c)
    target_link_libraries(${mpi} PRIVATE zro::mpi_${mpi})
    add_executable(${mpi}_static ../01_hello.c)
    target_link_libraries(${mpi}_static PRIVATE zro::mpi_${mpi}_static)
endforeach()
if(zro_MPIS)
    add_executable(plain ../01_hello.c)
    target_link_libraries(plain PRIVATE zro::mpi)
endif()
END
cmake -S package -B package/mpi -DCMAKE_PREFIX_PATH="$dir/usr" >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
cmake --build package/mpi >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
while read -r mpi wrapper _; do
    flags=$(pkg-config --cflags --libs "zro-mpi-$mpi")
    # shellcheck disable=SC2086  # flags
    cc -std=c11 -Wall -Werror -Wl,--as-needed 01_hello.c -o "hello_$mpi" $flags
    anywhere "./hello_$mpi"
    # shellcheck disable=SC2086
    cc -std=c11 -Wall -Werror own.c -o "own_$mpi" $flags
    launched "./own_$mpi"
    anywhere "package/mpi/$mpi"
    anywhere "package/mpi/${mpi}_static"
    if ldd "package/mpi/${mpi}_static" | grep libzro; then exit 1; fi
    last=$mpi
done <"$build/mpi.txt"
if [ -n "${last:-}" ]; then # zro::mpi is one of them
    ldd package/mpi/plain | grep -q libzro_mpi_
fi
