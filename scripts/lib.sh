# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# What the scripts beside this file share; they source it. It leaves them in the top folder.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# shellcheck disable=SC2034  # used by the scripts
build=build
# Sources are compiled many at a time: that takes a third of the time.
unity_size=16
# Warnings are errors only where changes are tested before they land.
werror=()
[[ -z ${CI-} ]] || werror=(-Dwerror=true)
# shellcheck disable=SC2034  # of $build itself
options=(-Doptimization=2 -Ddebug=false -Dtest_optimization=0 -Dsamples=enabled -Dsoftverbs=enabled
  -Dbench=disabled -Dunity=on -Dunity_size="$unity_size" "${werror[@]}")
# shellcheck disable=SC2034
packages_to_build=(g++ meson ninja-build pkg-config libibverbs-dev libboost-dev libssl-dev librdmacm-dev)

say() { printf '==> %s\n' "$*"; }
complain() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { complain "$@" && exit 1; }

# as_root COMMAND...
as_root() {
  if ((EUID == 0)); then "$@"; else sudo "$@"; fi
}

# missing_packages NAME...: those that aren't installed; asks only dpkg.
missing_packages() {
  comm -23 <(printf '%s\n' "$@" | sort -u) <(dpkg-query --show --showformat='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null |
    sed -n 's/^installed //p' | sort -u)
}

# can_install: whether packages may be installed here, and if not, why.
can_install() {
  [[ -z ${VERBSPP_NO_INSTALL-} ]] || { reason="VERBSPP_NO_INSTALL is set" && return 1; }
  command -v apt-get >/dev/null || { reason="this is not a Debian system" && return 1; }
  ((EUID == 0)) || command -v sudo >/dev/null || { reason="neither root nor sudo" && return 1; }
}

# install_packages NAME...: installs them, after it has said how much that is. No installed package is
# upgraded: each is pinned to its version.
install_packages() {
  local as_root=() pins extent status=0 install=(apt-get install --yes --no-install-recommends --no-remove)
  [[ -n $(find /var/lib/apt/lists -name '*_Packages*' -mmin -1440 2>/dev/null | head -n 1) ]] ||
    as_root apt-get update --quiet --quiet || complain "apt-get update failed; going on with the lists that are there"
  ((EUID == 0)) || as_root=(sudo)
  pins=$(mktemp)
  chmod a+r "$pins"
  dpkg-query --show --showformat='Package: ${Package}\nPin: version ${Version}\nPin-Priority: 1001\n\n' >"$pins"
  install+=(-o Dir::Etc::Preferences="$pins" -o DPkg::Lock::Timeout=600)
  extent=$(LC_ALL=C "${install[@]}" --assume-no "$@" 2>/dev/null |
    sed -n 's/.*, \([0-9]* newly installed\).*/\1/p; s/^After this operation, \(.*\) of additional disk space.*/\1 of disk space/p' |
    paste --serial --delimiters=, | sed 's/,/, /') || true
  say "installing $* (${extent:-of unknown size})"
  mkdir -p "$build"
  progress "$build/packages.log" "installing packages" "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive LC_ALL=C "${install[@]}" "$@" || status=$?
  rm -f "$pins"
  if ((status != 0)); then
    grep '^E: \|Depends:' "$build/packages.log" | tail -n 12 >&2
    complain "could not install these packages without an upgrade of installed ones; all of apt's output is in $build/packages.log"
    return 1
  fi
}

# need_packages NAME...: installs those that are missing, or ends.
need_packages() {
  local missing reason=
  command -v dpkg-query >/dev/null || [[ -n ${VERBSPP_NO_INSTALL-} ]] ||
    die "this is not a Debian system; please install what these packages hold, and set VERBSPP_NO_INSTALL=1: $*"
  [[ -z ${VERBSPP_NO_INSTALL-} ]] || return 0
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]})) || return 0
  can_install || die "$reason; please have these packages installed: ${missing[*]}"
  install_packages "${missing[@]}" || die "they are needed"
}

# want_packages NAME...: installs those that are missing, where that is possible. Otherwise it says
# which they are, and what needs them stays out.
want_packages() {
  local missing reason=
  command -v dpkg-query >/dev/null || return 0
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]})) || return 0
  if ! can_install; then
    say "$reason; what needs these packages is left out: ${missing[*]}"
  elif ! install_packages "${missing[@]}"; then
    say "what needs these packages is left out"
  fi
}

# unpack_package NAME FOLDER: downloads a package and unpacks it there, without installing it.
unpack_package() {
  mkdir -p "$2"
  (cd "$2" && apt-get download --quiet --quiet -o APT::Sandbox::User=root "$1" && dpkg-deb --extract ./*.deb . && rm ./*.deb)
}

# One script at a time uses the build folder.
lock_build() {
  mkdir -p "$build"
  exec 9>"$build/.lock"
  flock --nonblock 9 || { say "waiting for another script that uses $build/" && flock 9; }
}

# configure FOLDER OPTION...: unless it is configured.
configure() { [[ -f $1/build.ninja ]] || meson setup "$@"; }

# progress LOG WHAT COMMAND...: runs a command with its output in a log, and shows meanwhile how far it is.
progress() {
  local log=$1 what=$2
  shift 2
  if command -v python3 >/dev/null; then
    scripts/progress.py --log "$log" --append --what "$what" "$@"
  else
    # The first packages bring Python.
    "$@" >>"$log" 2>&1 &
    local pid=$! seconds=$SECONDS
    # steady: the period of the lines that are shown; they end with the command
    while sleep 10 && kill -0 $pid 2>/dev/null; do
      echo "$what: $(grep -c '^Setting up ' "$log") packages done, $((SECONDS - seconds)) s" >&2
    done &
    local reports=$! status=0
    wait $pid || status=$?
    kill $reports 2>/dev/null
    return "$status"
  fi
}

# use_ccache: where ccache is installed, Meson takes it. It finds what any clone of the project has
# compiled before, precompiled headers included.
use_ccache() {
  export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=true
  export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
}
use_ccache

# show_failure LOG: what went wrong first in the log of a build.
show_failure() {
  if grep --quiet '^FAILED' "$1"; then
    sed -n '/^FAILED/,$p' "$1" | head -n 40
  else
    grep 'ERROR: ' "$1" || tail -n 20 "$1"
  fi
}
