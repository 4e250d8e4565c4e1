# Tests of the command line as a user has it. Needs the target of tools/gpuflight.
add_executable(cli_log_writer cli_log_writer.cpp cli_timeline.cpp)
target_link_libraries(cli_log_writer PRIVATE gpuflight_log gpuflight_event)

function(gpuflight_cli_test name)
  add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/${name}_test.py)
  set_tests_properties(${name} PROPERTIES LABELS inject TIMEOUT 300 COST 300 ENVIRONMENT
    "CLI_TEST_TOOL=$<TARGET_FILE:gpuflight_tool>;CLI_TEST_WRITER=$<TARGET_FILE:cli_log_writer>;CLI_TEST_BUILD=${CMAKE_BINARY_DIR}")
endfunction()
gpuflight_cli_test(cli_usage)
gpuflight_cli_test(cli_report)
gpuflight_cli_test(cli_tail)
gpuflight_cli_test(cli_export)
gpuflight_cli_test(cli_hta)
set_tests_properties(cli_hta PROPERTIES SKIP_RETURN_CODE 77)
if(TARGET gpuflight AND TARGET gpuflight-play)
  gpuflight_cli_test(cli_run)
endif()
