// The rows of kernels of `gpuflight report` as a table for people: with the GPU's times where there are any.
#pragma once

#include <vector>

#include "report/kernel_report.h"
#include "report/text_table.h"

namespace gpuflight::report {

TextTable kernel_table(const analysis::LogSummary& summary, const std::vector<const analysis::LaunchGroup*>& groups,
                       const ReportOptions& options);

}  // namespace gpuflight::report
