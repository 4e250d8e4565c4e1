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
  std::string activity(const log::LogEvent& event) const;
  std::string pending(const log::KernelPendingLine& line);
  std::string other(std::int64_t time_ns, event::StreamId stream, const event::MaybeNs& gpu_ns,
                    const event::MaybeNs& call_ns, const event::MaybeStatus& status, std::string what) const;
  std::string painted(const char* colour, std::string text) const;

  report::KernelNames names_;
  bool colour_;
  bool calls_;  // also calls and work beside kernels
};

}  // namespace gpuflight::cli
