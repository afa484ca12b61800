# SPDX-License-Identifier: Apache-2.0
# Sourced. Reserves a block of a hundred ports, which no other script uses at the same time, below the ports
# that the kernel assigns to outgoing connections (ip_local_port_range).

port=
for attempt in $(seq 100); do
  block=$((($$ + attempt) % 100))
  # steady: this name is fixed, because all runs are meant to share this lock
  exec 9>"${TMPDIR:-/tmp}/softverbs-test-ports-$block"
  if flock --nonblock 9; then
    # steady: this run holds the lock for these ports, and next_port skips ports of other programs
    port=$((20000 + block * 100))
    break
  fi
done
if [ "$port" = "" ]; then
  echo 'FAILED: every block of ports is in use'
  exit 1
fi

# next_port: sets $port to the next port that no TCP socket of this machine uses.
next_port() {
  port=$((port + 1))
  while grep -qs "^ *[0-9]*: [0-9A-F]*:$(printf %04X "$port") " /proc/net/tcp /proc/net/tcp6; do
    port=$((port + 1))
  done
}
