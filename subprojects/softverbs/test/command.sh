#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests the command `softverbs`. $1: its path in the build folder. $2: a compiler that accepts C.
set -u
command=$1
compiler=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0
unset SOFTVERBS_DEVICES SOFTVERBS_LINK_LAYER SOFTVERBS_CONFIG SOFTVERBS_FAULTS LD_PRELOAD

# expect CODE PATTERN COMMAND...: checks that the command exits with this code and that its output matches.
expect() {
  code=$1
  pattern=$2
  shift 2
  timeout 60 "$@" >"$folder/output" 2>&1
  got=$?
  if [ $got != "$code" ] || ! grep -q -- "$pattern" "$folder/output"; then
    echo "FAILED: $*: exit code $got rather than $code, or no \"$pattern\" in:"
    cat "$folder/output"
    failures=1
  fi
}

# A program that prints the names of the devices and its own arguments. It declares the verbs itself, so that it does
# not need verbs.h.
cat >"$folder/devices.c" <<'EOF'
#include <stdio.h>
#include <stdlib.h>
struct ibv_device;
struct ibv_device** ibv_get_device_list(int*);
const char* ibv_get_device_name(struct ibv_device*);
int main(int count, char** arguments) {
  int found = 0;
  struct ibv_device** list = ibv_get_device_list(&found);
  for (int at = 0; at < found; ++at) printf("%s ", ibv_get_device_name(list[at]));
  for (int at = 1; at < count; ++at) printf("[%s]", arguments[at]);
  printf("\n");
  return 7;
}
EOF
$compiler -x c "$folder/devices.c" -o "$folder/devices" -libverbs || exit 77

expect 7 '^soft0 $' "$command" run "$folder/devices"
expect 7 'soft0 soft1 $' "$command" run --devices 2 "$folder/devices"
expect 7 'soft0 soft1 soft2 $' "$command" run --devices=3 -- "$folder/devices"
expect 7 '\[a b\]\[--devices\]\[\]' "$command" run "$folder/devices" 'a b' --devices ''
expect 7 'SOFTVERBS_DEVICES' "$command" run --devices many "$folder/devices"
expect 7 'SOFTVERBS_LINK_LAYER' "$command" run --link-layer token "$folder/devices"
expect 7 'SOFTVERBS_SHARED_MEMORY' "$command" run --shared-memory perhaps "$folder/devices"
expect 7 'SOFTVERBS_FAULTS has "nonsense"' "$command" run --faults nonsense "$folder/devices"
printf '[soft0]\n[soft1]\n' >"$folder/a file.conf"
expect 7 '^soft0 soft1 $' "$command" run --config "$folder/a file.conf" "$folder/devices"
expect 7 '^soft0 soft1 $' env SOFTVERBS_DEVICES=5 "$command" run --config "$folder/a file.conf" \
  "$folder/devices"
expect 7 '^soft0 $' env SOFTVERBS_CONFIG=/no/such "$command" run --devices 1 "$folder/devices"
expect 2 "can't be read" "$command" run --config "$folder/none" "$folder/devices"
# The command works from any folder, and under any name.
ln -s "$command" "$folder/link"
expect 7 '^soft0 $' "$folder/link" run "$folder/devices"
expect 7 '^soft0 $' sh -c 'cd / && PATH=$1:$PATH && softverbs run "$2"' - "$(dirname "$command")" \
  "$folder/devices"
printf '#!/bin/sh\nexec "%s/devices" script\n' "$folder" >"$folder/script"
chmod +x "$folder/script"
expect 7 'soft0 \[script\]' "$command" run "$folder/script"
# The command keeps other libraries in LD_PRELOAD.
expect 0 'libsoftverbs.so:/other$' sh -c 'LD_PRELOAD=/other "$1" run sh -c "echo \$LD_PRELOAD"' - "$command"

expect 127 'no such program' "$command" run "$folder/none"
expect 2 'which program' "$command" run --devices 2
expect 2 'needs a value' "$command" run --devices
expect 2 'no option --device' "$command" run --device 1 "$folder/devices"
expect 2 'no command' "$command" walk
expect 2 'usage' "$command"
expect 0 'usage' "$command" --help
expect 0 '^softverbs [0-9]' "$command" --version
expect 0 '/libsoftverbs.so$' "$command" path
test -f "$("$command" path)" || { echo 'FAILED: no library at that path'; failures=1; }
cp "$command" "$folder/alone"
expect 126 'libsoftverbs.so is neither' "$folder/alone" run "$folder/devices"

echo 'int main(void) { return 0; }' >"$folder/static.c"
if $compiler -static -x c "$folder/static.c" -o "$folder/static" 2>/dev/null; then
  expect 126 'linked statically' "$command" run "$folder/static"
fi
if $compiler -fsanitize=address -x c "$folder/devices.c" -o "$folder/sanitized" -libverbs 2>/dev/null &&
  ASAN_OPTIONS=detect_leaks=0 "$folder/sanitized" >/dev/null 2>&1; [ $? = 7 ]; then
  expect 7 'soft0' env ASAN_OPTIONS=detect_leaks=0 "$command" run "$folder/sanitized"
fi
# The command refuses programs that run with another group's or user's rights.
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
  chmod 755 "$folder"
  cp "$folder/devices" "$folder/grouped"
  chgrp 65534 "$folder/grouped"
  chmod 2755 "$folder/grouped"
  expect 126 "another user's or group's" "$command" run "$folder/grouped"
  cp "$folder/devices" "$folder/other"
  chmod 4755 "$folder/other"
  if setpriv --reuid 65534 --clear-groups test -r "$command"; then
    expect 126 "another user's" setpriv --reuid 65534 --clear-groups "$command" run "$folder/other"
  fi
fi
exit $failures
