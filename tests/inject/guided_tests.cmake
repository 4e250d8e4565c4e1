# Programs that a test leads step by step, some with the command line beside them.
if(TARGET sim_tests)
  gpuflight_sim_host(guided_host)
  # Its clock must be seen by the libraries that it loads.
  set_target_properties(guided_host PROPERTIES CXX_VISIBILITY_PRESET default ENABLE_EXPORTS ON)
  if(TARGET gpuflight_tool)
    gpuflight_sim_test(incident 300)
    gpuflight_sim_test(control 240 BOTH)
    gpuflight_sim_test(timing 300)
    gpuflight_sim_test(budget 600 HOOKS)
  endif()
endif()
gpuflight_check(reliability_doc ${GPUFLIGHT_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/reliability_doc_test.py)
