#include "report/explain_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/advice_text.h"
#include "report/kernel_name.h"
#include "report/ledger_text.h"
#include "report/quantity.h"

namespace gpuflight::report {
namespace {

using analysis::Doubt;
using analysis::Explanation;
using analysis::Finding;
using analysis::GridFacts;
using analysis::Rule;
using analysis::Silence;
using analysis::StudiedConfig;

struct Paint {
  bool on;
  const char* bold() const { return on ? "\033[1m" : ""; }
  const char* warn() const { return on ? "\033[33m" : ""; }
  const char* off() const { return on ? "\033[0m" : ""; }
};

std::string launches_text(std::uint64_t launches) {
  return count_text(launches) + (launches == 1 ? " launch" : " launches");
}

std::string waves_text(const GridFacts& grids) {
  if (!grids.waves.known) return {};
  if (grids.waves.single()) return fmt::format("{:.2f} waves", grids.waves.min);
  return fmt::format("{:.2f} to {:.2f} waves", grids.waves.min, grids.waves.max);
}

std::string grid_text(const GridFacts& grids) {
  if (!grids.blocks.known) return {};
  std::string text = grids.blocks.single() ? "grid " + dim_text(grids.grid)
                                           : fmt::format("grids of {} to {} blocks", count_text(grids.blocks.min),
                                                         count_text(grids.blocks.max));
  if (const std::string waves = waves_text(grids); !waves.empty()) text += " (" + waves + ")";
  return text;
}

std::string board_text(const StudiedConfig& config) {
  if (!config.board) return "a board that the log does not describe";
  return fmt::format("{} (sm_{}{}, {} SMs)", printable(config.board->name), config.board->compute_major,
                     config.board->compute_minor, config.board->sm_count);
}

std::string numbers_text(const StudiedConfig& config, double share, bool by_gpu_time) {
  std::string text = fmt::format("{} of {}, {}", percent_text(share, 1), by_gpu_time ? "GPU time" : "launches",
                                 launches_text(config.launches));
  if (const auto mean = config.gpu.mean_ns()) text += ", " + duration_text(*mean) + " each on the GPU";
  if (config.failed > 0) text += fmt::format(", {} refused by the driver", count_text(config.failed));
  return text;
}

std::string of_launches(const Finding& finding, std::uint64_t all) {
  if (finding.launches >= all) return {};
  return fmt::format(" in {} of {}", count_text(finding.launches), launches_text(all));
}

std::string bound_text(const Finding& finding) {
  if (!finding.bound_share) return {};
  std::string text = fmt::format("at most {} of its time", percent_text(*finding.bound_share, 1));
  if (finding.bound_ns) text += fmt::format(" ({})", duration_text(*finding.bound_ns));
  return text;
}

std::string tail_text(const Finding& finding, const StudiedConfig& config) {
  return fmt::format(
      "the last wave of blocks is not full{}: it leaves {} idle if all blocks take equally long. A grid of "
      "whole waves, or blocks that loop over the work, {} {}",
      of_launches(finding, config.grids.placed), percent_text(finding.value, 1) + " of the blocks' places",
      "would save", bound_text(finding));
}

std::string small_grid_text(const Finding& finding, const StudiedConfig& config) {
  const std::int32_t sms = config.board ? config.board->sm_count : 0;
  return fmt::format(
      "fewer blocks than the board's {} SMs{}: {} of the SMs have none. The same work in more blocks would "
      "save {}",
      sms, of_launches(finding, config.grids.placed), percent_text(finding.value, 1), bound_text(finding));
}

std::string finding_text(const Finding& finding, const Explanation& kernel) {
  const StudiedConfig& config = kernel.config;
  switch (finding.rule) {
    case Rule::kLowOccupancy:
      return fmt::format("theoretical occupancy is {}, below 80%", percent_text(finding.value, 1));
    case Rule::kTail:
      return tail_text(finding, config);
    case Rule::kSmallGrid:
      return small_grid_text(finding, config);
    case Rule::kPartialWarp:
      return fmt::format(
          "a block of {} threads does not fill its last warp: {} of the lanes never work. Take a multiple "
          "of 32",
          config.shape.block.count(), percent_text(finding.value, 1));
    case Rule::kLocalMemory:
      return fmt::format(
          "{:.0f} B of local memory a thread: spilled registers or local arrays, which cost memory traffic. "
          "nvcc -Xptxas -v tells which",
          finding.value);
    case Rule::kLaunchBound: {
      const auto gpu = config.gpu.mean_ns(), call = config.call.mean_ns();
      return fmt::format(
          "launch-bound{}: {} on the GPU, {} in the launch call on average. The GPU waits for the host for "
          "{} at most; a CUDA graph, or fewer and longer kernels",
          of_launches(finding, config.short_launches.compared), duration_text(gpu.value_or(0)),
          duration_text(call.value_or(0)), duration_text(finding.bound_ns.value_or(0)));
    }
  }
  return {};
}

const char* doubt_text(Doubt doubt) {
  switch (doubt) {
    case Doubt::kGridFits:
      return "may not help: the grid runs at once as it is, another block would find no work";
    case Doubt::kHighOccupancy:
      return "may not help: from 80% on occupancy is seldom what a kernel waits for";
    case Doubt::kNone:
      return "whether it is faster only a measurement tells";
  }
  return "";
}

const char* silence_text(Silence silence) {
  switch (silence) {
    case Silence::kNone:
      return "";
    case Silence::kNoDetails:
      return "no advice: recorded without details=on, so without registers and shared memory";
    case Silence::kNoBoard:
      return "no advice: the log does not describe the device";
    case Silence::kUnknownFacts:
      return "no advice: the driver did not tell registers or shared memory";
    case Silence::kDisagrees:
      return "no advice: the occupancy model gives other blocks than the log, its what-ifs would be guesses";
  }
  return "";
}

std::vector<std::string> rule_lines(const Finding& finding, const Explanation& kernel) {
  return {finding_text(finding, kernel), std::string("rule: ") + analysis::rule_source(finding.rule)};
}

std::string launch_text(const StudiedConfig& config) {
  std::string shape = config.config_known ? scenario_text(config.kernel, config.shape) : "configuration not known";
  if (const std::string grid = grid_text(config.grids); !grid.empty()) shape += ", " + grid;
  return shape + " on " + board_text(config);
}

// Empty: not known.
std::string limited_text(const event::Occupancy& now) {
  if (now.max_active_blocks < 0) return {};
  return fmt::format("Theoretical occupancy {}, limited by {}: {}", percent_text(occupancy_value(now), 1),
                     limiter_words(now.limiters), resident_text(now));
}

const event::Occupancy& present(const Explanation& kernel) {
  return kernel.advice ? kernel.advice->now : kernel.config.occupancy;
}

// Empty: there is nothing better, or it is not known.
std::string best_text(const Explanation& kernel) {
  if (!kernel.advice || !kernel.advice->at_best_block) return {};
  const event::Occupancy& best = *kernel.advice->at_best_block;
  if (occupancy_value(best) <= occupancy_value(present(kernel))) return {};
  return fmt::format("Best possible with these registers and this shared memory {}, in blocks of {}",
                     percent_text(occupancy_value(best), 1), kernel.advice->best_block);
}

std::string advice_heading(const Explanation& kernel) {
  if (kernel.silence != Silence::kNone) return silence_text(kernel.silence);
  if (kernel.advice->advice.empty()) return {};
  return fmt::format("What gains a block on an SM ({}):", doubt_text(kernel.doubt));
}

class Writer {
 public:
  Writer(const ExplainOptions& options) : options_(options), paint_{options.colour} {}

