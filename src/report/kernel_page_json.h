// What a page says of each kernel's occupancy: the numbers of explain --json, its words, and the curves of occupancy.
#pragma once

#include <string>

#include "report/explain_report.h"

namespace gpuflight::report {

std::string kernel_page_json(const ExplainedKernels& explained, const analysis::LogSummary& logs);

}  // namespace gpuflight::report
