#!/usr/bin/env bash
# Installs a build tree into a temporary prefix and uses it as a stranger would: find_package, pkg-config, the command
# line, each without GPU, and again after the prefix has been moved.
#   install_test.sh BUILD_DIR
set -euo pipefail
build=${1:?usage: install_test.sh BUILD_DIR}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

check() {  # what, command...
  local what=$1
  shift
  if "$@" >"$work/out" 2>&1; then
    echo "ok: $what"
  else
    echo "FAILED: $what: $*"
    sed 's/^/    /' "$work/out"
    failed=1
  fi
}

cmake --install "$build" --prefix "$work/first" >"$work/install.log" || { cat "$work/install.log"; exit 1; }
mv "$work/first" "$work/prefix"
prefix=$work/prefix
libdir=$(dirname "$(find "$prefix" -name libgpuflight.so)")

check "soname and version links" test "$(readlink "$libdir/libgpuflight.so")" = libgpuflight.so.1 -a \
  -e "$libdir/libgpuflight.so.1" -a -e "$libdir/libgpuflight.so.0.1.0"
check "soname" grep -q '\[libgpuflight.so.1\]' <(readelf -d "$libdir/libgpuflight.so")
check "headers" test -e "$prefix/include/gpuflight/gpuflight.h" -a -e "$prefix/include/gpuflight/gpuflight.hpp"
check "schema" test -d "$prefix/share/gpuflight/schema"
check "no path of the build tree in what is installed" \
  bash -c "! grep -rIl -- '$build' '$prefix'"

mkdir -p "$work/consumer"
cat >"$work/consumer/main.cpp" <<'CPP'
#include <gpuflight/gpuflight.hpp>

#include <cstdio>
#include <cstring>

// Without a GPU every call must return and say so; nothing may end the program.
int main() {
  gpuflight::Options options;
  options.mode = "stream";
  {
    gpuflight::Scope scope("outer");
    gpuflight::mark("here");
  }
  const gpuflight::Status status = gpuflight::init(options);
  std::printf("%s, init: %s\n", gpuflight::version(), gpuflight::toString(status));
  gpuflight::shutdown();
  return std::strcmp(gpuflight::version(), "0.1.0") == 0 ? 0 : 1;
}
CPP
cat >"$work/consumer/main.c" <<'C'
#include <gpuflight/gpuflight.h>
#include <string.h>
int main(void) {
  gpuflight_push_scope("outer");
  gpuflight_pop_scope();
  return strcmp(gpuflight_version(), "0.1.0");
}
C
cat >"$work/consumer/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(consumer C CXX)
find_package(gpuflight 0.1 REQUIRED)
add_executable(consumer main.cpp)
target_link_libraries(consumer PRIVATE gpuflight::gpuflight)
add_executable(consumer_c main.c)
target_link_libraries(consumer_c PRIVATE gpuflight::gpuflight)
CMAKE

cd "$work"
check "find_package" cmake -S consumer -B by_cmake -DCMAKE_PREFIX_PATH="$prefix"
check "build with gpuflight::gpuflight" cmake --build by_cmake
check "run it without GPU" by_cmake/consumer
check "run the C program" by_cmake/consumer_c

export PKG_CONFIG_PATH=$libdir/pkgconfig
# shellcheck disable=SC2046
check "build with pkg-config" c++ -std=c++17 consumer/main.cpp -o by_pkg_config $(pkg-config --cflags --libs gpuflight)
check "run it" env LD_LIBRARY_PATH="$libdir" ./by_pkg_config
check "pkg-config version" test "$(pkg-config --modversion gpuflight)" = 0.1.0
check "linked and preloaded at once" env LD_PRELOAD="$libdir/libgpuflight.so" by_cmake/consumer
check "/bin/true under the preload" env LD_PRELOAD="$libdir/libgpuflight.so" /bin/true
if [ -e "$prefix/bin/gpuflight" ]; then
  check "the command line finds its library" env -u LD_LIBRARY_PATH "$prefix/bin/gpuflight" run -- /bin/true
  check "gpuflight version" "$prefix/bin/gpuflight" version
else
  echo "FAILED: bin/gpuflight is not installed"
  failed=1
fi
exit $failed
