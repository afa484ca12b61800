# SPDX-License-Identifier: Apache-2.0
# Sourced. Runs a program as server and as client. $library has to be set.

. "$(dirname "$0")/ports.sh"
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT

# Raw packets require CAP_NET_RAW.
may_send_frames() {
  [ $((0x$(sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status) >> 13 & 1)) = 1 ]
}

# hears PROCESS: returns 0 if the process can receive frames: it has a rule, or is a member of a group. Such a
# process holds a datagram socket.
hears() {
  for inode in $(ls -l "/proc/$1/fd" 2>/dev/null | sed -n 's/.*socket:\[\([0-9]*\)\].*/\1/p'); do
    # The state is 01, or 03 while another process is connected to the socket.
    grep -q " 0002 0[13] *$inode @softverbs/" /proc/net/unix && return 0
  done
  return 1
}

# ends PROCESS: returns 0 if the process exits within ten seconds. A process that has missed frames waits forever.
ends() {
  for round in $(seq 100); do
    kill -0 "$1" 2>/dev/null || return 0
    # steady: this pause only separates the attempts of a loop that polls at most 100 times
    sleep 0.1
  done
  return 1
}

# frames PROGRAM ARGUMENTS...: two devices send frames to each other; returns 0 if both programs succeed. The
# programs do not wait until both are ready, so early frames are lost, and failed attempts are repeated.
frames() {
  mac=$(printf '02:00:%02x:%02x:%02x' $(($$ >> 16 & 255)) $(($$ >> 8 & 255)) $(($$ & 255)))
  for attempt in 1 2 3 4 5; do
    env LD_PRELOAD="$library" SOFTVERBS_DEVICES=2 "$@" --server -d soft0 -B "$mac:01" -E "$mac:02" \
      >"$log/server" 2>&1 &
    server=$!
    for round in $(seq 300); do
      { hears $server || ! kill -0 $server 2>/dev/null; } && break
      # steady: this pause is not critical, because the loop polls until the server listens or has ended
      sleep 0.1
    done
    # The server has to post its receives before the client sends.
    # steady: this pause is fixed, because nothing reports when the receives are posted; a failed attempt is repeated
    # with a longer pause
    sleep "$attempt"
    if env LD_PRELOAD="$library" SOFTVERBS_DEVICES=2 timeout 20 "$@" --client -d soft1 -B "$mac:02" -E "$mac:01" \
      >"$log/client" 2>&1 && ends $server; then
      wait $server && return 0
    fi
    kill $server 2>/dev/null
    wait $server 2>/dev/null
  done
  echo "FAILED: $*"
  cat "$log/client" "$log/server"
  return 1
}

# one_at_a_time COMMAND...: runs a command while no other test runs a command in this way. perftest needs this for
# multicast, because all of its processes use the same groups.
one_at_a_time() {
  # steady: this name is fixed, because all runs are meant to share this lock
  exec 8>"${TMPDIR:-/tmp}/softverbs-test-multicast"
  flock --wait 120 8 || return 1
  "$@" 8>&-
  status=$?
  exec 8>&-
  return $status
}

# two PORT_OPTION PROGRAM ARGUMENTS...: returns 0 if server and client both succeed. The client is restarted as long as
# the server runs but does not listen yet. Each program has a timeout of $limit seconds, 60 by default.
two() {
  option=$1
  shift
  next_port
  env LD_PRELOAD="$library" timeout "${limit:-60}" "$@" "$option" $port >"$log/server" 2>&1 &
  server=$!
  until env LD_PRELOAD="$library" timeout "${limit:-60}" "$@" "$option" $port localhost >"$log/client" 2>&1; do
    if ! kill -0 $server 2>/dev/null || ! grep -qi "couldn't connect\|connection refused\|unable to init the socket" "$log/client"; then
      kill $server 2>/dev/null
      wait $server
      echo "FAILED: $*"
      cat "$log/client" "$log/server"
      return 1
    fi
    # steady: this pause is not critical, because the loop retries until the server has ended
    sleep 0.1
  done
  wait $server && return 0
  echo "FAILED: the server of $*"
  cat "$log/server"
  return 1
}
