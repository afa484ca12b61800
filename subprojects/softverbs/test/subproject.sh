#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Uses the project as a subproject: its parent's tests run on it, and it is installed if the parent enables
# this. $1: its sources. The remaining arguments: the C++ compiler.
set -u
sources=$1
shift
command -v meson >/dev/null && command -v ninja >/dev/null || exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

must() {
  if ! "$@" >"$folder/log" 2>&1; then
    echo "FAILED: $*"
    tail -n 30 "$folder/log"
    exit 1
  fi
}

mkdir -p "$folder/parent/subprojects"
ln -s "$sources" "$folder/parent/subprojects/softverbs"
cat >"$folder/parent/meson.build" <<'END'
project('parent', 'c', meson_version: '>=0.61.2')
ibverbs_dep = dependency('libibverbs')
softverbs = subproject('softverbs')
softverbs_dep = softverbs.get_variable('softverbs_dep')
test('preloaded', executable('preloaded', 'devices.c', dependencies: ibverbs_dep),
  env: softverbs.get_variable('softverbs_env'), depends: softverbs.get_variable('softverbs_lib'))
test('linked', executable('linked', 'devices.c', dependencies: [softverbs_dep, ibverbs_dep]))
test('found', executable('found', 'devices.c', dependencies: [dependency('softverbs'), ibverbs_dep]))
END
cat >"$folder/parent/devices.c" <<'END'
#include <infiniband/verbs.h>
#include <string.h>
int main(void) {
  int count = 0;
  struct ibv_device** devices = ibv_get_device_list(&count);
  for (int i = 0; i < count; ++i)
    if (strcmp(ibv_get_device_name(devices[i]), "soft0") == 0) return 0;
  return 1;
}
END

export CXX="$*"
unset LD_PRELOAD
must meson setup "$folder/build" "$folder/parent" --prefix="$folder/prefix" --libdir=lib \
  --buildtype=plain -Dunity=subprojects -Dunity_size=32
must meson test -C "$folder/build"
listed=$(meson test -C "$folder/build" --no-rebuild --list 2>/dev/null | sort | tr '\n' ' ')
if [ "$listed" != "found linked preloaded " ]; then
  echo "FAILED: the parent's tests should be 'found linked preloaded ', but are '$listed'" && exit 1
fi
must meson install -C "$folder/build" --no-rebuild
if [ -e "$folder/prefix" ]; then
  echo "FAILED: files were installed that the parent did not ask for:" && find "$folder/prefix" -type f && exit 1
fi

must meson configure "$folder/build" -Dsoftverbs:install=enabled
must meson install -C "$folder/build"
for file in bin/softverbs lib/libsoftverbs.so lib/libsoftverbs-faults.so include/softverbs/softverbs.h \
  lib/pkgconfig/softverbs.pc lib/cmake/softverbs/softverbs-config.cmake share/man/man1/softverbs.1; do
  [ -f "$folder/prefix/$file" ] || { echo "FAILED: there is no $file" && exit 1; }
done
must "$folder/prefix/bin/softverbs" run "$folder/build/preloaded"
