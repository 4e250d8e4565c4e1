// One event as one readable line: what `tail` prints.
#pragma once

#include <cstddef>
#include <string>

#include "log/decoder.h"
#include "report/kernel_name.h"

namespace gpuflight::cli {

class KernelLine {
 public:
  KernelLine(std::size_t width, bool full_names, bool colour, bool calls = false);

  std::string heading() const;
  // Each ends with a line end; "" for an event that is not shown.
  std::string render(const log::LogEvent& event);

 private:
  std::string kernel(const log::KernelEventLine& line);
  std::string graph(const log::GraphLaunchLine& line) const;
  std::string call(const log::ApiLine& line) const;
  std::string painted(const char* colour, std::string text) const;

  report::KernelNames names_;
  bool colour_;
  bool calls_;  // also calls that a thread may wait in
};

}  // namespace gpuflight::cli
