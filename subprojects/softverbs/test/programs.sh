#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs unmodified programs of others on the device, if they are installed, and prints the results: a line
# for each program in the table of docs/programs-that-run.md, and the failures.
#
#     programs.sh LIBRARY [short|long]
#
# The short form tries each program, and the long form tries all variants of each program.
set -u
library=$1
form=${2:-short}
here=$(dirname "$0")
. "$here/two.sh"
unset SOFTVERBS_DEVICES SOFTVERBS_LINK_LAYER SOFTVERBS_CONFIG SOFTVERBS_FAULTS
# UCX 1.19 and newer requires a route from the network interface of a GID, but the GIDs of a software device belong to
# no interface. The first setting disables this check. Older releases don't know it, and would warn of it.
export UCX_IB_ROCE_REACHABILITY_MODE=all UCX_WARN_UNUSED_ENV_VARS=n
failures=0
tried=0
# The timeout of each program in seconds, which has to suffice on a busy machine.
limit=60
# Functions that wait for a server's output in "$log/server" empty the file first, because it may still hold
# the output of the previous server.

# The current program, as named in the table, and the numbers of its runs and of its failures.
program=
count=0
failed=0

report() {
  if [ "$program" != "" ]; then
    if [ $failed = 0 ]; then
      echo "runs: $program ($count)"
    else
      echo "fails: $program ($failed of $count)"
    fi
  fi
  program=
}

# start NAME PROGRAM: begins the tests of a program; returns 1 if it is not installed.
start() {
  report
  if ! grep -q "^| $1 |" "$here/../docs/programs-that-run.md"; then
    echo "FAILED: the table of docs/programs-that-run.md has no line for \"$1\""
    failures=1
  fi
  if ! command -v "$2" >/dev/null; then
    echo "skipped: $1: no $2"
    return 1
  fi
  program=$1
  count=0
  failed=0
}

# try COMMAND...: runs the command, which prints its own failure, and counts the run and the failure.
try() {
  count=$((count + 1))
  tried=$((tried + 1))
  "$@" && return
  failed=$((failed + 1))
  failures=1
}

# says PATTERN COMMAND...: returns 0 if the command succeeds and its output matches the pattern.
says() {
  pattern=$1
  shift
  if env LD_PRELOAD="$library" timeout $limit "$@" >"$log/output" 2>&1 &&
    grep -q "$pattern" "$log/output"; then
    return 0
  fi
  echo "FAILED: $*"
  cat "$log/output"
  return 1
}

is_long() { [ "$form" = long ]; }

lists_devices() { says 'soft0' ibv_devices; }

if start ibverbs-utils ibv_rc_pingpong; then
  try lists_devices
  try says 'board_id:.*softverbs' ibv_devinfo -v
  for service in rc uc ud srq xsrq; do
    try two -p ibv_${service}_pingpong -g 3 -n 100
    is_long || continue
    try two -p ibv_${service}_pingpong -g 3 -n 100 -e
    for index in 0 1 2 4 5; do
      try two -p ibv_${service}_pingpong -g $index -n 100
    done
  done
fi

if start infiniband-diags ibstat; then
  try says 'State: Active' ibstat
  try says 'state:.*4: ACTIVE' ibstatus soft0:1
fi

# perf PROGRAM OPTIONS...: runs a program of perftest with few iterations.
perf() {
  tool=$1
  shift
  try two -p "$tool" -d soft0 -n 100 -F "$@"
}