  void kernel(const Explanation& kernel, std::size_t number, const std::string& name, bool by_gpu_time) {
    const StudiedConfig& config = kernel.config;
    out_ += fmt::format("{}{}. {}{}\n", paint_.bold(), number, name, paint_.off());
    line(numbers_text(config, config.share, by_gpu_time), 3);
    line(launch_text(config), 3);
    out_ += "\n";
    occupancy(kernel);
    for (const Finding& finding : kernel.findings) {
      bullet(rule_lines(finding, kernel));
    }
    advice(kernel);
    out_ += "\n";
  }

  void line(const std::string& text, std::size_t indent) {
    out_ += std::string(indent, ' ') + wrapped(text, options_.width, indent) + "\n";
  }
  void note(const std::string& text) { out_ += paint_.warn() + wrapped(text, options_.width, 0) + paint_.off() + "\n"; }
  std::string& out() { return out_; }

 private:
  void occupancy(const Explanation& kernel) {
    const std::string limited = limited_text(present(kernel));
    if (limited.empty()) return line("Theoretical occupancy is not known.", 3);
    line(limited, 3);
    for (const std::string& limit : limit_lines(present(kernel))) line_as_is(limit);
    if (const std::string best = best_text(kernel); !best.empty()) line(best, 3);
  }

