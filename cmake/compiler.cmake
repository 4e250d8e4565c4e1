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
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC's manual: with -fsanitize= it may warn falsely, as the instrumentation keeps it from following values. g++ 12
    # does so inside <regex>. The builds without sanitizers keep the warning.
    add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-Wno-maybe-uninitialized>")
  endif()
  if(GPUFLIGHT_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # It does not model fences and says so at each; what it misses for that reason shows as a report, not as silence.
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>")
  endif()
  if(GPUFLIGHT_SANITIZE MATCHES "undefined")
    add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-fno-sanitize-recover=undefined>")
  endif()
endif()

# What takes most of a sanitizer build's time to compile is templates of others (GoogleTest, JSON, CLI11), in code where
# nothing is hot: it is not optimised there, and AddressSanitizer alone watches over its pointers.
set(gpuflight_template_code_options)
if(GPUFLIGHT_SANITIZE)
  set(gpuflight_template_code_options -O0)
  if(GPUFLIGHT_SANITIZE MATCHES "undefined")
    list(APPEND gpuflight_template_code_options -fno-sanitize=null,alignment,vptr)
  endif()
endif()
# gpuflight_template_code(TARGET [ONE_THREAD]): ONE_THREAD has nothing that ThreadSanitizer could find.
function(gpuflight_template_code target)
  target_compile_options(${target} PRIVATE ${gpuflight_template_code_options})
  if("ONE_THREAD" IN_LIST ARGN AND GPUFLIGHT_SANITIZE MATCHES "thread")
    target_compile_options(${target} PRIVATE -fno-sanitize=thread)
  endif()
endfunction()

include_directories(${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