for tool in ib_send_bw ib_send_lat ib_write_bw ib_write_lat ib_read_bw ib_read_lat ib_atomic_bw \
  ib_atomic_lat; do
  start "perftest: $tool" $tool || continue
  case $tool in
    ib_send_*) services='RC XRC UC UD' ;;
    ib_write_*) services='RC XRC UC' ;;
    *) services='RC XRC' ;;
  esac
  for service in $services; do
    perf $tool -c $service
    case $tool in
      *_bw)
        perf $tool -c $service -q 4
        is_long || continue
        perf $tool -c $service -b
        perf $tool -c $service -b -q 3
        ;;
    esac
    is_long || continue
    case $tool in
      ib_send_*)
        perf $tool -c $service -e
        perf $tool -c $service -s 1
        ;;
    esac
    for index in 0 2 5; do
      perf $tool -c $service -x $index
    done
    limit=200
    # With UC, a message may be lost, and a program would wait for the lost message forever. Atomics have only one size.
    case $tool-$service in
      ib_atomic_*) ;;
      *-RC | *-XRC) perf $tool -c $service -a -n 20 ;;
    esac
    limit=60
  done
  case $tool in
    ib_send_bw)
      perf $tool --use-srq
      perf $tool -c UD --use-srq
      # The multicast group has an IPv6 address. To measure bandwidth, perftest needs a GID of the same IP version.
      one_at_a_time perf $tool -c UD -g -x 5
      ;;
    ib_send_lat)
      perf $tool --use-srq
      one_at_a_time perf $tool -c UD -g
      ;;
    ib_atomic_*) perf $tool -A CMP_AND_SWAP ;;
  esac
done

# IP addresses and ports, in both directions.
old='-J 10.0.0.1 -j 10.0.0.2'
new='--raw_ipv6 -J fd00::1 -j fd00::2'
by_port='-K 2000 -k 1000'
for tool in raw_ethernet_bw raw_ethernet_lat raw_ethernet_fs_rate; do
  may_send_frames || break
  start "perftest: $tool" $tool || continue
  if [ $tool = raw_ethernet_fs_rate ]; then
    try says 'fps' $tool --server -d soft0 -B 02:00:00:00:00:01 -E 02:00:00:00:00:02
    continue
  fi
  try frames $tool -n 100
  try frames $tool -n 100 $old $by_port
  is_long || continue
  try frames $tool -n 100 $old $by_port --tcp
  # With the default size, there is no room for all of the headers.
  try frames $tool -n 100 -s 128 $new $by_port
  try frames $tool -n 100 $old
  [ $tool = raw_ethernet_bw ] || continue
  try frames $tool -n 100 -q 2
  try frames $tool -n 100 -b
  try frames $tool -n 100 -m 4210 -s 4210
  for option in --vlan_en --promiscuous --sniffer; do
    try frames $tool -n 100 $option
  done
  try frames $tool -n 100 $old $by_port --flows 4
done

# measure OPTIONS...: runs one of qperf's tests for a second. qperf's server serves one client after the other, and
# prints a line when it listens.
measure() {
  if env LD_PRELOAD="$library" timeout $limit qperf -lp $port -t 1 127.0.0.1 "$@" >"$log/client" 2>&1 &&
    grep -q ' = ' "$log/client"; then
    return 0
  fi
  echo "FAILED: qperf $*, ${SOFTVERBS_LINK_LAYER}"
  cat "$log/client" "$log/server"
  return 1
}
# measure_all OPTIONS TEST...: starts qperf's server, and runs the tests one after another.
measure_all() {
  options=$1
  shift
  next_port
  : >"$log/server"
  env LD_PRELOAD="$library" timeout $((5 * limit)) qperf -D -lp $port >"$log/server" 2>&1 &
  server=$!
  # steady: this pause is not critical: the loop polls until the server is ready or has ended, and the server has a time
  # limit
  until grep -q 'ready for requests' "$log/server" 2>/dev/null || ! kill -0 $server 2>/dev/null; do sleep 0.1; done
  for test in "$@"; do
    # shellcheck disable=SC2086
    try measure $options $test
  done
  timeout $limit qperf -lp $port 127.0.0.1 quit >"$log/output" 2>&1
  wait $server
}
if start qperf qperf; then
  reliable='rc_lat rc_rdma_read_bw rc_rdma_write_poll_lat ver_rc_fetch_add'
  others='uc_lat uc_rdma_write_bw ud_lat'
  if is_long; then
    reliable="$reliable rc_bw rc_bi_bw rc_rdma_read_lat rc_rdma_write_bw rc_rdma_write_lat rc_compare_swap_mr
      rc_fetch_add_mr ver_rc_compare_swap"
    others="$others uc_bw uc_bi_bw uc_rdma_write_lat uc_rdma_write_poll_lat ud_bw ud_bi_bw"
  fi
  # Without the connection manager, qperf sets no GID, which Ethernet requires.
  export SOFTVERBS_LINK_LAYER=ethernet
  measure_all -cm1 $reliable
  export SOFTVERBS_LINK_LAYER=infiniband
  measure_all '' $reliable $others
  ! is_long || measure_all -cm1 $reliable
  unset SOFTVERBS_LINK_LAYER
