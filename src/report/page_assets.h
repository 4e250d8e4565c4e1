// The constant parts of a page of `report --html`: files of src/report/page and uPlot, embedded at build time
// (cmake/page_assets.cmake).
#pragma once

#include <string_view>

namespace gpuflight::report {

extern const std::string_view kPageBody, kPageStyle, kPageScript;
extern const std::string_view kUplotScript, kUplotStyle;  // empty: built without
extern const std::string_view kUplotLicence;

}  // namespace gpuflight::report
