// Which logs are read and which of their kernels are spoken of: what explain and occupancy have in common.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "analysis/kernel_study.h"
#include "command_line.h"

namespace gpuflight::cli {

class KernelChoice {
 public:
  explicit KernelChoice(const char* verb) : verb_(verb) {}

  // LOG..., --kernel, --top, --all. The last of several words is a KERNEL if it is no file.
  void add_options(CLI::App& app, bool logs_required = true);

  bool has_logs() const { return !words_.empty(); }
  bool names_kernels() const { return !kernels_.empty(); }

  // False: not one event could be read; why is said on stderr.
  bool scan(analysis::KernelStudy& study);

  // Most time first: those named, or the first ones that make up most of the time. Throws Failure when none matches.
  std::vector<analysis::StudiedConfig> chosen(const analysis::KernelStudy& study, std::size_t* left_out,
                                              double* left_out_share) const;

 private:
  const char* verb_;
  std::vector<std::string> words_, kernels_;
  std::size_t top_ = 0;
  bool all_ = false;
};

}  // namespace gpuflight::cli
