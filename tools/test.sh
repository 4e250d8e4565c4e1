#!/usr/bin/env bash
# Builds and tests everything that runs without a GPU: release build with all tests, the same units and the simulated
# device under AddressSanitizer+UBSan and under ThreadSanitizer, and a cross compile for aarch64.
#
#   tools/test.sh [--quick] [--no-sanitizers]
#     --quick          the release build and its tests only
#     --no-sanitizers  leave the two sanitizer builds out
set -uo pipefail
cd "$(dirname "$0")/.."

quick= sanitizers=yes
for argument in "$@"; do
  case $argument in
    --quick) quick=yes ;;
    --no-sanitizers) sanitizers= ;;
    *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
  esac
done

jobs=$(nproc)
passed=0 failed=0 skipped=0
begin=$SECONDS
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

stage() { echo; echo "== $* ($((SECONDS - begin)) s)"; }

# A step counts as one test: it passes or it fails, and what follows still runs.
step() {  # what, command...
  local what=$1
  shift
  if "$@"; then
    passed=$((passed + 1))
  else
    echo "FAILED: $what"
    failed=$((failed + 1))
    return 1
  fi
}

# Configures and builds; quiet unless it fails.
build() {  # preset, targets...
  local preset=$1
  shift
  cmake --preset "$preset" >"$logs/configure" 2>&1 || { cat "$logs/configure"; return 1; }
  cmake --build --preset "$preset" -j "$jobs" ${1:+--target "$@"} >"$logs/build" 2>&1 || {
    grep -vE '^\[[0-9]+/[0-9]+\]' "$logs/build" | head -n 200
    return 1
  }
  # Warnings are faults: they end here, not in a user's build.
  if grep -q 'warning:' "$logs/build"; then
    grep -A5 'warning:' "$logs/build" | head -n 100
    return 1
  fi
}

has_target() { ninja -C "build/$1" -t query "$2" >/dev/null 2>&1; }

# Runs ctest and adds up what it says.
tests() {  # preset, ctest arguments...
  local preset=$1 result
  shift
  ctest --preset "$preset" -j "$jobs" --no-tests=error "$@" 2>&1 | grep -v '^ *Start ' | tee "$logs/ctest"
  result=${PIPESTATUS[0]}
  local summary bad total passes skips
  summary=$(grep -E 'tests passed, [0-9]+ tests? failed out of [0-9]+' "$logs/ctest")
  bad=$(sed -E 's/.*, ([0-9]+) tests? failed.*/\1/' <<<"$summary")
  total=$(sed -E 's/.*out of ([0-9]+).*/\1/' <<<"$summary")
  skips=$(grep -cE '\*\*\*Skipped' "$logs/ctest")
  if [ -z "$total" ]; then
    echo "FAILED: ctest for $preset ran no test"
    failed=$((failed + 1))
    return 1
  fi
  passes=$((total - bad - skips))
  passed=$((passed + passes)) failed=$((failed + bad)) skipped=$((skipped + skips))
  [ "$result" -eq 0 ] || [ "$bad" -gt 0 ] || failed=$((failed + 1))
}

sanitized() {  # preset
  local preset=$1 targets=(unit_tests)
  cmake --preset "$preset" >"$logs/configure" 2>&1 || cat "$logs/configure"
  has_target "$preset" sim_tests && targets+=(sim_tests)
  step "$preset build" build "$preset" "${targets[@]}" || return
  tests "$preset" -L '^(unit|sim)$'
}

stage "setup"
tools/setup.sh || exit 1
export LOCPATH=$PWD/.deps/locale
# Where in the tree it was compiled does not change what ccache finds.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
export ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1

stage "release: build"
step "release build" build release && {
  stage "release: tests"
  tests release
}

if [ -z "$quick" ]; then
  if [ -n "$sanitizers" ]; then
    stage "AddressSanitizer and UBSan"
    sanitized asan
    stage "ThreadSanitizer"
    sanitized tsan
  fi
  stage "aarch64: cross compile"
  step "aarch64 build" build aarch64 parts gpuflight &&
    step "aarch64 symbols" tools/check_symbols.py --undefined 'ZSTD_*' build/aarch64/lib/libgpuflight.so
fi

echo
echo "tools/test.sh took $((SECONDS - begin)) s"
echo "tests: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
