// A recording as one page that needs nothing but itself: `gpuflight report --html`. Its numbers are those of
// report --json, analyze --json and explain --json, as these print them; the page's own scripts lay them out.
#pragma once

#include <string>
#include <string_view>

#include "analysis/analyzer.h"
#include "analysis/log_summary.h"
#include "analysis/work_sample.h"
#include "report/findings_report.h"
#include "report/kernel_report.h"

namespace gpuflight::report {

inline constexpr std::size_t kMostPageKernels = 500;  // rows of its table

bool can_render_html();  // false: built without the library that draws the charts

struct PageParts {
  const analysis::LogSummary& summary;  // by kernel
  const analysis::Analysis& analysis;
  const analysis::WorkSample& works;
  std::string occupancy_json;  // of kernel_page_json(); empty: built without the occupancy model
  std::string version;
  std::size_t rules = 0;
};
std::string render_html(const PageParts& parts);

// The timeline of a page: tracks, names, and columns of numbers in base64, little-endian.
std::string timeline_json(const analysis::WorkSample& works, const analysis::Analysis& analysis);

// Text of JSON so that it can stand in a script element whatever names hold: no '<' is left.
std::string script_safe(std::string_view json);

}  // namespace gpuflight::report
