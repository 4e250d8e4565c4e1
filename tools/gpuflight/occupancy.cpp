// gpuflight occupancy: the calculator for any architecture, and recorded kernels on other boards. Needs no GPU.
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/what_if.h"
#include "command_line.h"
#include "config/parse_value.h"
#include "failure.h"
#include "kernel_choice.h"
#include "report/occupancy_report.h"
#include "terminal.h"
#include "verbs.h"

namespace gpuflight::cli {
namespace {

constexpr const char* kVerb = "occupancy";
constexpr const char* kExamples =
    "  gpuflight occupancy --arch sm_86 --regs 40 --block 256 --smem 16384\n"
    "  gpuflight occupancy --arch sm_80,sm_90,sm_100 --regs 64 --block 16x16 --dynamic 48K --curve block\n"
    "  gpuflight occupancy run.ndjson --kernel reduce --arch sm_80,sm_100\n"
    "  gpuflight occupancy --list\n";

struct Numbers {
  std::vector<std::string> archs;
  std::string block, cluster, shared = "0", dynamic = "0", curve;
  std::int32_t registers = -1, carveout = -1;
};

std::uint32_t part_of(std::string_view text, const char* option) {
  const auto value = config::parse_count(text);
  if (!value || *value == 0 || *value > UINT32_MAX) {
    throw UsageError(fmt::format("{} takes a number or XxYxZ, not '{}'", option, text), kVerb);
  }
  return static_cast<std::uint32_t>(*value);
}

// "256", "16x16", "8x8x4"
event::Dim3 dimensions(const std::string& text, const char* option) {
  event::Dim3 out;
  std::uint32_t* const parts[] = {&out.x, &out.y, &out.z};
  std::size_t at = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::size_t end = text.find_first_of("x,", at);
    *parts[i] = part_of(std::string_view(text).substr(at, end == std::string::npos ? end : end - at), option);
    if (end == std::string::npos) return out;
    at = end + 1;
  }
  throw UsageError(fmt::format("{} takes a number or XxYxZ, not '{}'", option, text), kVerb);
}

std::int32_t bytes_of(const std::string& text, const char* option) {
  const auto value = config::parse_bytes(text);
  if (!value || *value > (std::uint64_t{1} << 28)) {
    throw UsageError(fmt::format("{} takes bytes, 16384 or 16K, not '{}'", option, text), kVerb);
  }
  return static_cast<std::int32_t>(*value);
}

std::vector<const event::DeviceInfo*> boards_of(const std::vector<std::string>& names) {
  std::vector<const event::DeviceInfo*> out;
  for (const std::string& name : names) {
    const event::DeviceInfo* board = occupancy::find_architecture(name);
    if (board == nullptr) {
      std::vector<std::string> known;
      for (const occupancy::Architecture& arch : occupancy::architectures()) known.push_back(arch.name);
      throw UsageError(fmt::format("no architecture or board '{}'; there are {}", name, fmt::join(known, ", ")), kVerb);
    }
    out.push_back(board);
  }
  return out;
}

std::vector<analysis::WhatIf> calculate(const Numbers& numbers) {
  if (numbers.registers < 0 || numbers.block.empty()) {
    throw UsageError("without a log it takes --regs and --block", kVerb);
  }
  event::KernelInfo kernel;
  kernel.num_regs = numbers.registers;
  kernel.static_shared_bytes = bytes_of(numbers.shared, "--smem");
  event::LaunchShape shape;
  shape.block = dimensions(numbers.block, "--block");
  shape.dyn_shared_bytes = static_cast<std::uint32_t>(bytes_of(numbers.dynamic, "--dynamic"));
  shape.carveout = numbers.carveout;
  if (!numbers.cluster.empty()) shape.cluster = dimensions(numbers.cluster, "--cluster");
  std::vector<analysis::WhatIf> out;
  for (const event::DeviceInfo* board : boards_of(numbers.archs)) {
    out.push_back(analysis::what_if_on(*board, kernel, shape));
  }
  return out;
}

std::vector<analysis::KernelWhatIf> of_log(KernelChoice& choice, analysis::KernelStudy& study, const Numbers& numbers) {
  const std::vector<const event::DeviceInfo*> boards = boards_of(numbers.archs);
  std::vector<analysis::KernelWhatIf> out;
  for (const analysis::StudiedConfig& config : choice.chosen(study, nullptr, nullptr)) {
    out.push_back(analysis::what_if_elsewhere(config, boards));
  }
  return out;
}

void add_numbers(CLI::App& app, Numbers& numbers) {
  app.add_option("--arch", numbers.archs, "Architectures or boards: sm_86, sm_80,sm_100, h200 (--list)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME,...");
  app.add_option("--regs", numbers.registers, "Registers of a thread")->type_name("N")->check(CLI::Range(0, 1024));
  app.add_option("--block", numbers.block, "Threads of a block: 256, 16x16, 8x8x4")->type_name("N");
  app.add_option("--smem", numbers.shared, "Static shared memory of a block, bytes or 16K")->type_name("BYTES");
  app.add_option("--dynamic", numbers.dynamic, "Dynamic shared memory of a block")->type_name("BYTES");
  app.add_option("--cluster", numbers.cluster, "Blocks of a cluster: 2, 2x2")->type_name("N");
  app.add_option("--carveout", numbers.carveout, "Preferred shared memory in percent of the SM's most")
      ->type_name("PERCENT")
      ->check(CLI::Range(0, 100));
  app.add_option("--curve", numbers.curve, "Draw occupancy over: block, regs, smem")
      ->check(CLI::IsMember({"block", "regs", "smem"}))
      ->type_name("WHAT");
}

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

}  // namespace

