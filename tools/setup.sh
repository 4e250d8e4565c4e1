#!/usr/bin/env bash
# Installs what building and testing need, and only what is missing: packages of Debian or Ubuntu, the CUDA headers
# (from pip wheels into ./.deps, where no toolkit is found), uPlot for the charts of a page, CUPTI's headers of other
# releases for a check, Python packages of the tests (into ./.venv), a headless browser where the distribution has one.
# With nothing missing it needs no network and no rights.
#
#   tools/setup.sh         everything that tools/test.sh needs
#   tools/setup.sh build   only what building the library, the tools and the demo needs
set -euo pipefail
cd "$(dirname "$0")/.."

scope=${1:-all}
case $scope in
  all | build) ;;
  *) echo "usage: tools/setup.sh [build]" >&2; exit 2 ;;
esac

build_packages=(g++ cmake ninja-build pkg-config python3 python3-venv libfmt-dev nlohmann-json3-dev
                libcli11-dev libzstd-dev zlib1g-dev libsimdjson-dev libgtest-dev libbenchmark-dev)
test_packages=(ccache g++-aarch64-linux-gnu jq zstd locales)
# The wheels of toolkit 13.0; the toolkit itself serves just as well.
cuda_wheels=(nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85 nvidia-cuda-crt==13.0.88
             nvidia-nvtx==13.0.85)

say() { echo "setup: $*"; }
fail() { echo "setup: $*" >&2; exit 1; }

installed() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q '^install ok installed'; }

# A command that is there by other means than its package serves as well.
have_package() {
  case $1 in
    g++ | cmake | pkg-config | python3 | ccache | jq | zstd) command -v "$1" >/dev/null && return ;;
    ninja-build) command -v ninja >/dev/null && return ;;
    g++-aarch64-linux-gnu) command -v aarch64-linux-gnu-g++ >/dev/null && return ;;
  esac
  installed "$1"
}

install_packages() {
  local missing=() package as_root=()
  for package in "$@"; do
    have_package "$package" || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  command -v apt-get >/dev/null ||
    fail "missing: ${missing[*]}. This is not Debian or Ubuntu: install what corresponds to these, then run again."
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "missing: ${missing[*]}. Run as root: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${missing[*]}"
  "${as_root[@]}" apt-get update -qq || say "apt-get update failed; trying with the lists that are there"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" \
    >/dev/null || fail "apt-get could not install ${missing[*]} (see above)"
}

have_venv() { [ -x .venv/bin/python ] && .venv/bin/python -c 'import pip' 2>/dev/null; }

need_venv() {
  have_venv && return
  say "making ./.venv"
  rm -rf .venv
  python3 -m venv .venv || fail "python3 -m venv failed: install python3-venv"
}

pip_install() {
  .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@" || fail "pip could not install: $*"
}

# The same places, in the same order, as cmake/cuda_headers.cmake.
have_cuda_headers() {
  local header dir found
  for header in cuda.h cuda_occupancy.h cupti.h generated_cuda_meta.h nvtx3/nvToolsExt.h; do
    found=
    for dir in ${CUDA_HOME:+"$CUDA_HOME"/include "$CUDA_HOME"/extras/CUPTI/include} \
               ${CUDA_PATH:+"$CUDA_PATH"/include "$CUDA_PATH"/extras/CUPTI/include} \
               /usr/local/cuda/include /usr/local/cuda/extras/CUPTI/include .deps/cuda/nvidia/cu13/include; do
      [ -e "$dir/$header" ] && found=yes && break
    done
    [ -n "$found" ] || return 1
  done
}

install_cuda_headers() {
  have_cuda_headers && return
  need_venv
  say "fetching the CUDA headers: ${cuda_wheels[*]}"
  rm -rf .deps/cuda
  # Headers only: any platform's wheel will do, and no dependency of theirs is wanted.
  pip_install --target .deps/cuda --no-deps "${cuda_wheels[@]}"
  have_cuda_headers || fail "the wheels came, but cuda.h, cuda_occupancy.h, cupti.h or nvtx3 is not in them"
}

