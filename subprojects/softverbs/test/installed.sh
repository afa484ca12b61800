#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds and installs the project without a parent project, moves the installation, and uses it with pkg-config and
# CMake. $1: its sources. The remaining arguments: the C++ compiler.
set -u
sources=$1
shift
command -v meson >/dev/null && command -v ninja >/dev/null && command -v pkg-config >/dev/null ||
  exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

must() {
  if ! "$@" >"$folder/log" 2>&1; then
    echo "FAILED: $*"
    tail -n 30 "$folder/log"
    exit 1
  fi
}
expect() {  # pattern, command...
  pattern=$1
  shift
  if ! timeout 60 "$@" >"$folder/log" 2>&1 || ! grep -q -- "$pattern" "$folder/log"; then
    echo "FAILED: $*: it fails, or no \"$pattern\" in:"
    cat "$folder/log"
    failures=1
  fi
}

export CXX="$*"
must meson setup "$folder/build" "$sources" --prefix=/usr --libdir=lib/elsewhere --buildtype=plain \
  -Dtests=disabled -Dbench=disabled -Dunity=on -Dunity_size=32
must ninja -C "$folder/build"
must env DESTDIR="$folder/staged" meson install -C "$folder/build" --no-rebuild
# Moves the installation, which has to work at its new place.
mv "$folder/staged/usr" "$folder/prefix"

for file in bin/softverbs lib/elsewhere/libsoftverbs.so lib/elsewhere/libsoftverbs-faults.so \
  include/softverbs/softverbs.h lib/elsewhere/pkgconfig/softverbs.pc \
  lib/elsewhere/cmake/softverbs/softverbs-config.cmake share/man/man1/softverbs.1; do
  [ -f "$folder/prefix/$file" ] || { echo "FAILED: no $file"; failures=1; }
done
(cd "$folder/prefix" && find . -type f | wc -l | grep -qx 7) ||
  { echo 'FAILED: other files were installed:'; find "$folder/prefix" -type f; failures=1; }
expect '/prefix/lib/elsewhere/libsoftverbs.so$' "$folder/prefix/bin/softverbs" path

# The program needs no symbol of softverbs. It prints the names of the devices, and whether softverbs is loaded.
mkdir "$folder/user"
cat >"$folder/user/main.cpp" <<'EOF'
#include <infiniband/verbs.h>
#include <softverbs/softverbs.h>
#include <dlfcn.h>
#include <cstdio>
int main() {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  for (int at = 0; at < count; ++at) std::printf("%s\n", ibv_get_device_name(list[at]));
  std::printf("%s\n", dlsym(RTLD_DEFAULT, "softverbs_version") ? "with softverbs" : "without");
  ibv_free_device_list(list);
}
EOF
PKG_CONFIG_PATH=$folder/prefix/lib/elsewhere/pkgconfig
export PKG_CONFIG_PATH
flags=$(pkg-config --define-variable=prefix="$folder/prefix" --cflags --libs softverbs)
# shellcheck disable=SC2086
must "$@" "$folder/user/main.cpp" -o "$folder/user/by-pkg-config" $flags -ldl
expect '^soft0$' env LD_LIBRARY_PATH="$folder/prefix/lib/elsewhere" "$folder/user/by-pkg-config"

if command -v cmake >/dev/null; then
  cat >"$folder/user/CMakeLists.txt" <<'EOF'
cmake_minimum_required(VERSION 3.16)
project(user CXX)
find_package(softverbs REQUIRED CONFIG)
add_executable(by-cmake main.cpp)
target_link_libraries(by-cmake PRIVATE softverbs::softverbs ${CMAKE_DL_LIBS})
enable_testing()
add_test(NAME run COMMAND ${softverbs_COMMAND} run --devices 2 $<TARGET_FILE:by-cmake>)
EOF
  must cmake -S "$folder/user" -B "$folder/by-cmake" -DCMAKE_PREFIX_PATH="$folder/prefix" \
    -Dsoftverbs_DIR="$folder/prefix/lib/elsewhere/cmake/softverbs"
  must cmake --build "$folder/by-cmake"
  expect '^soft0$' "$folder/by-cmake/by-cmake"
  expect '^soft1$' env SOFTVERBS_DEVICES=2 "$folder/by-cmake/by-cmake"
fi
if command -v man >/dev/null; then
  expect 'run RDMA programs' man --warnings -l "$folder/prefix/share/man/man1/softverbs.1"
fi
exit $failures
