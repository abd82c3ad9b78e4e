#!/bin/sh
# What is installed is enough: tests/install.sh [BUILD]
#
# Installs the build into a folder, compiles the examples outside the tree with the installed header alone (pkg-config in C and
# C++, and find_package where cmake is there), and runs them under the installed command.  Prints what failed.
set -eu

build=$(cd "${1:-build}" && pwd)
tree=$(cd "$(dirname "$0")/.." && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset ZRO_RANK ZRO_SIZE ZRO_LOCAL_RANK ZRO_MEET DESTDIR

cmake --install "$build" --prefix "$dir/usr" >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
PKG_CONFIG_PATH=$(dirname "$(find "$dir/usr" -name zro.pc)")
libraries=$(dirname "$(find "$dir/usr" -name 'libzro.so')")
export PKG_CONFIG_PATH LD_LIBRARY_PATH="$libraries"
mkdir "$dir/work"
cd "$dir/work"

[ "$("$dir/usr/bin/zro" --version)" = "zro $(pkg-config --modversion zro)" ]
for example in "$tree"/examples/*.c; do
    name=$(basename "$example" .c)
    cp "$example" .
    # shellcheck disable=SC2046  # flags
    cc -std=c11 -Wall -Werror "$name.c" -o "$name" $(pkg-config --cflags --libs zro)
    "$dir/usr/bin/zro" run -n 2 -- "./$name" >out
    [ "$(grep -c . out)" -ge 2 ]
done
# shellcheck disable=SC2046
cc -std=c11 01_hello.c -o hello_static $(pkg-config --cflags zro) "$libraries/libzro.a" $(pkg-config --static --libs-only-other zro) -lpthread -lm
./hello_static | grep -q 'rank 0 of 1'
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
END
cmake -S package -B package/build -DCMAKE_PREFIX_PATH="$dir/usr" >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
cmake --build package/build >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
package/build/user | grep -q 'rank 0 of 1'