# Only a check wants these, and says itself that it is skipped where they are not to be had.
fetch_cupti_headers() {
  local release packages folder scratch
  while read -r release packages; do
    case $release in '' | '#'*) continue ;; esac
    folder=.deps/cupti_headers/$release
    [ "$(cat "$folder/packages" 2>/dev/null)" = "$packages" ] && continue
    need_venv
    say "fetching CUPTI's headers of CUDA $release"
    scratch=$(mktemp -d)
    rm -rf "$folder"
    # shellcheck disable=SC2086  # several words
    if .venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --dest "$scratch" $packages &&
       .venv/bin/python tools/check_cupti_headers.py --unpack "$scratch" "$folder"; then
      echo "$packages" >"$folder/packages"
    else
      say "CUPTI's headers of CUDA $release are not to be had: the test cupti_headers will be skipped"
    fi
    rm -rf "$scratch"
  done <tools/cupti_headers.txt
}

# Charts of `report --html`. What is built without them says so where it is asked for a page.
chart_version=1.0.0
install_charts() {
  [ -e ".deps/page/complete-$chart_version" ] && return
  need_venv
  say "fetching uPlot, for the charts of report --html"
  rm -rf .deps/page
  if .venv/bin/python -m pip install --quiet --disable-pip-version-check --target .deps/page --no-deps \
       --require-hashes -r tools/requirements-page.txt; then
    touch ".deps/page/complete-$chart_version"
  else
    say "pip could not get uPlot: gpuflight will be built without report --html"
  fi
}

# A headless browser for one test, which is passed over where there is none. Ubuntu has it as a snap only.
install_browser() {
  local as_root=()
  command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null &&
    return
  command -v apt-get >/dev/null || return 0
  [ "$(id -u)" -eq 0 ] || as_root=(sudo)
  say "installing chromium"
  "${as_root[@]}" apt-get update -qq || true
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium \
    fonts-dejavu-core >/dev/null 2>&1 || say "chromium is not to be had: the test cli_html will be passed over"
}

install_python_packages() {
  local line name version
  need_venv
  while read -r line; do
    case $line in '' | '#'*) continue ;; esac
    name=${line%%==*} version=${line##*==}
    if ! .venv/bin/python - "$name" "$version" <<'PY' 2>/dev/null
import importlib.metadata, sys
sys.exit(importlib.metadata.version(sys.argv[1]) != sys.argv[2])
PY
    then
      say "installing the Python packages of the tests"
      pip_install -r tools/requirements.txt
      return
    fi
  done <tools/requirements.txt
}

# One test loads an exported trace with HolisticTraceAnalysis; it is passed over where pip cannot get that.
hta_version=0.5.0
install_hta() {
  [ -e ".deps/hta/complete-$hta_version" ] && return
  say "installing HolisticTraceAnalysis $hta_version into .deps/hta"
  rm -rf .deps/hta
  if python3 -m venv .deps/hta &&
     .deps/hta/bin/python -m pip install --quiet --disable-pip-version-check -r tools/requirements-hta.txt &&
     .deps/hta/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
       "HolisticTraceAnalysis==$hta_version"; then
    touch ".deps/hta/complete-$hta_version"
  else
    say "pip could not install HolisticTraceAnalysis: the test cli_hta will be passed over"
  fi
}

# Tests run under a locale with decimal comma and digit grouping; it is made here, privately, not in the system.
make_locale() {
  [ -e .deps/locale/de_DE.UTF-8/LC_NUMERIC ] && return
  say "making the locale de_DE.UTF-8 in .deps/locale"
  mkdir -p .deps/locale
  localedef -i de_DE -f UTF-8 .deps/locale/de_DE.UTF-8 || fail "localedef could not make de_DE.UTF-8"
}

check_versions() {
  local cmake_version gcc_version
  cmake_version=$(cmake --version | sed -n '1s/[^0-9]*//p')
  printf '3.25\n%s\n' "$cmake_version" | sort -VC || fail "cmake is $cmake_version; 3.25 or newer is needed"
  if c++ --version | grep -qi 'free software foundation'; then
    gcc_version=$(c++ -dumpfullversion)
    printf '12\n%s\n' "$gcc_version" | sort -VC || fail "g++ is $gcc_version; 12 or newer is needed"
  fi
}

install_packages "${build_packages[@]}"
check_versions
install_cuda_headers
install_charts
if [ "$scope" = all ]; then
  install_packages "${test_packages[@]}"
  install_python_packages
  fetch_cupti_headers
  install_hta
  install_browser
  make_locale
fi
say "everything is there"
