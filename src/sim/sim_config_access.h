// How libcupti reads the configuration that libcuda holds: one copy in the process, by one exported function.
#pragma once

#include "sim/sim_config.h"

extern "C" const gpuflight::sim::SimConfig* gpuflight_sim_config();
