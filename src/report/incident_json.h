// Errors, hangs and ends for programs, with the keys of their lines in the log (docs/FORMAT.md).
#pragma once

#include <nlohmann/json.hpp>

#include "event/incidents.h"

namespace gpuflight::report {

nlohmann::ordered_json error_json(const event::ErrorEvent& error);
nlohmann::ordered_json hang_json(const event::HangEvent& hang);
nlohmann::ordered_json exit_json(const event::ExitEvent& exit);

}  // namespace gpuflight::report
