# How a library is linked that other people's processes load.

# gpuflight_injected_library(TARGET MAP): needs libc and its parts only, exports what MAP lists, resolves everything at
# load time, is never unloaded, and loads under the glibc of 2018.
function(gpuflight_injected_library target map)
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${map})
  target_link_options(${target} PRIVATE
    -Wl,--version-script=${map} -Wl,--exclude-libs,ALL -Wl,-z,nodelete -Wl,-z,relro,-z,now -Wl,-z,noexecstack
    -Wl,--as-needed)
  if(NOT GPUFLIGHT_SANITIZE)  # a sanitizer's runtime is shared and resolved by the host
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc -Wl,--gc-sections)
    if(NOT GPUFLIGHT_ZSTD_MISSING)
      target_link_options(${target} PRIVATE -Wl,-z,defs)
    endif()
    gpuflight_lower_glibc(${target})
  endif()
endfunction()

# gpuflight_lower_glibc(TARGET): sends calls of functions that are younger than glibc 2.28, or have a younger version,
# through src/inject/glibc_floor.cpp. Works on the final link, so on static archives too.
function(gpuflight_lower_glibc target)
  get_target_property(done ${target} GPUFLIGHT_GLIBC_LOWERED)
  if(done)
    return()
  endif()
  set_target_properties(${target} PROPERTIES GPUFLIGHT_GLIBC_LOWERED TRUE)
  set(source ${PROJECT_SOURCE_DIR}/src/inject/glibc_floor.cpp)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  file(STRINGS ${source} lines REGEX "^OLD[A-Z_]*\\([a-z0-9_]+[,)]|OWN_LINKAGE .* OWN\\(")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "(OLD[A-Z_]*|OWN)\\(([a-z0-9_]+)[,)]" unused "${line}")
    target_link_options(${target} PRIVATE -Wl,--wrap=${CMAKE_MATCH_2})
  endforeach()
  target_sources(${target} PRIVATE ${source})
  # Each function in a section of its own, so that --gc-sections leaves out what this library never calls.
  set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES
    COMPILE_OPTIONS "-ffunction-sections;-fdata-sections;-fno-lto")
  # Before 2.34 the old versions live in these; a process need not have loaded them, so we must name them.
  target_link_options(${target} PRIVATE
    -Wl,--push-state,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2 -Wl,--pop-state)
endfunction()