fi

# disk LAYER VERB: fio's client writes to its server's memory, or reads from it. The verb "send" is not tested:
# fio requests no RNR retries, so a send fails if the server posts its receive late, as on a busy machine.
disk() {
  next_port
  printf '[server]\nioengine=rdma\nport=%s\nbs=64k\nsize=20m\niodepth=64\nrw=read\n' $port >"$log/server.fio"
  printf '[client]\nioengine=rdma\nhostname=127.0.0.1\nport=%s\nverb=%s\nbs=64k\nsize=20m\niodepth=8\nrw=write\n' \
    $port "$2" >"$log/client.fio"
  : >"$log/server"
  env LD_PRELOAD="$library" SOFTVERBS_LINK_LAYER="$1" timeout -k 5 $limit fio "$log/server.fio" >"$log/server" 2>&1 &
  server=$!
  # steady: this pause is not critical: the loop polls until the server is ready or has ended, and the server has a time
  # limit
  until grep -q 'waiting for connection' "$log/server" 2>/dev/null || ! kill -0 $server 2>/dev/null; do sleep 0.1; done
  if env LD_PRELOAD="$library" SOFTVERBS_LINK_LAYER="$1" timeout -k 5 $limit fio "$log/client.fio" >"$log/client" 2>&1 &&
    grep -q 'io=20.0MiB' "$log/client" && wait $server; then
    return 0
  fi
  kill -KILL $server 2>/dev/null
  wait $server
  echo "FAILED: fio, $2 on $1"
  cat "$log/client" "$log/server"
  return 1
}
if start fio fio; then
  for verb in write read; do
    try disk ethernet $verb
    ! is_long || try disk infiniband $verb
  done
fi

# ucx OPTIONS...: runs ucx_perftest with one transport, or with all transports that its name stands for.
ucx() {
  try two -p ucx_perftest -n 200 -w 20 "$@"
}
if start 'UCX: ucx_perftest, rc_verbs' ucx_perftest; then
  ucx -d soft0:1 -x rc_verbs -t am_lat
  ucx -d soft0:1 -x rc_verbs -t put_lat
  if is_long; then
    for kind in put_bw add_mr fadd cswap am_bw; do
      ucx -d soft0:1 -x rc_verbs -t $kind
    done
    # UCX has no short gets for verbs.
    ucx -d soft0:1 -x rc_verbs -t get -D bcopy
    ucx -d soft0:1 -x rc_verbs -t am_lat -D zcopy -s 4096
    export UCX_NET_DEVICES=soft0:1 UCX_TLS=rc_v
    for kind in tag_lat tag_bw ucp_put_lat ucp_get ucp_fadd stream_lat ucp_am_lat; do
      ucx -t $kind -s 8
    done
    ucx -t tag_bw -s 100000
    unset UCX_NET_DEVICES UCX_TLS
  fi
fi
if start 'UCX: ucx_perftest, ud_verbs' ucx_perftest; then
  ucx -d soft0:1 -x ud_verbs -t am_lat
  if is_long; then
    ucx -d soft0:1 -x ud_verbs -t am_bw
    ucx -d soft0:1 -x ud_verbs -t am_lat -D zcopy -s 2048
    export UCX_NET_DEVICES=soft0:1 UCX_TLS=ud_v
    for kind in tag_lat tag_bw ucp_put_lat ucp_get stream_lat; do
      ucx -t $kind -s 8
    done
    unset UCX_NET_DEVICES UCX_TLS
  fi
fi

