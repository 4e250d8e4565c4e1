// Where recovered events go: NAME.recovered.ndjson beside the log, never over anything that is there.
#pragma once

#include <string>

#include "analysis/recovery.h"

namespace gpuflight::cli {

// The new file's path; empty when there was nothing to write. `output`: a path that must not exist yet, "-" for
// standard output; empty: beside the log, and not once more what stands there already. Throws Failure.
std::string write_recovered(analysis::Recovery& recovery, const std::string& output);

}  // namespace gpuflight::cli
