#include "report/ci_results.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "event/schema_version.h"
#include "report/kernel_name.h"

namespace gpuflight::report {
namespace {

using Json = nlohmann::ordered_json;
using analysis::Outcome;

// Valid in an attribute. printable() has taken what XML 1.0 cannot hold.
std::string xml(const std::string& text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

// A path as the URI reference that SARIF wants; relative ones stay so, for a CI system takes them from the root of the
// repository.
std::string uri(const std::string& path) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";
  std::string out = path.starts_with('/') ? "file://" : "";
  for (const char c : path) {
    if (kPlain.find(c) != std::string_view::npos) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::uint64_t fnv(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

Json result_json(const std::vector<CiRule>& rules, const CiResult& result) {
  const auto rule = std::find_if(rules.begin(), rules.end(), [&](const CiRule& r) { return r.id == result.rule; });
  const bool failed = result.outcome == Outcome::kFail;
  Json out{{"ruleId", result.rule}};
  if (rule != rules.end()) out["ruleIndex"] = rule - rules.begin();
  out["kind"] = failed ? "fail" : "review";
  out["level"] = failed ? "error" : "none";  // the standard wants "none" beside any other kind than "fail"
  out["message"] = Json{{"text", result.subject + ": " + result.message}};
  Json location{{"physicalLocation", Json{{"artifactLocation", Json{{"uri", uri(result.file)}}},
                                          {"region", Json{{"startLine", std::max<std::size_t>(result.line, 1)}}}}}};
  location["logicalLocations"] = Json::array({Json{{"name", result.subject}, {"kind", "function"}}});
  out["locations"] = Json::array({std::move(location)});
  // The same finding of another run is the same alert.
  out["partialFingerprints"] = Json{{"gpuflight/v1", fmt::format("{:016x}", fnv(result.rule + "\n" + result.name))}};
  return out;
}

}  // namespace

std::string render_junit(const std::string& suite, const std::vector<CiResult>& results) {
  const auto count = [&](Outcome outcome) {
    return std::count_if(results.begin(), results.end(), [&](const CiResult& r) { return r.outcome == outcome; });
  };
  const std::string counts = fmt::format("tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\" time=\"0\"",
                                         results.size(), count(Outcome::kFail), count(Outcome::kUnsure));
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  out += fmt::format("<testsuites name=\"{0}\" {1}>\n  <testsuite name=\"{0}\" {1}>\n", xml(suite), counts);
  for (const CiResult& result : results) {
    out += fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"0\"", xml(suite), xml(result.name));
    if (result.outcome == Outcome::kPass) {
      out += "/>\n";
    } else if (result.outcome == Outcome::kUnsure) {
      out += fmt::format(">\n      <skipped message=\"{}\"/>\n    </testcase>\n", xml("unsure: " + result.message));
    } else {
      out += fmt::format(">\n      <failure type=\"{}\" message=\"{}\"/>\n    </testcase>\n", xml(result.rule),
                         xml(result.message));
    }
  }
  return out + "  </testsuite>\n</testsuites>\n";
}

std::string render_sarif(const std::vector<CiRule>& rules, const std::vector<CiResult>& results) {
  Json rule_list = Json::array(), result_list = Json::array();
  for (const CiRule& rule : rules) {
    rule_list.push_back(Json{{"id", rule.id},
                             {"shortDescription", Json{{"text", rule.text}}},
                             {"defaultConfiguration", Json{{"level", "error"}}}});
  }
  for (const CiResult& result : results) {
    if (result.outcome != Outcome::kPass) result_list.push_back(result_json(rules, result));
  }
  const Json driver{{"name", "gpuflight"}, {"version", event::kLibraryVersion}, {"rules", std::move(rule_list)}};
  const Json run{{"tool", Json{{"driver", driver}}}, {"columnKind", "utf16CodeUnits"}, {"results", result_list}};
  const Json out{{"$schema", "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"},
                 {"version", "2.1.0"},
                 {"runs", Json::array({run})}};
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace gpuflight::report
