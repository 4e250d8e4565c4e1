# What `cmake --install` puts where, and how others find it: find_package(gpuflight) and pkg-config.
# The library's target `gpuflight` is defined in src/inject, the command line's in tools/gpuflight.
include(CMakePackageConfigHelpers)

if(TARGET gpuflight)
  # The build tree is laid out as the installed one, so that the command line finds its library in both.
  set_target_properties(gpuflight PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 1
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${CMAKE_INSTALL_LIBDIR})
  target_include_directories(gpuflight INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  add_library(gpuflight::gpuflight ALIAS gpuflight)

  set(gpuflight_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gpuflight)
  install(TARGETS gpuflight EXPORT gpuflight_targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT gpuflight_targets NAMESPACE gpuflight:: FILE gpuflightTargets.cmake
    DESTINATION ${gpuflight_cmake_dir})
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/gpuflightConfig.cmake.in
    ${PROJECT_BINARY_DIR}/gpuflightConfig.cmake INSTALL_DESTINATION ${gpuflight_cmake_dir})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/gpuflightConfigVersion.cmake COMPATIBILITY SameMajorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/gpuflightConfig.cmake ${PROJECT_BINARY_DIR}/gpuflightConfigVersion.cmake
    DESTINATION ${gpuflight_cmake_dir})

  # Paths relative to the .pc file: an installed tree may be moved.
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_LIBDIR BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} OUTPUT_VARIABLE pc_libdir)
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_INCLUDEDIR BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}
    OUTPUT_VARIABLE pc_includedir)
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig
    OUTPUT_VARIABLE pc_prefix)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/gpuflight.pc.in ${PROJECT_BINARY_DIR}/gpuflight.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/gpuflight.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/gpuflight DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()

if(TARGET gpuflight_hooks)
  set_target_properties(gpuflight_hooks PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${CMAKE_INSTALL_LIBDIR})
  install(TARGETS gpuflight_hooks LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

if(TARGET gpuflight_tool)
  set_target_properties(gpuflight_tool PROPERTIES
    OUTPUT_NAME gpuflight RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${CMAKE_INSTALL_BINDIR})
  install(TARGETS gpuflight_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/schema DESTINATION ${CMAKE_INSTALL_DATADIR}/gpuflight)