# ranks NUMBER OPTIONS...: runs ranks of Open MPI, with these options.
ranks() {
  number=$1
  shift
  # With these settings, Open MPI runs even as root, which is common on CI runners, and with more ranks than processors.
  if env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout $limit mpirun --oversubscribe \
    -np "$number" -x LD_PRELOAD="$library" "$@" "$log/mpi" >"$log/output" 2>&1 && grep -q '^done$' "$log/output"; then
    return 0
  fi
  echo "FAILED: Open MPI, $number ranks, $*"
  cat "$log/output"
  return 1
}
over_ucx() {
  ranks "$1" -x UCX_TLS="$2",self -x UCX_NET_DEVICES=soft0:1 --mca pml ucx --mca osc ucx
}
over_libfabric() {
  ranks 2 -x SOFTVERBS_LINK_LAYER="$1" --mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include 'verbs;ofi_rxm'
}
# Debian's build of Open MPI lacks a feature that openib requires on Ethernet, so this uses InfiniBand.
by_openib() {
  ranks "$@" -x SOFTVERBS_LINK_LAYER=infiniband --mca pml ob1 --mca btl openib,self \
    --mca btl_openib_allow_ib 1 --mca btl_openib_warn_no_device_params_found 0
}
if command -v mpicc >/dev/null && ! mpicc -O1 "$here/mpi.c" -o "$log/mpi" 2>"$log/output"; then
  echo 'skipped: Open MPI: mpicc does not work'
elif command -v mpirun >/dev/null; then
  if start 'Open MPI over UCX' mpicc; then
    try over_ucx 2 rc_v
    if is_long; then
      try over_ucx 2 ud_v
      try over_ucx 4 rc_v
    fi
  fi
  if start 'Open MPI over libfabric' mpicc; then
    try over_libfabric ethernet
    ! is_long || try over_libfabric infiniband
  fi
  if ompi_info 2>/dev/null | grep -q 'btl: openib' && start 'Open MPI: openib' mpicc; then
    try by_openib 2
    if is_long; then
      try by_openib 4
      try by_openib 2 --mca osc rdma
    fi
  fi
fi

# mpich LAYER TRANSPORTS NUMBER: runs this number of ranks of MPICH, over these transports of UCX.
mpich() {
  if timeout $limit mpirun.mpich -np "$3" -genv LD_PRELOAD "$library" -genv SOFTVERBS_LINK_LAYER "$1" \
    -genv UCX_TLS "$2",self -genv UCX_NET_DEVICES soft0:1 "$log/mpich" >"$log/output" 2>&1 &&
    grep -q '^done$' "$log/output"; then
    return 0
  fi
  echo "FAILED: MPICH by $2 on $1, $3 ranks"
  cat "$log/output"
  return 1
}
if command -v mpirun.mpich >/dev/null && mpicc.mpich -O1 "$here/mpi.c" -o "$log/mpich" 2>"$log/output" &&
  start 'MPICH over UCX' mpicc.mpich; then
  try mpich ethernet rc_v 2
  if is_long; then
    try mpich infiniband rc_v 4
    try mpich ethernet ud_v 2
    try mpich infiniband ud_v 2
  fi
fi

# fabric PROVIDER ENDPOINT DOMAIN: runs fi_pingpong, whose server and client have different options for the port.
fabric() {
  next_port
  env LD_PRELOAD="$library" timeout $limit fi_pingpong -B $port -p "$1" -e "$2" -d "$3" -I 20 \
    >"$log/server" 2>&1 &
  server=$!
  until env LD_PRELOAD="$library" timeout $limit fi_pingpong -P $port -p "$1" -e "$2" -d "$3" -I 20 \
    127.0.0.1 >"$log/client" 2>&1; do
    if ! kill -0 $server 2>/dev/null; then
      kill $server 2>/dev/null
      wait $server
      echo "FAILED: fi_pingpong -p $1 -e $2"
      cat "$log/client" "$log/server"
      return 1
    fi
    # steady: this pause is not critical: the loop retries until the server has ended, and the server has a time limit
    sleep 0.1
  done
  wait $server
}
if start 'libfabric: fi_pingpong, verbs' fi_pingpong; then
  try fabric verbs msg soft0
  try fabric verbs dgram soft0-dgram
