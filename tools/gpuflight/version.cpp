// gpuflight version
#include <optional>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "command_line.h"
#include "event/schema_version.h"
#include "failure.h"
#include "library_path.h"
#include "report/kernel_report.h"
#include "verbs.h"

namespace gpuflight::cli {

int version_verb(const Arguments& arguments) {
  bool json = false;
  CLI::App app;
  describe(app, "version", "[--json]", "Versions of this tool, of the library it preloads and of the formats it reads.",
           "  gpuflight version\n  gpuflight version --json | jq -r .library.path\n");
  app.add_flag("--json", json, "As JSON");
  if (const auto done = parse(app, arguments)) return *done;

  const LibraryPath library = find_library();
  const std::string version = library.path.empty() ? std::string() : library_version(library.path);
  const std::string log_schema = fmt::format("{}.{}", event::kLogSchemaMajor, event::kLogSchemaMinor);
  const std::string flight = fmt::format("{}.{}", event::kFlightMajor, event::kFlightMinor);
  if (json) {
    const auto or_null = [](const std::string& text) {
      return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
    };
    const nlohmann::ordered_json out{{"tool", GPUFLIGHT_VERSION},
                                     {"library", {{"version", or_null(version)}, {"path", or_null(library.path)}}},
                                     {"log_schema", log_schema},
                                     {"flight_format", flight},
                                     {"report_schema", report::kReportSchema}};
    fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return kExitOk;
  }
  fmt::print("gpuflight {}\n", GPUFLIGHT_VERSION);
  if (library.path.empty()) {
    fmt::print("library   not found\n");
  } else {
    fmt::print("library   {} {}\n", version.empty() ? "(cannot be loaded)" : version, library.path);
  }
  fmt::print("formats   log {}, flight file {}, report {}\n", log_schema, flight, report::kReportSchema);
  return kExitOk;
}

}  // namespace gpuflight::cli
