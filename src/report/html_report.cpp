#include "report/html_report.h"

#include <nlohmann/json.hpp>

#include "report/kernel_name.h"
#include "report/page_assets.h"

namespace gpuflight::report {
namespace {

// Printed for people with an indent; in the page that would be a third of it.
std::string compact(const std::string& json) {
  return nlohmann::ordered_json::parse(json).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '&') out += "&amp;";
    else out += c;
  }
  return out;
}

void append_data(std::string& out, const char* id, const std::string& json) {
  out += "<script type=\"application/json\" id=\"";
  out += id;
  out += "\">";
  out += script_safe(json);
  out += "</script>\n";
}

// Of the rows of the report, in its order.
std::string short_names(const analysis::LogSummary& summary, const ReportOptions& options) {
  constexpr std::size_t kColumns = 60;
  KernelNames names(kColumns);
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const analysis::LaunchGroup* group : ranked(summary, options.sort)) {
    if (out.size() == options.top) break;
    out.push_back(names.of(group->label));
  }
  return out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void append_all(std::string& out, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) out += part;
}

}  // namespace

bool can_render_html() { return !kUplotScript.empty(); }

std::string script_safe(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    if (c == '<') out += "\\u003c";
    else out += c;
  }
  return out;
}

std::string render_html(const PageParts& parts) {
  ReportOptions report;
  report.top = kMostPageKernels;
  FindingsOptions findings;
  findings.rules = parts.rules;
  std::string out;
  // The policy lets the page load nothing from anywhere.
  append_all(out, {"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                   "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src "
                   "'unsafe-inline'; style-src 'unsafe-inline'; img-src data:\">\n"
                   "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                   "<meta name=\"color-scheme\" content=\"light dark\">\n"
                   "<link rel=\"icon\" href=\"data:,\">\n"
                   "<title>gpuflight report</title>\n<style>\n",
                   kUplotStyle, "\n", kPageStyle, "</style>\n</head>\n<body>\n", kPageBody});
  append_all(out, {"<details class=\"licence\"><summary>gpuflight ", html_text(parts.version),
                   "; licence of the charts</summary><pre>", html_text(kUplotLicence), "</pre></details>\n"});
  append_data(out, "data-report", compact(render_json(parts.summary, report)));
  append_data(out, "data-names", short_names(parts.summary, report));
  append_data(out, "data-findings", compact(findings_json(parts.analysis, findings)));
  append_data(out, "data-occupancy", parts.occupancy_json.empty() ? "null" : parts.occupancy_json);
  append_data(out, "data-timeline", timeline_json(parts.works, parts.analysis));
  append_all(out, {"<script>\n", kUplotScript, "\n</script>\n<script>\n", kPageScript,
                   "</script>\n</body>\n</html>\n"});
  return out;
}

}  // namespace gpuflight::report
