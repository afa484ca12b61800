#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs rdma-core's own examples between two processes. $1: the library.
set -u
command -v ibv_rc_pingpong >/dev/null || exit 77
library=$1
. "$(dirname "$0")/two.sh"
failures=0
unset SOFTVERBS_DEVICES SOFTVERBS_LINK_LAYER SOFTVERBS_FAULTS
for size in 1 4096 65536 1048576; do
  two -p ibv_rc_pingpong -g 3 -n 100 -s $size || failures=1
  two -p ibv_rc_pingpong -g 3 -n 100 -s $size -e || failures=1
done
# Extended completion queues with timestamps, and extended posting.
two -p ibv_rc_pingpong -g 3 -n 100 -t || failures=1
two -p ibv_rc_pingpong -g 3 -n 100 -N || failures=1
for index in 0 1 2 4 5; do
  two -p ibv_rc_pingpong -g $index -n 20 || failures=1
done
for service in uc ud; do
  two -p ibv_${service}_pingpong -g 3 -n 100 || failures=1
  two -p ibv_${service}_pingpong -g 5 -n 100 -e || failures=1
done
two -p ibv_uc_pingpong -g 3 -n 100 -s 1048576 || failures=1
# With on-demand paging: of a region, of the whole address space, and with prefetching.
two -p ibv_rc_pingpong -g 3 -n 100 -o || failures=1
two -p ibv_rc_pingpong -g 3 -n 100 -O || failures=1
two -p ibv_rc_pingpong -g 3 -n 100 -o -P || failures=1
two -p ibv_srq_pingpong -g 3 -n 100 -o || failures=1
two -p ibv_xsrq_pingpong -g 3 -n 100 -o || failures=1
two -p ibv_srq_pingpong -g 3 -n 100 || failures=1
two -p ibv_srq_pingpong -g 3 -n 100 -e || failures=1
two -p ibv_xsrq_pingpong -g 3 -n 100 || failures=1
two -p ibv_xsrq_pingpong -g 3 -n 100 -e || failures=1
SOFTVERBS_LINK_LAYER=infiniband
export SOFTVERBS_LINK_LAYER
for service in rc uc ud srq xsrq; do
  two -p ibv_${service}_pingpong -n 100 || failures=1
done
# A run that fails because of an injected fault.
output=$(SOFTVERBS_FAULTS=send-completion:50=remote_operation_error two -p ibv_rc_pingpong -n 100) &&
  failures=1
if ! printf '%s\n' "$output" | grep -q 'Failed status remote operation error (11)'; then
  printf 'FAILED: no such status in:\n%s\n' "$output"
  failures=1
fi
exit $failures
