# Unit tests of analysis, report and the command line. Needs the targets of tools/gpuflight.
gpuflight_unit_test(analysis_summary_test analysis_summary_test.cpp LIBS gpuflight_analysis)
gpuflight_unit_test(analysis_times_test analysis_times_test.cpp LIBS gpuflight_analysis)
gpuflight_unit_test(report_name_test report_name_test.cpp LIBS gpuflight_report)
gpuflight_unit_test(report_table_test report_table_test.cpp LIBS gpuflight_report nlohmann_json::nlohmann_json)
gpuflight_unit_test(chrome_trace_test chrome_trace_test.cpp LIBS gpuflight_report nlohmann_json::nlohmann_json)
gpuflight_unit_test(cli_filter_test cli_filter_test.cpp LIBS gpuflight_cli)
gpuflight_unit_test(cli_process_end_test cli_process_end_test.cpp LIBS gpuflight_cli)

# Programs of each kind that `run` tells apart. The sanitizer's own build flags would make all of them the same kind.
gpuflight_unit_test(cli_elf_test cli_elf_test.cpp LIBS gpuflight_cli)
function(gpuflight_elf_sample name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "MACRO" "FLAGS")
  add_custom_command(OUTPUT ${name} DEPENDS cli_program.c VERBATIM
    COMMAND ${CMAKE_C_COMPILER} ${CMAKE_CURRENT_SOURCE_DIR}/cli_program.c ${arg_FLAGS} -o ${name})
  add_custom_target(${name}_built DEPENDS ${name})
  add_dependencies(cli_elf_test ${name}_built)
  target_compile_definitions(cli_elf_test PRIVATE ${arg_MACRO}="${CMAKE_CURRENT_BINARY_DIR}/${name}")
endfunction()
gpuflight_elf_sample(cli_program_dynamic MACRO CLI_DYNAMIC_PROGRAM)
gpuflight_elf_sample(cli_program_static MACRO CLI_STATIC_PROGRAM FLAGS -static)
gpuflight_elf_sample(cli_program_static_pie MACRO CLI_STATIC_PIE_PROGRAM FLAGS -static-pie)
gpuflight_elf_sample(cli_program_asan MACRO CLI_ASAN_PROGRAM FLAGS -fsanitize=address)
gpuflight_elf_sample(cli_program_static_asan MACRO CLI_STATIC_ASAN_PROGRAM FLAGS -fsanitize=address -static-libasan)