fi
if start 'libfabric: fi_pingpong, verbs;ofi_rxm' fi_pingpong; then
  try fabric 'verbs;ofi_rxm' rdm soft0
fi
if start 'libfabric: fi_pingpong, verbs;ofi_rxd' fi_pingpong; then
  try fabric 'verbs;ofi_rxd' rdm soft0-dgram
fi
# dapl LAYER PROVIDER: runs dtest. Its ports are fixed, so only one dtest runs at a time on this machine.
dapl() (
  # steady: this name is fixed, because all runs are meant to share this lock
  exec 8>"${TMPDIR:-/tmp}/softverbs-test-dapl"
  flock --wait $limit 8 || exit 1
  export SOFTVERBS_LINK_LAYER="$1" DAT_OVERRIDE="$log/dat.conf" LD_PRELOAD="$library"
  : >"$log/server"
  timeout $limit dtest -P "$2" >"$log/server" 2>&1 8>&- &
  server=$!
  until grep -q 'Server is waiting' "$log/server" || ! kill -0 $server; do
    # steady: this pause is not critical: the loop polls until the server is ready or has ended, and the server has a
    # time limit
    sleep 0.1
  done 2>/dev/null
  if timeout $limit dtest -P "$2" -h 127.0.0.1 >"$log/client" 2>&1 8>&- && wait $server; then
    exit 0
  fi
  kill $server 2>/dev/null
  wait $server
  echo "FAILED: dtest -P $2 on $1"
  cat "$log/client" "$log/server"
  exit 1
)
if start 'uDAPL: dtest' dtest; then
  for provider in 'ofa 127.0.0.1 0' 'oscm soft0 1' 'oucm soft0 1'; do
    name=${provider%% *}
    echo "$name u2.0 nonthreadsafe default libdapl$name.so.2 dapl.2.0 \"${provider#* }\" \"\""
  done >"$log/dat.conf"
  try dapl ethernet ofa
  try dapl infiniband oucm
  if is_long; then
    try dapl ethernet oscm
    try dapl infiniband ofa
    try dapl infiniband oscm
  fi
fi

# iser LAYER FAMILY...: runs libiscsi's tests of these families, with a target of tgt. The target does not exit until it
# is killed. Its port is fixed, so only one target runs at a time on this machine. libiscsi 1.19 reads uninitialized
# memory, so the setting by which Meson fills memory is removed.
iser() (
  # steady: this name is fixed, because all runs are meant to share this lock
  exec 8>"${TMPDIR:-/tmp}/softverbs-test-iser"
  flock --wait $limit 8 || exit 1
  export SOFTVERBS_LINK_LAYER="$1"
  shift
  unset MALLOC_PERTURB_
  target=iqn.2026-11.org.softverbs:target
  initiator=iqn.2026-11.org.softverbs:initiator
  control() { tgtadm -C $port --lld iser --tid 1 "$@" >>"$log/output" 2>&1; }
  env LD_PRELOAD="$library" tgtd -f -C $port --iscsi portal=127.0.0.1:$port >"$log/server" 2>&1 8>&- &
  server=$!
  head -c 8388608 /dev/urandom >"$log/unit"
  : >"$log/output"
  # steady: this pause is not critical: the loop polls until the server is ready or has ended, and the server has a time
  # limit
  until control --mode target --op new --targetname $target || ! kill -0 $server 2>/dev/null; do sleep 0.1; done
  # The target needs both the address and the name of the initiator.
  control --mode logicalunit --op new --lun 1 --backing-store "$log/unit" &&
    control --mode target --op bind --initiator-address ALL &&
    control --mode target --op bind --initiator-name $initiator
  status=0
  for family in "$@"; do
    env LD_PRELOAD="$library" timeout $limit iscsi-test-cu -i $initiator --dataloss -t "SCSI.$family" \
      iser://127.0.0.1/$target/1 >"$log/client" 2>&1 && grep -q 'Simple ...passed' "$log/client" &&
      ! grep -q FAILED "$log/client" && continue
    status=1
    echo "FAILED: iSER, $family on $SOFTVERBS_LINK_LAYER"
    cat "$log/client" "$log/server" "$log/output"
  done
  kill -KILL $server
  wait $server 2>/dev/null
  exit $status
)
if [ "$(id -u)" = 0 ] && command -v tgtadm tgtd >/dev/null && start 'iSER: tgt and libiscsi' iscsi-test-cu; then
  next_port
  try iser ethernet Write16 Verify10
  if is_long; then
    next_port
    try iser infiniband Write16 Verify10 WriteVerify10 OrWrite
  fi
