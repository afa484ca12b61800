# SPDX-License-Identifier: Apache-2.0
# Sourced: sets $port to the one before a hundred that no other script uses meanwhile, below those
# that the kernel gives to outgoing connections (ip_local_port_range).

port=
for attempt in $(seq 100); do
  block=$((($$ + attempt) % 100))
  # steady: a lock that all runs are meant to share
  exec 9>"${TMPDIR:-/tmp}/softverbs-test-ports-$block"
  if flock --nonblock 9; then
    port=$((20000 + block * 100))
    break
  fi
done
if [ "$port" = "" ]; then
  echo 'FAILED: every block of ports is in use'
  exit 1
fi
