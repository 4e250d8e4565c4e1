#!/usr/bin/env bash
# Loads the built libraries under the C library of Debian 11 (2.31, from before libpthread and libdl became part of
# libc), as an older system would. Needs Debian's archive the first time; what it fetched stays in ./.deps/old-glibc.
#
#   tools/old_glibc.sh [BUILD_DIR]      (default: build/release)
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
root=$PWD/.deps/old-glibc
suite=bullseye
packages=(libc6 coreutils libselinux1 libpcre2-8-0)

fetch() {
  local mirror apt=$root/apt
  mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
    grep -oE 'https?://[^ ]+/debian/?( |$)' | head -n 1 | tr -d " ") || true
  [ -n "$mirror" ] || { echo "old_glibc: this machine knows no archive of Debian's" >&2; exit 1; }
  mkdir -p "$apt"/{lists/partial,cache/archives/partial}
  : >"$apt/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$apt/sources.list"
  local options=(-qq -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o "Dir::State::status=$apt/status"
    -o APT::Sandbox::User=root)
  apt-get "${options[@]}" update
  (cd "$apt" && apt-get "${options[@]}" download "${packages[@]}")
  for package in "$apt"/*.deb; do dpkg -x "$package" "$root"; done
  rm -rf "$apt"
}

[ -x "$root/bin/true" ] || fetch
lib=$(dirname "$(find "$root/lib" -name 'ld-linux-x86-64.so.2')")
old() { "$lib/ld-linux-x86-64.so.2" --library-path "$lib:$root/usr/lib/x86_64-linux-gnu" "$@"; }

echo "C library: $(basename "$(find "$lib" -name 'libc-2.*.so')" .so)"
old "$root/bin/true" && echo "ok: /bin/true of $suite"
failed=0
for library in "$build/lib/libgpuflight.so" "$(find "$build" -name libglibc_floor_probe.so)"; do
  [ -e "$library" ] || continue
  if old --preload "$library" "$root/bin/true"; then
    echo "ok: /bin/true under $(basename "$library")"
  else
    echo "FAILED: /bin/true under $(basename "$library")"
    failed=1
  fi
done
echo "the probe, which uses everything that src/inject/glibc_floor.cpp redirects:"
GPUFLIGHT_TEST_PROBE_ALONE=1 old --preload "$(find "$build" -name libglibc_floor_probe.so)" "$root/bin/true" || failed=1
exit $failed
