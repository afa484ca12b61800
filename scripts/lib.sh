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
  -Dunity=on -Dunity_size="$unity_size" "${werror[@]}")
# shellcheck disable=SC2034
packages_to_build=(g++ meson ninja-build pkg-config libibverbs-dev libboost-dev libssl-dev librdmacm-dev)

say() { printf '==> %s\n' "$*"; }
complain() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { complain "$@" && exit 1; }

# as_root COMMAND...
as_root() {
  if ((EUID == 0)); then "$@"; else sudo "$@"; fi
}

# need_packages NAME...: installs those that are missing; asks only dpkg when none is.
need_packages() {
  [[ -z ${VERBSPP_NO_INSTALL-} ]] || return 0
  command -v apt-get >/dev/null ||
    die "this is not a Debian system; please install what these packages hold, and set VERBSPP_NO_INSTALL=1: $*"
  local installed missing
  installed=$(dpkg-query --show --showformat='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null |
    sed -n 's/^installed //p' | sort) || true
  missing=$(comm -23 <(printf '%s\n' "$@" | sort -u) <(printf '%s\n' "$installed" | sort -u))
  [[ -n $missing ]] || return 0
  missing=${missing//$'\n'/ }
  ((EUID == 0)) || command -v sudo >/dev/null ||
    die "neither root nor sudo; please have these packages installed: $missing"
  say "installing $missing"
  as_root apt-get update --quiet --quiet || complain "apt-get update failed; going on with the lists that are there"
  # shellcheck disable=SC2086  # one word per package
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install --quiet --yes --no-install-recommends --no-remove $missing ||
    die "could not install $missing"
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
progress() { scripts/progress.py --log "$1" --append --what "$2" -- "${@:3}"; }

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
