# shellcheck shell=bash disable=SC2154
# SPDX-License-Identifier: Apache-2.0
#
# The configurations of the test matrix, for the scripts that build in them; sourced after lib.sh,
# which sets $build and $options.

# The first two are one build, in $build itself, with $options: slow has the tests that take a minute
# or so and that few changes break. Both compilers compile the tests, and so what the headers have
# inline: the oldest g++ with optimization, the newest clang, which has the most warnings, with
# sanitizers. Those need lines for their reports. Where tests are not optimized, clang compiles them
# in a third of the time.
# name            compiler      Boost    tests               Meson's built-in options
configurations="
default           system        system   0
slow              system        system   0
gcc-oldest        gcc-oldest    system   as_the_library      optimization='2'
clang-oldest      clang-oldest  system   0                   optimization='2'
asan-ubsan        clang-newest  newest   0                   optimization='1' cpp_args='-g1' b_sanitize='address,undefined' b_lundef=false
tsan              clang-newest  system   0                   optimization='1' cpp_args='-g1' b_sanitize='thread' b_lundef=false
"

# The versions that verbspp is tested with; of these, the oldest and the newest that there are.
tested_gcc=(11 12)
tested_clang=(14 15 16 17 18 19 20 21 22)
tested_boost=(1.74 1.81)
tools=(catch2 clang-format-19 clang-tidy-19 cmake dapl2-utils fio ibverbs-utils infiniband-diags
  libfabric-bin libiscsi-bin libopenmpi-dev libpmix-dev mpich munge nlohmann-json3-dev openmpi-bin perftest
  python3-pyverbs qperf rdmacm-utils slurm-client slurm-wlm-basic-plugins slurmctld slurmd tgt
  ucx-utils valgrind)

# available PREFIX SUFFIX VERSION...: the versions that apt has a package of, or that are commands here.
available() {
  local version names=''
  ! may_install || names=$(apt-cache pkgnames "$1" 2>/dev/null) || true
  for version in "${@:3}"; do
    if grep --quiet --line-regexp --fixed-strings -- "$1$version$2" <<<"$names" || command -v "$1$version" >/dev/null; then
      echo "$version"
    fi
  done
}

# choose_versions: prints them; empty where there are none.
choose_versions() {
  local gcc clang boost
  gcc=$(available g++- '' "${tested_gcc[@]}")
  clang=$(available clang- '' "${tested_clang[@]}")
  boost=$(available libboost -dev "${tested_boost[@]}")
  cat <<END
gcc_oldest=$(head -n 1 <<<"$gcc")
clang_oldest=$(head -n 1 <<<"$clang")
clang_newest=$(tail -n 1 <<<"$clang")
boost_newest=$(tail -n 1 <<<"$boost")
END
}

# The newest Boost can't be installed beside the system's, so it is only unpacked.
unpack_boost() {
  local folder=$build/boost-$boost_newest
  [[ ! -d $folder && -n $boost_newest ]] || return 0
  say "unpacking Boost $boost_newest"
  rm -rf "$folder.new"
  unpack_package "libboost$boost_newest-dev" "$folder.new"
  mv "$folder.new" "$folder"
}

# machine_file COMPILER BOOST TESTS OPTION...: what Meson has to know of a configuration.
machine_file() {
  local version=
  case $1 in
  gcc-oldest) version=gcc-$gcc_oldest ;;
  clang-oldest) version=clang-$clang_oldest ;;
  clang-newest) version=clang-$clang_newest ;;
  esac
  if [[ -n $version ]]; then
    printf "[binaries]\nc = '%s'\ncpp = '%s'\n" "$version" "$(sed 's/gcc/g++/;s/clang/clang++/' <<<"$version")"
  fi
  [[ $2 == system || -z $boost_newest ]] || printf "[properties]\nboost_root = '%s'\n" "$PWD/$build/boost-$boost_newest/usr"
  printf "[project options]\ntest_optimization = '%s'\n" "${3//_/ }"
  printf "[built-in options]\nwerror = true\nauto_features = 'enabled'\ndebug = false\n"
  shift 3
  (($# == 0)) || printf '%s\n' "$@"
}

# load_versions: sets gcc_oldest, clang_oldest, clang_newest, boost_newest; empty without such a
# compiler. Once both are chosen, later runs test with the same ones.
load_versions() {
  local versions=$build/compilers
  mkdir -p "$build"
  if ! grep --quiet '^gcc_oldest=.' "$versions" 2>/dev/null || ! grep --quiet '^clang_newest=.' "$versions"; then
    ! may_install || [[ -n $(apt-cache pkgnames g++- 2>/dev/null) ]] || update_lists || true
    choose_versions >"$versions.new"
    mv "$versions.new" "$versions"
  fi
  # shellcheck source=/dev/null
  . "$versions"
}

# choose NAME: sets $folder, and $setup to what configure needs besides, for a configuration.
choose() {
  local name compiler boost optimized own_options
  # shellcheck disable=SC2046  # one word per column
  set -- $(grep "^$1 " <<<"$configurations")
  name=$1 compiler=$2 boost=$3 optimized=$4 own_options=("${@:5}")
  if [[ $name == default || $name == slow ]]; then
    folder=$build setup=("${options[@]}" -Dtests=enabled -Dwerror=true)
    # The demo may have been here first.
    [[ ! -f $folder/build.ninja ]] || meson configure "$folder" "${setup[@]}"
  else
    folder=$build/matrix/$name setup=(--native-file "$build/matrix/$name.ini")
    [[ $boost == system ]] || unpack_boost
    mkdir -p "$build/matrix"
    machine_file "$compiler" "$boost" "$optimized" "${own_options[@]}" >"$folder.ini.new"
    if ! cmp --quiet "$folder.ini.new" "$folder.ini"; then
      rm -rf "$folder"
      mv "$folder.ini.new" "$folder.ini"
    fi
  fi
}
