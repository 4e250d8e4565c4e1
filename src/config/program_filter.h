// Which programs are recorded: the options include and exclude.
#pragma once

#include <string_view>

#include "config/options.h"

namespace gpuflight::config {

// `program` is the name without directory. Lists are comma-separated shell globs; an empty include list takes all.
bool program_selected(const Options& options, std::string_view program) noexcept;

}  // namespace gpuflight::config