  void advice(const Explanation& kernel) {
    if (const std::string heading = advice_heading(kernel); !heading.empty()) line(heading, 3);
    if (kernel.silence != Silence::kNone) return;
    for (const std::vector<std::string>& lines : advice_lines(*kernel.advice, kernel.scenario)) bullet(lines);
  }

  void line_as_is(const std::string& text) { out_ += "     " + text + "\n"; }

  void bullet(const std::vector<std::string>& lines) {
    const char* mark = "   * ";
    for (const std::string& text : lines) {
      out_ += mark + wrapped(text, options_.width, 5) + "\n";
      mark = "     ";
    }
  }

  const ExplainOptions& options_;
  Paint paint_;
  std::string out_;
};

void append_notes(Writer& writer, const analysis::LogSummary& logs) {
  if (logs.groups_full()) {
    writer.note("note: there are more configurations than are kept apart; the last ones are left out");
  }
  for (const analysis::LogFacts& log : logs.logs()) {
    const std::string of = logs.logs().size() > 1 ? " of " + printable(log.path) : "";
    if (log.broken_lines() > 0) {
      writer.note(fmt::format("note: {} lines{} could not be read", count_text(log.broken_lines()), of));
    }
    const std::string ledger = log.ledger ? ledger_line(*log.ledger) : std::string();
    if (!ledger.empty() && log.lost() > 0) writer.note(ledger + of);
  }
}

}  // namespace

KernelWords kernel_words(const Explanation& kernel, bool by_gpu_time) {
  const StudiedConfig& config = kernel.config;
  KernelWords words;
  words.numbers = numbers_text(config, config.share, by_gpu_time);
  words.launch = launch_text(config);
  words.occupancy = limited_text(present(kernel));
  words.best = best_text(kernel);
  for (const Finding& finding : kernel.findings) words.findings.push_back(rule_lines(finding, kernel));
  words.advice_heading = advice_heading(kernel);
  if (kernel.silence == Silence::kNone) words.advice = advice_lines(*kernel.advice, kernel.scenario);
  return words;
}

std::string explain_text(const ExplainedKernels& explained, const analysis::LogSummary& logs,
                         const ExplainOptions& options) {
  Writer writer(options);
  KernelNames names(std::max<std::size_t>(options.width, 40) - 4, options.full_names);
  std::size_t number = 0;
  for (const Explanation& kernel : explained.kernels) {
    writer.kernel(kernel, ++number, names.of(kernel.config.kernel.name), explained.by_gpu_time);
  }
  if (explained.kernels.empty()) writer.out() += "no kernel launches\n";
  if (explained.left_out > 0) {
    writer.line(fmt::format("{} more configuration{} with {} of {} (--all)", count_text(explained.left_out),
                            explained.left_out == 1 ? "" : "s", percent_text(explained.left_out_share, 1),
                            explained.by_gpu_time ? "GPU time" : "launches"),
                0);
  }
  append_notes(writer, logs);
  return writer.out();
}

}  // namespace gpuflight::report
