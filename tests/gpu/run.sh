#!/usr/bin/env bash
# Every GPU check, on any machine with a GPU: builds what is missing, runs them, prints a short table last.
#
#   tests/gpu/run.sh [--build DIR] [--only NAME,...] [--quick] [--limit SECONDS] [--keep] [--simulated] [--list]
#     --build DIR   a build tree, or what tests/gpu/pack.sh made; also GPUFLIGHT_BUILD (default: build/gpu)
#     --only        these checks alone; --list names them
#     --quick       smaller numbers of everything
#     --limit       seconds for all checks together (default 420)
#     --keep        leave the scratch folder
#     --simulated   on the simulated device: the checks that need no CUDA runtime, to try the checks themselves
#
# Writes results.json, measurements.md and logs.tar.gz to $OUT (default ./gpu-results).
# Exit: 0 all passed or were skipped with a reason, 1 some failed, 2 usage.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tree=$(cd "$here/../.." && pwd)
command="tests/gpu/run.sh $*"

build=${GPUFLIGHT_BUILD:-$tree/build/gpu} only= quick= limit=420 keep= simulated=
while [ $# -gt 0 ]; do
  case $1 in
    --build | --only | --limit)
      [ $# -ge 2 ] || { echo "run.sh: $1 needs a value" >&2; exit 2; }
      case $1 in --build) build=$2 ;; --only) only=$2 ;; --limit) limit=$2 ;; esac
      shift ;;
    --quick) quick=1 ;;
    --keep) keep=--keep ;;
    --simulated) simulated=1 ;;
    --list) ls "$here/checks" | sed 's/^[0-9]*_//; s/\..*//'; exit 0 ;;
    *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
  esac
  shift
done
unset GPUFLIGHT_BUILD  # the recorder would take it for an option of its own
mkdir -p "$build" 2>/dev/null
build=$(cd "$build" && pwd) || { echo "run.sh: no folder $build" >&2; exit 2; }
out=${OUT:-./gpu-results}
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
scratch=$(mktemp -d "${TMPDIR:-/tmp}/gpu-checks.XXXXXX")
jobs=$(nproc)
say() { echo "[$(date +%H:%M:%S)] $*" >&2; }

first() {  # names... : first of them that is a file in the build tree, by the usual places, then anywhere
  local name path
  for name; do
    for path in "$build/$name" "$build/lib/$name" "$build/bin/$name"; do
      [ -f "$path" ] && { echo "$path"; return; }
    done
  done
  for name; do
    path=$(find "$build" -maxdepth 5 -name "$name" \( -type f -o -type l \) -print -quit 2>/dev/null)
    [ -n "$path" ] && { echo "$path"; return; }
  done
}

# The library and the command line: the whole tree, if its libraries are here; a failure leaves those checks skipped.
if [ -z "$(first libgpuflight.so)" ]; then
  say "building gpuflight in $build"
  { timeout 60 cmake -S "$tree" -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DGPUFLIGHT_BUILD_TESTS=OFF \
      -DGPUFLIGHT_BUILD_EXAMPLES=OFF && timeout 240 cmake --build "$build" -j "$jobs"; } >"$scratch/build.log" 2>&1 ||
    { say "gpuflight could not be built:"; tail -n 15 "$scratch/build.log" >&2; }
fi

# The programs of the checks and the examples need nothing but the toolkit.
programs=$build/programs
if [ ! -e "$programs/PREBUILT" ]; then
  say "building the GPU programs in $programs"
  # For the GPU at hand; without one, to try the checks, for Hopper.
  nvidia-smi -L >/dev/null 2>&1 && arch=native examples_arch=native || arch=sm_90 examples_arch=90
  { timeout 60 cmake -S "$here" -B "$programs" -G "Unix Makefiles" -DGPUFLIGHT_GPU_ARCH=$arch \
      -DCMAKE_CUDA_ARCHITECTURES=$examples_arch &&
      timeout 240 cmake --build "$programs" -j "$jobs" -- -k; } >"$scratch/programs.log" 2>&1 ||
    { say "some GPU programs could not be built:"
      grep -iE -A2 'error|fatal' "$scratch/programs.log" | head -n 15 >&2; }
fi

nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
toolkit=${CUDA_HOME:-${nvcc:+$(dirname "$(dirname "$(readlink -f "$nvcc")")")}}
cupti=
for path in "$toolkit"/lib64/libcupti.so "$toolkit"/extras/CUPTI/lib64/libcupti.so \
    $(python3 -c 'import importlib.util, os
for name in ("nvidia.cu13", "nvidia.cuda_cupti"):
    try:
        spec = importlib.util.find_spec(name)
    except ImportError:
        spec = None
    for folder in (spec.submodule_search_locations if spec else []):
        print(os.path.join(folder, "lib", "libcupti.so.13"))' 2>/dev/null); do
  [ -e "$path" ] && { cupti=$path; break; }
done

GF_LIB=$(first libgpuflight.so)
GF_CLI=$(first bin/gpuflight tools/gpuflight/gpuflight)
GF_PLAY=$(first gpuflight-play)
GF_SIM=$(first sim/libcuda.so.1)
[ -n "$GF_SIM" ] && GF_SIM=$(dirname "$GF_SIM")
GF_COUNTER=$programs/liblaunch_counter.so
GF_PROGRAMS=$programs GF_EXAMPLES=$programs/examples
GF_TREE=$tree GF_QUICK=$quick GF_CUPTI=$cupti GF_NVCC=$nvcc GF_TOOLKIT_LIB=${toolkit:+$toolkit/lib64}
# What the generated kernels of the plans are compiled for.
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -dc 0-9)
GF_ARCH=sm_${capability:-90}
export GF_ARCH GF_LIB GF_CLI GF_PLAY GF_SIM GF_COUNTER GF_PROGRAMS GF_EXAMPLES GF_TREE GF_QUICK GF_CUPTI GF_NVCC
export GF_TOOLKIT_LIB
if [ -n "$simulated" ]; then
  export GF_SIMULATED=1 GF_CUPTI=$GF_SIM/libcupti.so.13
  costs=launch_cost,preload_cost,timing_cost,interpose_cost
  only=${only:-forms,parity,timeline,overlap,live,interpose,event_times,graph_contents,budget,$costs}
fi
if [ -z "$simulated" ] && ! nvidia-smi -L >/dev/null 2>&1; then say "nvidia-smi sees no GPU here"; fi
say "library ${GF_LIB:-none}, command line ${GF_CLI:-none}, libcupti ${GF_CUPTI:-none}"

python3 "$here/runner.py" --only "$only" --out "$out" --scratch "$scratch" --limit "$limit" --command "$command" $keep
code=$?
[ -n "$keep" ] && say "scratch folder: $scratch" || rm -rf "$scratch"
exit $code
