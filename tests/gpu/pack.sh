#!/usr/bin/env bash
# Puts what the GPU checks need into one small folder that can be carried to a machine with a GPU but without the
# libraries of the build (fmt, simdjson, ...): tests/gpu/run.sh --build FOLDER then builds nothing.
#
#   tests/gpu/pack.sh BUILD FOLDER [ARCH]      (ARCH for nvcc: sm_90 unless said)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ $# -ge 2 ] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
build=$(cd "$1" && pwd) arch=${3:-sm_90}
rm -rf "$2"
mkdir -p "$2"/{bin,lib,libexec,sim,programs/examples}
folder=$(cd "$2" && pwd)

find_one() { find -L "$build" -maxdepth 5 -name "$1" \( -type f -o -type l \) "${@:2}" -print -quit; }
take() {  # name, into: without debug information
  local path
  path=$(find_one "$1" -not -path '*/CMakeFiles/*')
  if [ -z "$path" ]; then
    echo "pack.sh: $1 is not in $build" >&2
    return 0
  fi
  cp -L "$path" "$2"
  strip -g "$2/$1" 2>/dev/null || true
}
take libgpuflight.so "$folder/lib"
take libgpuflight_hooks.so "$folder/lib"
take libcuda.so.1 "$folder/sim"
take libcupti.so.13 "$folder/sim"
# A wrapper keeps the folder of carried libraries out of everybody else's way until the command starts.
for tool in gpuflight gpuflight-play; do
  path=$(find -L "$build" -maxdepth 5 -type f -name "$tool" -perm -u+x -print -quit)
  if [ -z "$path" ]; then
    echo "pack.sh: $tool is not in $build" >&2
    continue
  fi
  cp "$path" "$folder/libexec/$tool"
  strip -g "$folder/libexec/$tool"
  ldd "$path" | awk '/=> .*\/lib(simdjson|fmt|spdlog|zstd)[.-]/{print $3}' | xargs -r cp -L -t "$folder/lib"
  cat >"$folder/bin/$tool" <<'WRAPPER'
#!/bin/sh
here=$(dirname "$(dirname "$(readlink -f "$0")")")
LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$here/libexec/$(basename "$0")" "$@"
WRAPPER
  chmod +x "$folder/bin/$tool"
done

work=$build/programs-$arch  # kept, so that packing again is quick
mkdir -p "$work"
cmake -S "$here" -B "$work" -DGPUFLIGHT_GPU_ARCH="$arch" -DCMAKE_CUDA_ARCHITECTURES="${arch#sm_}" >"$work/log" 2>&1 &&
  cmake --build "$work" -j "$(nproc)" >>"$work/log" 2>&1 || { tail -n 30 "$work/log" >&2; exit 1; }
for program in "$work"/* "$work"/examples/*; do
  [ -f "$program" ] && [ -x "$program" ] && cp "$program" "$folder/programs${program#"$work"}"
done
for plan in parity article_sm86 every_form handle_reuse; do
  [ -f "$here/../plans/$plan.json" ] || continue
  python3 "$here/plan_kernels.py" "$here/../plans/$plan.json" "$folder/programs/plans/$plan" --arch "$arch" >/dev/null
done
touch "$folder/programs/PREBUILT"
du -sh "$folder" | cut -f1
