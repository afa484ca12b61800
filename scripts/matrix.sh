# shellcheck shell=bash disable=SC2154,SC2034
# SPDX-License-Identifier: Apache-2.0
#
# The configurations in which verbspp is tested, for the scripts that build them; sourced after lib.sh,
# which sets $build and $options. docs/testing.md lists the mistakes that only one of them finds.

configurations="
default        the system's g++, on both link layers: the quick set
slow           softverbs' own tests, other programs, projects that use verbspp, valgrind, instructions
lint           the newest clang: format, clang-tidy, headers alone, code that must not compile
gcc-oldest     the oldest g++, tests optimized, on ethernet; headers alone, code that must not compile
clang-oldest   the oldest clang, on infiniband; instructions
asan-ubsan     the newest clang, Boost and names of libibverbs, AddressSanitizer and UBSan; fuzzing
tsan           the newest clang, ThreadSanitizer
"

# The tested versions. The oldest available one of g++, the newest of Boost, and both of clang are used.
tested_gcc=(11 12)
tested_clang=(14 15 16 17 18 19 20 21 22)
tested_boost=(1.74 1.81)
# The packages that the quick set of tests needs in addition to $packages_to_build.
packages_to_test=(catch2 ibverbs-utils libasio-dev libprotobuf-dev liburing-dev nlohmann-json3-dev protobuf-compiler)
# The additional packages of "slow", mostly other projects' programs.
programs_of_others=(cmake dapl2-utils fio infiniband-diags libfabric-bin libiscsi-bin libopenmpi-dev
  libpmix-dev mpich munge openmpi-bin perftest qperf rdmacm-utils slurm-client
  slurm-wlm-basic-plugins slurmctld slurmd tgt ucx-utils valgrind)

# available PREFIX SUFFIX VERSION...: prints the versions for which there is a package or a command.
available() {
  local version names=''
  ! may_install || names=$(apt-cache pkgnames "$1" 2>/dev/null) || true
  for version in "${@:3}"; do
    if grep --quiet --line-regexp --fixed-strings -- "$1$version$2" <<<"$names" || command -v "$1$version" >/dev/null; then
      echo "$version"
    fi
  done
}

# choose_versions: prints the versions to test with; empty if there are none.
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

# load_versions: sets gcc_oldest, clang_oldest, clang_newest, boost_newest, which are empty if there is no
# such version. Once both compilers are chosen, later runs use the same versions.
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

# The newest Boost cannot be installed along with the system's, so it is only unpacked.
unpack_boost() {
  local folder=$build/boost-$boost_newest
  [[ ! -d $folder && -n $boost_newest ]] || return 0
  say "unpacking Boost $boost_newest"
  rm -rf "$folder.new"
  unpack_package "libboost$boost_newest-dev" "$folder.new"
  mv "$folder.new" "$folder"
}

# python3-pyverbs cannot be installed without rdma-core and udev, which upgrade systemd, so it is only
# unpacked. Sets PYVERBS, where the tests find it.
unpack_pyverbs() {
  export PYVERBS=$PWD/$build/pyverbs
  [[ ! -d $PYVERBS ]] || return 0
  say "unpacking python3-pyverbs"
  rm -rf "$PYVERBS.new"
  unpack_package python3-pyverbs "$PYVERBS.new" && mv "$PYVERBS.new" "$PYVERBS"
}

