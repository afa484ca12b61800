# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Code shared by scripts in this folder, which source it. It changes to the top folder.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# shellcheck disable=SC2034  # used by the scripts
build=build
# Many sources are compiled together, which takes a third of the time.
unity_size=32
# Warnings are errors only in the tests before a change lands.
werror=()
[[ -z ${CI-} ]] || werror=(-Dwerror=true)
# Assertions contain source paths relative to the project, so that ccache finds objects of any clone.
relative_names=-fmacro-prefix-map=$PWD/=
# -O2 would take a third longer to compile; other configurations use it.
# shellcheck disable=SC2034  # of $build itself
options=(-Doptimization=1 -Ddebug=false -Dcpp_args="['$relative_names']" -Dtest_optimization=0 -Dsamples=enabled
  -Dsoftverbs=enabled -Dbench=disabled -Dunity=on -Dunity_size="$unity_size" "${werror[@]}")
# shellcheck disable=SC2034
packages_to_build=(g++ meson ninja-build pkg-config libibverbs-dev libboost-dev libssl-dev librdmacm-dev)
# The last two have the names of the C calls.
# shellcheck disable=SC2034
packages_of_site=(doxygen doxygen-awesome-css mkdocs mkdocs-material libibverbs-dev librdmacm-dev)

say() { printf '==> %s\n' "$*"; }
complain() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { complain "$@" && exit 1; }

# may_install: true if apt exists, VERBSPP_NO_INSTALL is not set, and this is root, or sudo needs no password or can
# ask for it.
may_install() {
  [[ -z ${VERBSPP_NO_INSTALL-} ]] && command -v apt-get >/dev/null || return 1
  (($(id -u) == 0)) || { command -v sudo >/dev/null && { [[ -t 0 ]] || sudo --non-interactive true 2>/dev/null; }; }
}

# as_root COMMAND...
as_root() {
  if (($(id -u) == 0)); then "$@"; else sudo "$@"; fi
}

# missing_packages NAME...: prints the names of those that are not installed, one per line.
missing_packages() {
  local installed
  installed=$(dpkg-query --show --showformat='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null |
    sed -n 's/^installed //p' | sort -u) || true
  comm -23 <(printf '%s\n' "$@" | sort -u) <(printf '%s\n' "$installed")
}

apt_install=(apt-get install --quiet --yes --no-install-recommends --no-remove -o DPkg::Lock::Timeout=600)

# update_lists: updates apt's lists, at most once in a run of a script.
update_lists() {
  [[ -z ${lists_are_new-} ]] || return 1
  lists_are_new=yes
  say "updating apt's lists"
  as_root apt-get update --quiet --quiet -o DPkg::Lock::Timeout=600
}

# plan_packages NAME...: sets $planned to the packages that apt would install for these. If apt cannot
# install them, it returns 1 and sets $refusal. If apt would upgrade an installed package, it returns 2 and
# sets $refusal, unless VERBSPP_MAY_UPGRADE is set.
plan_packages() {
  local simulated upgrades
  planned=() refusal=''
  if ! simulated=$(LC_ALL=C "${apt_install[@]}" --simulate "$@" 2>&1); then
    refusal=$(sed -n '/ Depends: /s/^ *//p;s/^E: //p' <<<"$simulated" | head -n 3 | paste --serial --delimiters=';')
    return 1
  fi
  upgrades=$(sed -n 's/^Inst \([^ ]*\) \[\([^]]*\)\] (\([^ ]*\) .*/\1 from \2 to \3/p' <<<"$simulated" | paste --serial --delimiters=,)
  if [[ -n $upgrades && -z ${VERBSPP_MAY_UPGRADE-} ]]; then
    refusal="this would upgrade ${upgrades//,/, }; if you want that, run: apt-get install --no-install-recommends $*"
    return 2
  fi
  mapfile -t planned < <(sed -n 's/^Inst \([^ ]*\) .*/\1/p' <<<"$simulated")
}

