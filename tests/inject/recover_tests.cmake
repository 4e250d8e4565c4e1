# What is left of programs that were killed, read by the command line.
if(TARGET gpuflight_tool AND TARGET sim_tests)
  gpuflight_sim_host(soak_host)
  gpuflight_sim_host(death_host)
  add_dependencies(sim_tests gpuflight_tool)
  gpuflight_sim_test(recover 600 BOTH)
  gpuflight_sim_test(death 300)
endif()
