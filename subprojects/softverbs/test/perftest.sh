#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs perftest's programs between two processes. $1: the library.
set -u
command -v ib_send_lat >/dev/null || exit 77
library=$1
. "$(dirname "$0")/two.sh"
failures=0
unset SOFTVERBS_DEVICES SOFTVERBS_LINK_LAYER
for program in ib_send_lat ib_write_lat ib_read_lat ib_write_bw ib_read_bw; do
  two -p $program -d soft0 -x 3 -n 100 -F || failures=1
done
two -p ib_send_bw -d soft0 -x 3 -n 100 -F -b || failures=1
two -p ib_send_lat -d soft0 -x 3 -n 100 -F -e || failures=1
for program in ib_atomic_bw ib_atomic_lat; do
  for type in FETCH_AND_ADD CMP_AND_SWAP; do
    two -p $program -d soft0 -x 3 -n 100 -F -A $type || failures=1
  done
done
for service in UC UD; do
  two -p ib_send_bw -d soft0 -x 3 -n 100 -F -c $service || failures=1
  two -p ib_send_lat -d soft0 -x 3 -n 100 -F -c $service || failures=1
done
two -p ib_write_bw -d soft0 -x 3 -n 100 -F -c UC || failures=1
for program in ib_send_bw ib_send_lat ib_write_lat ib_read_bw ib_atomic_lat; do
  two -p $program -d soft0 -x 3 -n 100 -F -c XRC || failures=1
done
for service in RC UD; do
  two -p ib_send_bw -d soft0 -x 3 -n 100 -F -c $service --use-srq || failures=1
done
two -p ib_write_bw -d soft0 -x 3 -n 100 -F --odp || failures=1
# To a multicast group, which has an IPv6 address.
one_at_a_time two -p ib_send_bw -d soft0 -x 5 -n 100 -F -c UD -g || failures=1
# Raw Ethernet frames.
if may_send_frames && command -v raw_ethernet_lat >/dev/null; then
  frames raw_ethernet_bw -n 100 || failures=1
  frames raw_ethernet_lat -n 100 -J 10.0.0.1 -j 10.0.0.2 -K 2000 -k 1000 || failures=1
fi
exit $failures