fi

# migrates LAYER on|off PORT: migrates a machine, whose memory is registered at once or in chunks.
migrates() (
  port=$3
  export SOFTVERBS_LINK_LAYER="$1"
  machine='timeout '$limit' qemu-system-x86_64 -machine q35 -accel tcg -m 64 -display none -S -nodefaults'
  env LD_PRELOAD="$library" $machine -monitor none -incoming "rdma:127.0.0.1:$port" >"$log/server" 2>&1 &
  server=$!
  : >"$log/client"
  # Repeats the command until the migration is complete, because the other machine may not listen at first.
  {
    echo "migrate_set_capability rdma-pin-all $2"
    while ! grep -q 'status: completed' "$log/client" && kill -0 $server 2>/dev/null; do
      echo "migrate -d rdma:127.0.0.1:$port"
      # steady: this pause is not critical: the loop retries until both have migrated or the server has ended, and the
      # server has a time limit
      sleep 1
      echo 'info migrate'
      # steady: this pause gives the monitor time to answer; if it is too short, the monitor is asked again
      sleep 0.2
    done
    echo quit
  } | env LD_PRELOAD="$library" $machine -monitor stdio >"$log/client" 2>&1
  kill $server 2>/dev/null
  wait $server
  grep -q 'status: completed' "$log/client" && exit 0
  echo "FAILED: migration on $1, rdma-pin-all $2"
  cat "$log/client" "$log/server"
  exit 1
)
if start 'QEMU: migration' qemu-system-x86_64; then
  for layer in ethernet infiniband; do
    for pinned in on off; do
      [ $layer-$pinned = ethernet-on ] || is_long || continue
      next_port
      try migrates $layer $pinned $port
    done
  done
fi

# suite ENVIRONMENT...: rdma-core's Python tests, which Debian installs with the documentation. softverbs must
# not print anything on stderr.
suite() {
  if (
    cd "$log/suite" &&
      env "$@" LD_PRELOAD="$library" timeout $((5 * limit)) /usr/bin/python3 -W ignore \
        run_tests.py --dev soft0 >"$log/output" 2>&1
  ) && grep -q '^OK' "$log/output" && ! grep '^softverbs' "$log/output"; then
    return 0
  fi
  echo "FAILED: rdma-core's Python tests with $*"
  cat "$log/output"
  return 1
}
# PYVERBS is the folder where the package python3-pyverbs is unpacked, if it is not installed.
suite=${PYVERBS-}/usr/share/doc/rdma-core/tests
[ "${PYVERBS-}" = "" ] || export PYTHONPATH="$PYVERBS/usr/lib/python3/dist-packages"
if [ ! -e $suite/run_tests.py ] || ! /usr/bin/python3 -c 'import pyverbs.device' 2>/dev/null; then
  echo 'skipped: rdma-core: Python tests: not installed'
elif start 'rdma-core: Python tests' /usr/bin/python3; then
  mkdir "$log/suite"
  cp $suite/* "$log/suite"
  gzip -d "$log"/suite/*.gz
  try suite SOFTVERBS_LINK_LAYER=ethernet
  if is_long; then
    try suite SOFTVERBS_LINK_LAYER=infiniband
    try suite SOFTVERBS_SHARED_MEMORY=no
    # The tests of the connection manager need a network interface that `ip` lists.
    if command -v ip >/dev/null; then
      printf '[soft0]\ngid 0 = 127.0.0.1 v2 interface 1\n' >"$log/of-loopback.conf"
      try suite SOFTVERBS_CONFIG="$log/of-loopback.conf"
    fi
  fi
fi
report
[ $tried != 0 ] || exit 77
exit $failures
