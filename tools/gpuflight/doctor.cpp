// gpuflight doctor: what would keep a recording from working here, each finding with its remedy.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "command_line.h"
#include "doctor_checks.h"
#include "doctor_cuda.h"
#include "failure.h"
#include "terminal.h"
#include "verbs.h"

namespace gpuflight::cli {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kDoctorSchema = 1;

void append(Findings& all, Findings more) {
  for (Finding& finding : more) all.push_back(std::move(finding));
}

const char* colour_of(Health health) {
  switch (health) {
    case Health::kFine:
      return "\033[32m";
    case Health::kNote:
      return "";
    case Health::kWarning:
      return "\033[33m";
    case Health::kPrevents:
      return "\033[31m";
  }
  return "";
}

void print_text(const Findings& findings, bool colour) {
  for (const Finding& finding : findings) {
    const char* word = finding.health == Health::kPrevents ? "FAIL" : health_name(finding.health);
    fmt::print("{}{:<8}{}{:<14}{}\n", colour ? colour_of(finding.health) : "", word, colour ? "\033[0m" : "",
               finding.check, finding.found);
    if (!finding.remedy.empty()) fmt::print("{:<22}-> {}\n", "", finding.remedy);
  }
}

void print_json(const Findings& findings, const Json& facts, bool fine) {
  Json out{{"doctor_schema", kDoctorSchema}, {"records", fine}, {"findings", Json::array()}, {"probe", facts}};
  for (const Finding& finding : findings) {
    out["findings"].push_back(Json{{"check", finding.check},
                                   {"health", health_name(finding.health)},
                                   {"found", finding.found},
                                   {"remedy", finding.remedy.empty() ? Json(nullptr) : Json(finding.remedy)}});
  }
  fmt::print("{}\n", out.dump(2, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

int doctor_verb(const Arguments& arguments) {
  bool json = false;
  std::string colour = "auto";
  CLI::App app;
  describe(
      app, "doctor", "[OPTIONS]",
      "Looks for what would keep a recording from working here: driver, CUPTI, permissions, other tools, the folder\n"
      "of the log. CUDA is initialised in a process of its own; nothing is launched. Exit code 1: nothing would be\n"
      "recorded.",
      "  gpuflight doctor\n"
      "  gpuflight doctor --json | jq -r '.findings[] | select(.health == \"prevents\") | .remedy'\n");
  app.add_flag("--json", json, "As JSON");
  add_color_option(app, colour);
  if (const auto done = parse(app, arguments)) return *done;

  Findings findings = check_library();
  append(findings, check_variables());
  append(findings, check_loader_path());
  append(findings, check_driver_files());
  CudaProbe probe = probe_cuda();
  append(findings, std::move(probe.findings));
  append(findings, check_log_folder());
  append(findings, check_container());
  const bool fine =
      std::none_of(findings.begin(), findings.end(), [](const Finding& f) { return f.health == Health::kPrevents; });
  if (json) {
    print_json(findings, probe.facts, fine);
  } else {
    print_text(findings, wants_colour(colour));
    fmt::print("\n{}\n", fine ? "recording works here: gpuflight run -- PROGRAM"
                              : "nothing would be recorded here: see the lines marked FAIL");
  }
  return fine ? kExitOk : kExitFailure;
}

}  // namespace gpuflight::cli
