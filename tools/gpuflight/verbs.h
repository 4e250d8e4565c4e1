// The one table of verbs. A verb lives in the file of its name and gets what stands behind it on the command line.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpuflight::cli {

using Arguments = std::vector<std::string>;

// Each returns the exit code of the process or throws a Failure.
int run_verb(const Arguments& arguments);
int tail_verb(const Arguments& arguments);
int explain_verb(const Arguments& arguments);
int occupancy_verb(const Arguments& arguments);
int report_verb(const Arguments& arguments);
int check_verb(const Arguments& arguments);
int diff_verb(const Arguments& arguments);
int analyze_verb(const Arguments& arguments);
int export_verb(const Arguments& arguments);
int recover_verb(const Arguments& arguments);
int dump_verb(const Arguments& arguments);
int pause_verb(const Arguments& arguments);
int resume_verb(const Arguments& arguments);
int timing_verb(const Arguments& arguments);
int doctor_verb(const Arguments& arguments);
int doctor_probe_verb(const Arguments& arguments);
int version_verb(const Arguments& arguments);

struct Verb {
  const char* name;
  const char* use;  // heading in the short help; nullptr: hidden
  const char* summary;
  int (*call)(const Arguments&);
};

std::span<const Verb> verbs();
const Verb* find_verb(std::string_view name);

std::string short_help();

// The word of `known` nearest to `word`, or "" when none is near enough to be a typing error.
std::string nearest_word(std::string_view word, std::span<const std::string> known);

}  // namespace gpuflight::cli