# choose NAME: sets the variables of a configuration: its folder, the packages that it needs, the arguments
# of `meson test` that select its tests, and whether all of its targets are built ($builds_all). $setup has
# the arguments of `meson setup`.
choose() {
  local compiler=system boost=system optimized='as the library' settings=() disabled=() flags=("$relative_names") needed=auto
  folder=$build/matrix/$1 packages=("${packages_to_build[@]}" "${packages_to_test[@]}") tests=() builds_all=yes
  case $1 in
  default)
    folder=$build
    setup=("${options[@]}" -Dtests=enabled -Dsoftverbs_tests=disabled)
    tests=(--no-suite slow --no-suite long --no-suite lint --no-suite headers --no-suite compile_fail --no-suite bench)
    return
    ;;
  slow)
    # In the folder of the quick set, to reuse most of its objects.
    folder=$build builds_all=
    packages+=("${programs_of_others[@]}" "${packages_of_site[@]}")
    # A user installs the browser only on purpose: it takes over 400 MB. Without it the test only builds the site.
    [[ -z ${CI-} ]] || { needed=enabled && packages+=(chromium); }
    setup=("${options[@]}" -Dtests=enabled -Dbench=enabled "-Dpmix=$needed" "-Dmpi=$needed")
    tests=(--suite slow --suite long --suite softverbs --suite bench --no-suite lint)
    return
    ;;
  esac
  [[ -n ${clang_newest-} ]] || load_versions
  case $1 in
  lint)
    packages+=("clang-$clang_newest" clang-format-19 clang-tidy-19)
    # Each of these tests builds its own targets; `meson test` would build all targets.
    tests=(--no-rebuild --suite lint --suite headers --suite compile_fail)
    # Each source is compiled alone, as clang-tidy and the check of headers require.
    settings=(optimization=\'0\' unity=\'off\') compiler=clang-newest disabled=(mpi pmix bench) builds_all=
    ;;
  gcc-oldest)
    packages+=("g++-$gcc_oldest" libpmix-dev)
    tests=(--suite unit --suite device --suite exports --suite headers --suite compile_fail --no-suite infiniband)
    # clang-oldest compiles the programs of the other tests.
    settings=(optimization=\'2\') compiler=gcc-oldest disabled=(mpi bench softverbs_tests) builds_all=
    ;;
  clang-oldest)
    packages+=("clang-$clang_oldest" libpmix-dev valgrind)
    tests=(--suite unit --suite device --suite exports --suite bench --no-suite ethernet)
    settings=(optimization=\'2\' b_pch=false) compiler=clang-oldest disabled=(mpi softverbs_tests) optimized=0
    ;;
  asan-ubsan)
    packages+=("clang-$clang_newest" "libclang-rt-$clang_newest-dev")
    tests=(--no-suite slow --no-suite long --no-suite lint --no-suite headers --no-suite compile_fail --no-suite exports --no-suite tree)
    # Reports need line numbers.
    flags+=(-g1 "-isystem$PWD/$build/newer_verbs")
    settings=(optimization=\'1\' b_sanitize=\'address,undefined\' b_lundef=false b_pch=false)
    compiler=clang-newest boost=newest disabled=(mpi pmix bench) optimized=0
    ;;
  tsan)
    packages+=("clang-$clang_newest" "libclang-rt-$clang_newest-dev")
    tests=(--suite device --suite cm --suite ranks --suite softverbs --no-suite infiniband --no-suite slow --no-suite long --no-suite sockets)
    flags+=(-g1)
    settings=(optimization=\'1\' b_sanitize=\'thread\' b_lundef=false b_pch=false)
    # asan-ubsan compiles the programs of the other tests.
    compiler=clang-newest disabled=(mpi pmix bench) optimized=0 builds_all=
    ;;
  *) die "unknown configuration $1; the configurations are:$configurations" ;;
  esac
  # A feature whose package is missing is disabled, except in CI, where it is an error.
  if [[ -z ${CI-} ]]; then
    pkg-config --exists pmix 2>/dev/null || disabled+=(pmix)
    pkg-config --exists ompi-cxx 2>/dev/null || disabled+=(mpi)
  fi
  setup=(--native-file "$folder.ini" -Ddebug=false "${werror[@]}" -Dunity_size="$unity_size")
  # Written when $setup is used; after a change, the folder is configured from scratch.
  machine_file=$(describe_machine)
}

# describe_machine: prints the configuration's machine file for Meson: compiler, Boost, features and options.
# Uses the variables of choose.
describe_machine() {
  local version='' cache='' setting feature
  case $compiler in
  gcc-oldest) version=gcc-${gcc_oldest:?none of the tested versions of g++ can be installed} ;;
  clang-oldest) version=clang-${clang_oldest:?none of the tested versions of clang can be installed} ;;
  clang-newest) version=clang-${clang_newest:?none of the tested versions of clang can be installed} ;;
  esac
  if [[ -n $version ]]; then
    # A precompiled header of clang contains paths of its clone, so ccache must not reuse it in another one.
    # Without ccache installed, Meson does not use it.
    [[ $version == clang* && " ${settings[*]} " != *" b_pch=false "* ]] || cache="'ccache', "
    printf "[binaries]\nc = [$cache'%s']\ncpp = [$cache'%s']\n" "$version" "$(sed 's/gcc/g++/;s/clang/clang++/' <<<"$version")"
  fi
  [[ $boost == system || -z $boost_newest ]] || printf "[properties]\nboost_root = '%s'\n" "$PWD/$build/boost-$boost_newest/usr"
  printf "[built-in options]\nauto_features = 'enabled'\n"
  [[ " ${settings[*]}" == *unity=* ]] || echo "unity = 'on'"
  printf "cpp_args = [%s]\n" "$(printf "'%s', " "${flags[@]}")"
  for setting in "${settings[@]}"; do
    echo "${setting/=/ = }"
  done
  printf "[project options]\ntest_optimization = '%s'\n" "$optimized"
  for feature in "${disabled[@]}"; do
    echo "$feature = 'disabled'"
  done | sort -u
}

# configure_chosen: configures the chosen configuration, unless it is configured already.
configure_chosen() {
  if [[ $folder == "$build" ]]; then
    # Meson remembers missing packages, so after a change of the options, it starts from scratch. Objects whose
    # commands stay the same are not compiled again.
    if [[ ! -f $folder/build.ninja || "${setup[*]}" != "$(cat "$folder/setup" 2>/dev/null)" ]]; then
      rm -rf "$folder"/{build.ninja,meson-private,setup}
      meson setup "$folder" "${setup[@]}" || return
      echo "${setup[*]}" >"$folder/setup"
    fi
    [[ ${tests[*]} != *"--suite slow"* ]] || unpack_pyverbs || say "continuing without rdma-core's Python tests"
    return
  fi
  mkdir -p "$build/matrix"
  if [[ $machine_file != "$(cat "$folder.ini" 2>/dev/null)" ]]; then
    rm -rf "$folder"
    printf '%s\n' "$machine_file" >"$folder.ini"
  fi
  [[ ! $machine_file == *boost_root* ]] || unpack_boost
  [[ ! $machine_file == *newer_verbs* ]] || test/newer_verbs.py "$build/newer_verbs" || return
  configure "$folder" "${setup[@]}"
}
