# Language level, warnings, visibility and sanitizers: the same for every target in the tree.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()

# A compiler cache, if there is one and nobody chose otherwise.
if(NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER AND NOT DEFINED ENV{CMAKE_CXX_COMPILER_LAUNCHER})
  find_program(GPUFLIGHT_CCACHE ccache)
  mark_as_advanced(GPUFLIGHT_CCACHE)
  if(GPUFLIGHT_CCACHE)
    set(CMAKE_C_COMPILER_LAUNCHER ${GPUFLIGHT_CCACHE})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${GPUFLIGHT_CCACHE})
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${GPUFLIGHT_CCACHE})
  endif()
endif()

# Only our own sources are compiled here, so the whole tree may share directory-wide options; nvcc gets none of them.
add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # A GNU_UNIQUE symbol would pin its library by a side door and merge our statics with the host's.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fno-gnu-unique>")
endif()

if(GPUFLIGHT_SANITIZE)
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${GPUFLIGHT_SANITIZE};-fno-omit-frame-pointer>")
  add_link_options("$<$<LINK_LANGUAGE:C,CXX>:-fsanitize=${GPUFLIGHT_SANITIZE}>")
  if(GPUFLIGHT_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # It does not model fences and says so at each; what it misses for that reason shows as a report, not as silence.
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>")
  endif()
  if(GPUFLIGHT_SANITIZE MATCHES "undefined")
    add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-fno-sanitize-recover=undefined>")
  endif()
endif()

include_directories(${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
