# SPDX-License-Identifier: Apache-2.0
# Sourced: runs a program as server and as client. $library is set.

. "$(dirname "$0")/ports.sh"
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT

# two PORT_OPTION PROGRAM ARGUMENTS...: 0 if both succeed. The client is started
# again as long as the server is there and doesn't listen yet. Each has $limit seconds, or 60.
two() {
  option=$1
  shift
  port=$((port + 1))
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
    sleep 0.1
  done
  wait $server && return 0
  echo "FAILED: the server of $*"
  cat "$log/server"
  return 1
}
