// report --html: everything that a page says, in one pass over the logs.
#pragma once

#include <string>
#include <vector>

namespace gpuflight::cli {

// Exit code. Throws UsageError where this build cannot make pages, Failure where the file cannot be written.
int write_report_page(const std::string& file, const std::vector<std::string>& logs);

}  // namespace gpuflight::cli
