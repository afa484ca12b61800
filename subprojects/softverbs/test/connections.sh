#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs programs that connect by IP address, between two processes. $1: the library.
set -u
library=$1
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
failures=0
ran=0
unset SOFTVERBS_DEVICES SOFTVERBS_LINK_LAYER SOFTVERBS_FAULTS

# both SERVER CLIENT: returns 0 if both succeed, or if the server is not installed. The client is restarted as long as
# the server runs but does not listen yet.
both() {
  command -v "${1%% *}" >/dev/null || {
    echo "not installed: ${1%% *}"
    return 0
  }
  ran=1
  env LD_PRELOAD="$library" timeout 60 $1 >"$log/server" 2>&1 &
  server=$!
  until env LD_PRELOAD="$library" timeout 60 $2 >"$log/client" 2>&1; do
    if ! kill -0 $server 2>/dev/null ||
      ! grep -qi 'REJECTED\|UNREACHABLE\|connection refused\|unexpected CM event' "$log/client"; then
      kill $server 2>/dev/null
      wait $server
      echo "FAILED: $2"
      cat "$log/client" "$log/server"
      return 1
    fi
    # steady: this pause is not critical: the loop retries until the server has ended, and the server has a time limit
    sleep 0.2
  done
  wait $server && return 0
  echo "FAILED: $1"
  cat "$log/server"
  return 1
}

. "$(dirname "$0")/ports.sh"

for layer in ethernet infiniband; do
  SOFTVERBS_LINK_LAYER=$layer
  export SOFTVERBS_LINK_LAYER
  for address in 198.18.83.1 127.0.0.1 fd73:6f66:7476::1 ::1; do
    next_port
    both "rping -s -a $address -p $port -C 10 -v" "rping -c -a $address -p $port -C 10 -v" || failures=1
  done
  next_port
  both "ucmatose -p $port -c 4 -C 10" "ucmatose -p $port -c 4 -C 10 -s 198.18.83.1" || failures=1
  next_port
  both "ucmatose -p $port -m" "ucmatose -p $port -m -s localhost" || failures=1
  both "udaddy -c 3 -C 10" "udaddy -c 3 -C 10 -s 198.18.83.1" || failures=1
  next_port
  both "rdma_server -p $port" "rdma_client -p $port -s 198.18.83.1" || failures=1
  for service in r x; do
    next_port
    both "rdma_xserver -p $port -c $service" "rdma_xclient -p $port -c $service -s 198.18.83.1" || failures=1
  done
  for program in ib_send_bw ib_send_lat ib_write_bw ib_write_lat ib_read_bw; do
    next_port
    both "$program -R -d soft0 -F -n 100 -p $port" "$program -R -d soft0 -F -n 100 -p $port 198.18.83.1" ||
      failures=1
  done
done

# The member has to join the group before the first message is sent. mckey's sender waits for three seconds before it
# sends.
if command -v mckey >/dev/null; then
  ran=1
  for layer in ethernet infiniband; do
    for group in 239.7.$(($$ % 250)).3 ff0e::$(($$ % 9999)); do
      : >"$log/server"
      env SOFTVERBS_LINK_LAYER=$layer LD_PRELOAD="$library" timeout 60 stdbuf -oL mckey -m $group >"$log/server" 2>&1 &
      server=$!
      tries=0
      until grep -q joined "$log/server" || [ $tries -ge 600 ]; do
        tries=$((tries + 1))
        # steady: this pause only separates the attempts of a loop that polls at most 600 times
        sleep 0.1
      done
      env SOFTVERBS_LINK_LAYER=$layer LD_PRELOAD="$library" timeout 60 mckey -m $group -s >"$log/client" 2>&1 || failures=1
      wait $server || {
        echo "FAILED: mckey -m $group, $layer"
        cat "$log/client" "$log/server"
        failures=1
      }
    done
  done
