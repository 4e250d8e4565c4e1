// Starts the recorder with options given by the API, the environment on top.
#pragma once

#include <cstddef>

#include "gpuflight/gpuflight.h"
#include "recorder/recorder.h"

extern "C" int InitializeInjection() noexcept;

namespace gpuflight::inject {

// `inside_init`: by the driver, inside the program's cuInit.
recorder::StartResult start(const gpuflight_option* given, std::size_t count, bool inside_init) noexcept;

}  // namespace gpuflight::inject
