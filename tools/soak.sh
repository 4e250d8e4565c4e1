#!/usr/bin/env bash
# Long tests on the simulated device, with the real library preloaded.
#
#   tools/soak.sh kill [--rounds 500] [--seconds S]
#       a program with 4 to 64 launching threads is killed at a random moment; what it had counted as returned must be in
#       the log or be recovered
#   tools/soak.sh run [--seconds 3600] [--rate 50000] [--threads 16] [--life 5000] [--reload-ms 50] [--log-max-mib 1024]
#       threads come and go, modules are reloaded; memory, descriptors, disk and CPU per event are sampled, and growth
#       beyond noise is a failure
#
# GPUFLIGHT_TEST_BUILD names another build tree than build/release, which is built if it is not there.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; }
case ${1:-} in
  kill | run) mode=$1; shift ;;
  -h | --help) usage; exit 0 ;;
  *) usage >&2; exit 2 ;;
esac

if [ -z "${GPUFLIGHT_TEST_BUILD:-}" ]; then
  export GPUFLIGHT_TEST_BUILD=$PWD/build/release
  [ -f "$GPUFLIGHT_TEST_BUILD/build.ninja" ] || cmake --preset release
  cmake --build "$GPUFLIGHT_TEST_BUILD" --target sim_tests gpuflight_tool
fi
python=${GPUFLIGHT_PYTHON:-}
[ -n "$python" ] || { [ -x .venv/bin/python ] && python=$PWD/.venv/bin/python || python=python3; }
exec "$python" -B "tests/inject/soak_$mode.py" "$@"