int occupancy_verb(const Arguments& arguments) {
  KernelChoice choice(kVerb);
  Numbers numbers;
  std::string colour = "auto";
  report::OccupancyOptions options;
  options.width = terminal_width();
  bool json = false, list = false;

  CLI::App app;
  describe(app, kVerb, "[OPTIONS] [LOG... [KERNEL]]",
           "Occupancy of a kernel on any architecture, by its numbers or as it was recorded: limits in blocks, the\n"
           "smallest changes that gain a block, curves. Needs no GPU; without a log it takes --regs and --block.",
           kExamples);
  choice.add_options(app, false);
  add_numbers(app, numbers);
  app.add_flag("--list", list, "The architectures, their limits, and where these come from");
  app.add_flag("--json", json, "As JSON, with the data of all curves (docs/CLI.md)");
  app.add_flag("--full-names", options.full_names, "Names with arguments and parameters, however long");
  add_width_option(app, options.width, "text");
  add_color_option(app, colour);
  if (const auto done = parse(app, arguments)) return *done;
  options.colour = wants_colour(colour);
  if (!numbers.curve.empty()) options.curve = occupancy::curve_over(numbers.curve);
  if (list) {
    print(json ? report::architectures_json() : report::architectures_text(options.width));
    return kExitOk;
  }
  if (numbers.archs.empty()) throw UsageError("--arch is missing: for which architecture?", kVerb);
  boards_of(numbers.archs);  // a wrong name is said first, and before a long log is read
  if (!choice.has_logs()) {
    const std::vector<analysis::WhatIf> boards = calculate(numbers);
    print(json ? report::calculation_json(boards) : report::calculation_text(boards, options));
    return kExitOk;
  }
  if (numbers.registers >= 0 || !numbers.block.empty()) {
    throw UsageError("--regs and --block are for a calculation without a log, which has its own", kVerb);
  }
  analysis::KernelStudy study;
  if (!choice.scan(study)) return kExitFailure;
  const std::vector<analysis::KernelWhatIf> kernels = of_log(choice, study, numbers);
  print(json ? report::elsewhere_json(kernels, study.by_gpu_time())
             : report::elsewhere_text(kernels, study.by_gpu_time(), options));
  return kExitOk;
}

}  // namespace gpuflight::cli
