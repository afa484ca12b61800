#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks which devices an unmodified program sees with different environments. $1: the library.
set -u
command -v ibv_devinfo >/dev/null && command -v ibv_devices >/dev/null || exit 77
failures=0

expect() {  # description, pattern, text
  if ! printf '%s\n' "$3" | grep -q "$2"; then
    printf 'FAILED: %s: no "%s" in:\n%s\n' "$1" "$2" "$3"
    failures=1
  fi
}
expect_none() {
  if printf '%s\n' "$3" | grep -q "$2"; then
    printf 'FAILED: %s: "%s" in:\n%s\n' "$1" "$2" "$3"
    failures=1
  fi
}
run() { env LD_PRELOAD="$library" timeout 60 "$@" 2>&1; }

library=$1
unset SOFTVERBS_DEVICES SOFTVERBS_LINK_LAYER SOFTVERBS_SHARED_MEMORY SOFTVERBS_FAULTS SOFTVERBS_CONFIG
expect default 'soft0' "$(run ibv_devices)"
expect_none default 'soft1' "$(run ibv_devices)"
expect ethernet 'link_layer:.*Ethernet' "$(run ibv_devinfo -d soft0)"
expect ethernet 'PORT_ACTIVE' "$(run ibv_devinfo -d soft0)"
expect 'gid table' 'GID\[ *3\]:.*RoCE v2' "$(run ibv_devinfo -v -d soft0)"
for value in 3 03 0000000000003; do
  expect "\"$value\" devices" 'soft2' "$(run env SOFTVERBS_DEVICES="$value" ibv_devices)"
done
expect_none none 'soft' "$(run env SOFTVERBS_DEVICES=0 ibv_devices)"
expect infiniband 'link_layer:.*InfiniBand' \
  "$(run env SOFTVERBS_LINK_LAYER=infiniband ibv_devinfo -d soft0)"
expect infiniband 'port_lid:.*[1-9]' \
  "$(run env SOFTVERBS_LINK_LAYER=infiniband ibv_devinfo -d soft0)"
for value in '' ' 1' -1 +1 65 100 4294967297 2x x; do
  expect "\"$value\" devices" 'SOFTVERBS_DEVICES' "$(run env SOFTVERBS_DEVICES="$value" ibv_devices)"
  expect_none "\"$value\" devices" 'soft0' "$(run env SOFTVERBS_DEVICES="$value" ibv_devices)"
done
expect 'wrong layer' 'SOFTVERBS_LINK_LAYER' "$(run env SOFTVERBS_LINK_LAYER=token ibv_devices)"
expect 'wrong sharing' 'SOFTVERBS_SHARED_MEMORY' \
  "$(run env SOFTVERBS_SHARED_MEMORY=maybe ibv_devices)"
expect 'no sharing' 'soft0' "$(run env SOFTVERBS_SHARED_MEMORY=no ibv_devices)"
expect 'port down' 'PORT_DOWN' "$(run env SOFTVERBS_FAULTS=port-down ibv_devinfo -d soft0)"
expect 'failing verb' 'Failed to open' \
  "$(run env SOFTVERBS_FAULTS='ibv_open_device:*=ENODEV' ibv_devinfo -d soft0)"
for value in x 'ibv_open_device=' 'port-down;ibv_open_devise=ENODEV'; do
  expect "\"$value\"" 'SOFTVERBS_FAULTS has' "$(run env SOFTVERBS_FAULTS="$value" ibv_devices)"
  expect_none "\"$value\"" 'soft0' "$(run env SOFTVERBS_FAULTS="$value" ibv_devices)"
done
file=$(mktemp)
trap 'rm -f "$file"' EXIT
printf '[soft0]\n[soft0 port 2]\nmtu = 512\n[soft1]\n' >"$file"
expect 'a file' 'soft1' "$(run env SOFTVERBS_CONFIG="$file" ibv_devices)"
expect 'two ports' 'active_mtu:.*512' "$(run env SOFTVERBS_CONFIG="$file" ibv_devinfo -d soft0 -i 2)"
expect_none 'file and number' 'soft0' \
  "$(run env SOFTVERBS_DEVICES=1 SOFTVERBS_CONFIG="$file" ibv_devices)"
printf '[soft0]\nnuma-node = 0\ngid 0 = 10.1.2.3 v2 interface 1\n' >"$file"
at=/sys/class/infiniband/soft0
expect 'a NUMA node' '^0$' "$(run env SOFTVERBS_CONFIG="$file" cat $at/device/numa_node)"
expect 'its processors' '^[0-9a-f]' "$(run env SOFTVERBS_CONFIG="$file" cat $at/device/local_cpus)"
expect 'an interface' '^lo$' "$(run env SOFTVERBS_CONFIG="$file" cat $at/ports/1/gid_attrs/ndevs/0)"
expect 'no node' '^-1$' "$(run cat $at/device/numa_node)"
printf '[soft0]\nmtu = 1500\n' >"$file"
expect 'nonsense' "$file:2: the MTU" "$(run env SOFTVERBS_CONFIG="$file" ibv_devices)"
expect_none 'nonsense' 'soft0' "$(run env SOFTVERBS_CONFIG="$file" ibv_devices)"
expect 'no file' 'No such file' "$(run env SOFTVERBS_CONFIG="$file.none" ibv_devices)"
expect_none 'no file' 'soft0' "$(run env SOFTVERBS_CONFIG="$file.none" ibv_devices)"
expect 'an empty name' 'soft1' "$(run env SOFTVERBS_DEVICES=2 SOFTVERBS_CONFIG= ibv_devices)"
for place in "$(dirname "$file")" /dev/zero; do
  expect "\"$place\"" 'SOFTVERBS_CONFIG: ' "$(run env SOFTVERBS_CONFIG="$place" ibv_devices)"
  expect_none "\"$place\"" 'soft0' "$(run env SOFTVERBS_CONFIG="$place" ibv_devices)"
done
if [ "$(id -u)" != 0 ]; then
  chmod 0 "$file"
  expect 'unreadable' 'Permission denied' "$(run env SOFTVERBS_CONFIG="$file" ibv_devices)"
  expect_none 'unreadable' 'soft0' "$(run env SOFTVERBS_CONFIG="$file" ibv_devices)"
fi
# A configuration that is read from a pipe is read to its end as well.
expect 'a pipe' 'soft1' "$(printf '[soft0]\n[soft1]\n' | run env SOFTVERBS_CONFIG=/dev/stdin ibv_devices)"
exit $failures
