// gpuflight-play: plays a launch plan through the CUDA driver API, on the simulated device or a real one.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "sim/play/player.h"

int main(int argc, char** argv) {
  gpuflight::sim::PlayOptions options;
  CLI::App app{"Plays a launch plan through the CUDA driver API"};
  app.add_option("plan", options.plan, "The plan (JSON, see src/sim/README.md)")->required();
  app.add_option("--kernels", options.kernels, "Folder with one cubin or fatbin per module: for a real GPU");
  app.add_option("--result", options.result, "Write what was launched, as JSON");
  app.add_option("--counters", options.counters, "Count launches in this mapped file while running");
  app.add_option("--loops", options.loops, "Each thread plays its ops so many times")->check(CLI::PositiveNumber);
  app.add_option("--device", options.device, "CUDA device ordinal");
  CLI11_PARSE(app, argc, argv);
  try {
    return gpuflight::sim::Player(options).play() ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpuflight-play: %s\n", e.what());
    return 2;
  }
}
