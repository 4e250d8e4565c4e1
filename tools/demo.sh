#!/usr/bin/env bash
# From a fresh checkout to a first record and report, in one command: on the GPU where there is one (and nvcc), else on
# the simulated device. It says which.
set -euo pipefail
cd "$(dirname "$0")/.."

build=build/release
out=$build/demo
jobs=$(nproc)

say() { echo; echo "demo: $*"; }

# A driver that answers, not only a library that is there: cuInit must succeed.
gpu_works() {
  python3 - <<'PY' 2>/dev/null
import ctypes, sys
sys.exit(ctypes.CDLL("libcuda.so.1").cuInit(0))
PY
}

# Prints a command as it may be copied into a shell, and runs it.
show() {
  local word line='$'
  for word in "$@"; do
    case $word in
      *[!A-Za-z0-9_./:=,+@%-]*) line+=" '${word//\'/\'\\\'\'}'" ;;
      *) line+=" $word" ;;
    esac
  done
  echo "$line"
  "$@"
}

tools/setup.sh build

if ! gpu_works; then
  device=simulated reason="no working CUDA driver here"
elif ! command -v nvcc >/dev/null && ! [ -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ]; then
  device=simulated reason="a GPU is here, but no nvcc to build the example with"
else
  device=real
fi

if [ $device = real ]; then
  say "building the recorder and an example"
  configure=(-DCMAKE_CUDA_ARCHITECTURES=native) targets=(gpuflight gpuflight_tool block_reduce_naive)
else
  say "building the recorder and the simulated device ($reason)"
  configure=() targets=(gpuflight gpuflight_tool gpuflight_sim_cuda gpuflight_sim_cupti gpuflight-play)
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
{ cmake --preset release "${configure[@]}" && cmake --build --preset release -j "$jobs" --target "${targets[@]}"; } \
  >"$log" 2>&1 || { cat "$log"; exit 1; }

rm -rf "$out"
[ "$OLDPWD" = "$PWD" ] || { echo; echo "\$ cd $PWD"; }
gpuflight=$build/bin/gpuflight
if [ $device = real ]; then
  say "recording a block reduction on this machine's GPU"
  show "$gpuflight" run --log "$out/demo.ndjson" -- $build/examples/block_reduce_naive
else
  say "recording the launches of a plan on a simulated sm_86 board: no GPU takes part, and times mean nothing"
  show export "LD_LIBRARY_PATH=$PWD/$build/sim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  show export "GPUFLIGHT_SIM_PLAN=$PWD/tests/plans/article_sm86.json"
  # Named, because a libcupti of a toolkit would be found first, and it knows no simulated driver.
  show "$gpuflight" run --cupti $build/sim/libcupti.so.13 --log "$out/demo.ndjson" -- \
    $build/sim/gpuflight-play tests/plans/article_sm86.json
fi

say "one event of the log:"
show grep -m1 '"type":"kernel_event"' "$out/demo.ndjson"

# What the plan is known to give; a demo of something else would be worse than none.
if [ $device = simulated ] && ! grep -q '"occupancy":0.833333' "$out/demo.ndjson"; then
  echo "demo: the log does not hold the occupancy of 0.833333 that this plan has on sm_86" >&2
  exit 1
fi

say "and the report:"
show "$gpuflight" report "$out/demo.ndjson"

say "done on the $device device; the log is $out/demo.ndjson"