fi
# cmtime opens a number of connections and prints how long each step took. Before rdma-core 59, its
# server doesn't exit, so it is killed. Since then, it has other options: server and client meet at a TCP port.
if command -v cmtime >/dev/null; then
  ran=1
  next_port
  of_server="-p $port"
  of_client="-p $port -c 50 -s 198.18.83.1"
  if cmtime -h 2>&1 | grep -q controller; then
    of_client="-p $port -c 50 -b 198.18.83.1 -C 127.0.0.1"
    of_server="-L $of_client"
  fi
  env LD_PRELOAD="$library" timeout 60 cmtime $of_server >"$log/server" 2>&1 &
  server=$!
  tries=0
  until env LD_PRELOAD="$library" timeout 60 cmtime $of_client >"$log/client" 2>&1 &&
    grep -q destroy "$log/client" && ! grep -q error "$log/client"; do
    tries=$((tries + 1))
    [ $tries -lt 30 ] || break
    # steady: this pause only separates the attempts of a loop that retries at most 30 times
    sleep 0.2
  done
  kill $server 2>/dev/null
  wait $server 2>/dev/null
  if [ $tries -ge 30 ]; then
    echo 'FAILED: cmtime'
    cat "$log/client" "$log/server"
    failures=1
  fi
fi

# stays SERVER CLIENT: returns 0 if the client succeeds, or if the server is not installed. The server does not exit by
# itself, so it is killed. udpong's client hangs if an answer takes longer than a millisecond, as on a busy machine: it
# sends its message again, receives the late answer into the buffer of that message, and from then on repeats the old
# message. So it is started again.
stays() {
  command -v "${1%% *}" >/dev/null || {
    echo "not installed: ${1%% *}"
    return 0
  }
  ran=1
  env LD_PRELOAD="$library" timeout 120 $1 >"$log/server" 2>&1 &
  server=$!
  tries=0
  hung=0
  until env LD_PRELOAD="$library" timeout 10 $2 >"$log/client" 2>&1; do
    status=$?
    tries=$((tries + 1))
    [ $status -ne 124 ] || hung=$((hung + 1))
    if [ $tries -ge 100 ] || [ $hung -ge 5 ] ||
      { [ $status -ne 124 ] && ! grep -qi 'connection refused' "$log/client"; }; then
      kill $server 2>/dev/null
      wait $server
      echo "FAILED: $2"
      cat "$log/client" "$log/server"
      return 1
    fi
    # steady: this pause only separates the attempts of a loop that retries at most 100 times
    sleep 0.1
  done
  kill $server
  wait $server 2>/dev/null
  return 0
}

# librdmacm's sockets. The programs wait in different ways. rstream and riostream check the data that they receive.
for layer in ethernet infiniband; do
  SOFTVERBS_LINK_LAYER=$layer
  export SOFTVERBS_LINK_LAYER
  sizes='-S 70000 -I 5 -C 5 -T v'
  for way in a b n r; do
    next_port
    both "rstream -p $port $sizes -T $way" "rstream -s 198.18.83.1 -p $port $sizes -T $way" || failures=1
  done
  next_port
  both "rstream -b fd73:6f66:7476::1 -p $port $sizes" "rstream -s fd73:6f66:7476::1 -p $port $sizes" || failures=1
  for way in a b n; do
    next_port
    both "riostream -p $port $sizes -T $way" "riostream -s 198.18.83.1 -p $port $sizes -T $way" || failures=1
    next_port
    stays "udpong -b 198.18.83.1 -p $port" "udpong -s 198.18.83.1 -p $port -C 100 -T $way" || failures=1
    next_port
    stays "udpong -b ::1 -p $port" "udpong -s ::1 -p $port -C 100 -T $way -T e" || failures=1
  done
  # Plain sockets, which librspreload.so turns into rsockets.
  for preload in /usr/lib*/rsocket/librspreload.so /usr/lib/*/rsocket/librspreload.so; do
    [ -e "$preload" ] || continue
    next_port
    own=$library
    library=$preload:$own
    both "rstream -b 198.18.83.1 -p $port $sizes -T s" "rstream -s 198.18.83.1 -p $port $sizes -T s" || failures=1
    library=$own
    break
  done
  next_port
  head -c 3000000 /dev/urandom >"$log/original"
  stays "rcopy -p $port" "rcopy $log/original 198.18.83.1:$log/copy -p $port" || failures=1
  if command -v rcopy >/dev/null; then
    cmp "$log/original" "$log/copy" || failures=1
    rm "$log/copy"
  fi
done
[ $ran = 1 ] || exit 77
exit $failures
