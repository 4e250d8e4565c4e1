# gpuflight_injected_library(TARGET MAP): how a library is linked that other people's processes load. It needs libc and
# its parts only, exports what MAP lists, resolves everything at load time and is never unloaded.
function(gpuflight_injected_library target map)
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${map})
  target_link_options(${target} PRIVATE
    -Wl,--version-script=${map} -Wl,--exclude-libs,ALL -Wl,-z,nodelete -Wl,-z,relro,-z,now -Wl,-z,noexecstack
    -Wl,--as-needed)
  if(NOT GPUFLIGHT_SANITIZE)  # a sanitizer's runtime is shared and resolved by the host
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc -Wl,-z,defs)
  endif()
endfunction()
