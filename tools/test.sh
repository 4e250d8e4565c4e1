#!/usr/bin/env bash
# Builds and tests everything that runs without a GPU: release build with all tests; the unit tests and those on
# the simulated device under AddressSanitizer and UBSan, those of them with threads under ThreadSanitizer; a cross compile
# for aarch64.
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

# Ends the stage before, and says how long it took.
stage_name= stage_begin=$begin stage_times=()
tries=()  # what did not pass at the first try
stage() {
  [ -z "$stage_name" ] || stage_times+=("$(printf '%5d s  %s' $((SECONDS - stage_begin)) "$stage_name")")
  stage_name=$* stage_begin=$SECONDS
  [ $# -eq 0 ] || { echo; echo "== $* (at $((SECONDS - begin)) s)"; }
}

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
  local preset=$1 options=()
  shift
  # The examples are only compiled where there is no GPU to run them on: for the oldest and the newest.
  [ "$preset" = release ] && [ ! -e /dev/nvidiactl ] && options=(-DCMAKE_CUDA_ARCHITECTURES="75-real;120-real")
  # The command line has no threads worth the compile time.
  [ "$preset" = tsan ] && options=(-DGPUFLIGHT_TEST_TOOL="$PWD/build/release/bin/gpuflight")
  cmake --preset "$preset" "${options[@]}" >"$logs/configure" 2>&1 || { cat "$logs/configure"; return 1; }
  cmake --build --preset "$preset" -j "$jobs" ${1:+--target "$@"} >"$logs/build" 2>&1 || {
    grep -vE '^\[[0-9]+/[0-9]+\]' "$logs/build" | head -n 200
    return 1
  }
}

# Warnings are faults: they end here, not in a user's build.
no_warnings() {
  grep -q 'warning:' "$logs/build" || return 0
  grep -A5 'warning:' "$logs/build" | head -n 100
  return 1
}

# Runs ctest and adds up what it says.
tests() {  # preset, ctest arguments...
  local preset=$1 result
  shift
  # Most tests play programs in real time beside each other: one that fails runs once more, and that is said below.
  ctest --preset "$preset" --no-tests=error --repeat until-pass:2 "$@" 2>&1 | grep -v '^ *Start ' | tee "$logs/ctest"
  result=${PIPESTATUS[0]}
  local summary bad total passes skips again
  summary=$(grep -E 'tests passed, [0-9]+ tests? failed out of [0-9]+' "$logs/ctest")
  bad=$(sed -E 's/.*, ([0-9]+) tests? failed.*/\1/' <<<"$summary")
  total=$(sed -E 's/.*out of ([0-9]+).*/\1/' <<<"$summary")
  skips=$(grep -cE '\*\*\*Skipped' "$logs/ctest")
  again=$(grep -E '\*\*\*(Failed|Timeout|Exception)' "$logs/ctest" | sed -E 's/.*Test +#[0-9]+: ([^ ]+) .*/\1/' | sort -u)
  [ -z "$again" ] || tries+=("$preset: $(tr '\n' ' ' <<<"$again")")
  if [ -z "$total" ]; then
    echo "FAILED: ctest for $preset ran no test"
    failed=$((failed + 1))
    return 1
  fi
  passes=$((total - bad - skips))
  passed=$((passed + passes)) failed=$((failed + bad)) skipped=$((skipped + skips))
  [ "$result" -eq 0 ] || [ "$bad" -gt 0 ] || failed=$((failed + 1))
}

stage "setup"
tools/setup.sh || exit 1
export LOCPATH=$PWD/.deps/locale
# Where in the tree it was compiled does not change what ccache finds.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
export ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1

stage "release: build"
if step "release: build" build release; then
  step "release: no warnings" no_warnings
  stage "release: tests"
  tests release -j $((jobs + (jobs + 1) / 2))  # many tests wait most of their time
fi

# Under a sanitizer no test measures time, so even more of them run at once.
sanitized() {  # name, preset, labels, targets...
  local name=$1 preset=$2 labels=$3
  shift 3
  stage "$name: build"
  if step "$name: build" build "$preset" "$@"; then
    step "$name: no warnings" no_warnings
    stage "$name: tests"
    tests "$preset" -L "$labels" -j $((3 * jobs))
  fi
}

if [ -z "$quick" ]; then
  if [ -n "$sanitizers" ]; then
    sanitized "AddressSanitizer and UBSan" asan '^(unit|unit_threads|sim)$' unit_tests sim_tests
    sanitized "ThreadSanitizer, what has threads" tsan '^(unit_threads|sim)$' thread_tests sim_tests
  fi
  stage "aarch64: cross compile"
  if step "aarch64: build" build aarch64 gpuflight; then
    step "aarch64: no warnings" no_warnings
    step "aarch64: symbols" tools/check_symbols.py --undefined 'ZSTD_*' build/aarch64/lib/libgpuflight.so
  fi
fi
stage

echo
printf '%s\n' "${stage_times[@]}"
[ ${#tries[@]} -eq 0 ] || printf 'did not pass at the first try: %s\n' "${tries[@]}"
echo "tools/test.sh took $((SECONDS - begin)) s"
echo "tests: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