# announce_packages NAME...: prints what will be installed for these, after plan_packages.
announce_packages() {
  local sizes
  sizes=$(apt-cache show --no-all-versions "${planned[@]}" 2>/dev/null |
    awk '/^Installed-Size: /{ disk += $2 / 1024 } /^Size: /{ download += $2 / 1048576 }
      END { printf "a download of %.0f MB, %.0f MB on disk\n", download, disk }') || true
  say "installing $*: ${#planned[@]} packages, $sizes"
}

# install_packages NAME...: fails and sets $refusal if one of them cannot be installed.
install_packages() {
  local status=0
  plan_packages "$@" || status=$?
  # Missing or old lists may be the cause, but not of an upgrade.
  if ((status == 1)) && update_lists; then
    status=0
    plan_packages "$@" || status=$?
  fi
  ((status == 0)) || return 1
  announce_packages "$@"
  mkdir -p "$build"
  local log=$build/packages.log as_root=()
  (($(id -u) == 0)) || as_root=(sudo)
  local command=(progress "$log" "installing packages" "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive LC_ALL=C "${apt_install[@]}" "$@")
  : >"$log"
  if "${command[@]}"; then return; fi
  # The server may no longer have the files named by old lists.
  if grep --quiet 'Failed to fetch\|Unable to fetch' "$log" && update_lists; then
    plan_packages "$@" || return 1
    if "${command[@]}"; then return; fi
  fi
  refusal="$(sed -n 's/^E: //p' "$log" | head -n 1); all of apt's output is in $log"
  return 1
}

# need_packages NAME...: installs those that are missing, or exits. If none is missing, it does not
# call apt. It removes no installed package, and upgrades none unless VERBSPP_MAY_UPGRADE is set. It does nothing if
# VERBSPP_NO_INSTALL is set.
need_packages() {
  [[ -z ${VERBSPP_NO_INSTALL-} ]] || return 0
  command -v apt-get >/dev/null ||
    die "this is not a Debian system; please install the contents of these packages, and set VERBSPP_NO_INSTALL=1: $*"
  local missing
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]})) || return 0
  may_install ||
    die "neither root nor sudo is available, and packages are missing; to install them:" \
      "apt-get install --no-install-recommends ${missing[*]}"
  install_packages "${missing[@]}" || die "could not install ${missing[*]}: $refusal"
}

# want_packages NAME...: installs as many of the missing ones as possible. Returns 1 if some are still
# missing, and prints which and why. It does nothing without apt, or if VERBSPP_NO_INSTALL is set.
want_packages() {
  [[ -z ${VERBSPP_NO_INSTALL-} ]] && command -v apt-get >/dev/null || return 0
  local missing package possible=()
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]})) || return 0
  if ! may_install; then
    complain "neither root nor sudo is available; continuing without ${missing[*]}; to install them:" \
      "apt-get install --no-install-recommends ${missing[*]}"
    return 1
  fi
  if install_packages "${missing[@]}"; then return; fi
  # A package that cannot be installed must not prevent the installation of the others.
  for package in "${missing[@]}"; do
    if plan_packages "$package"; then
      possible+=("$package")
    else
      complain "continuing without $package: $refusal"
    fi
  done
  ((${#possible[@]} == 0)) || install_packages "${possible[@]}" ||
    complain "continuing without ${possible[*]}: $refusal"
  return 1
}

# unpack_package NAME FOLDER: downloads a package and unpacks it there, without installing it.
unpack_package() {
  mkdir -p "$2"
  download_package "$@" && return
  # The server may no longer have the files named by old lists.
  if may_install && update_lists && download_package "$@"; then return; fi
  complain "could not download $1"
  return 1
}
download_package() {
  (cd "$2" && apt-get download --quiet --quiet -o APT::Sandbox::User=root "$1" && dpkg-deb --extract ./*.deb . && rm ./*.deb)
}

# One script at a time uses the build folder.
lock_build() {
  mkdir -p "$build"
  exec 9>"$build/.lock"
  flock --nonblock 9 || { say "waiting for another script that uses $build/" && flock 9; }
}

# configure FOLDER OPTION...: configures the folder, unless it is configured already.
configure() { [[ -f $1/build.ninja ]] || meson setup "$@"; }

# progress LOG WHAT COMMAND...: runs a command with its output in a log, and shows its progress.
progress() {
  local log=$1 what=$2
  shift 2
  if command -v python3 >/dev/null; then
    scripts/progress.py --log "$log" --append --what "$what" "$@"
  else
    # Python is installed with the first packages.
    "$@" >>"$log" 2>&1 &
    local pid=$! seconds=$SECONDS
    # steady: this is the interval between progress lines, which end with the command
    while sleep 10 && kill -0 $pid 2>/dev/null; do
      echo "$what: $(grep -c '^Setting up ' "$log") packages done, $((SECONDS - seconds)) s" >&2
    done &
    local reports=$! status=0
    wait $pid || status=$?
    kill $reports 2>/dev/null
    return "$status"
  fi
}

# use_ccache: configures ccache, which Meson uses if it is installed. It then finds objects and precompiled
# headers of any clone of the project. It compares files, not preprocessed ones: g++ uses a file from a
# precompiled header only if every byte is the same, including comments.
use_ccache() {
  export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=true CCACHE_DEPEND=true CCACHE_SLOPPINESS=pch_defines,time_macros
}
use_ccache

# show_failure LOG: prints the first error in the log of a build.
show_failure() {
  if grep --quiet '^FAILED' "$1"; then
    sed -n '/^FAILED/,$p' "$1" | head -n 40
  else
    grep 'ERROR: ' "$1" || tail -n 20 "$1"
  fi
}
