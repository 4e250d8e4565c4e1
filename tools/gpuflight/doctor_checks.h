// What `doctor` looks at without CUDA: files, variables, limits of this machine. Each finding says what was found and,
// where something is wrong, what to do about it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpuflight::cli {

enum class Health : std::uint8_t {
  kFine,
  kNote,     // worth knowing, nothing is wrong
  kWarning,  // recording works, but not as one may expect
  kPrevents, // nothing or next to nothing is recorded
};
const char* health_name(Health health);

struct Finding {
  std::string check;  // stable short word: "driver", "cupti", "log_folder"
  Health health = Health::kFine;
  std::string found;
  std::string remedy;  // empty: none needed
};
using Findings = std::vector<Finding>;

Findings check_library();
Findings check_variables();   // options that are not understood, other tools' injection variables
Findings check_loader_path(); // stub libraries that hide the driver
Findings check_driver_files();// kernel driver, device files, profiling permission
Findings check_log_folder();  // writable, free space, kind of file system, file size limit
Findings check_container();

// Every libcupti that lies where one is looked for, whether or not it fits.
struct CuptiFile {
  std::string path;
  std::string reason;
};
std::vector<CuptiFile> cupti_files();

}  // namespace gpuflight::cli
