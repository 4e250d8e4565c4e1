// What the report says beside kernels, as text: when each device was busy, copies, calls by host time, memory, graphs.
#pragma once

#include <string>

#include "analysis/log_summary.h"
#include "report/kernel_report.h"

namespace gpuflight::report {

// Tables, each after an empty line; what there is none of has none.
void append_activity(std::string& out, const analysis::LogSummary& summary, const ReportOptions& options);

// Lines about times that are missing and about kernels that had not ended; `warn` and `off` go around each (colour).
void append_time_notes(std::string& out, const analysis::LogSummary& summary, const char* warn, const char* off);

std::string copy_label(const analysis::CopyKey& key);  // "htod pinned > device, async"
std::string memory_label(const analysis::MemoryKey& key);

}  // namespace gpuflight::report
