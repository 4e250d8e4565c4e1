#include "report_page.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "analysis/analyzer.h"
#include "analysis/work_sample.h"
#include "command_line.h"
#include "failure.h"
#include "log_scan.h"
#include "report/html_report.h"
#include "report/kernel_name.h"
#include "report/quantity.h"
#include "terminal.h"
#ifdef GPUFLIGHT_HAS_OCCUPANCY
#include "report/kernel_page_json.h"
#endif

namespace gpuflight::cli {
namespace {

class PageTaker final : public EventTaker {
 public:
  PageTaker() : summary(analysis::GroupBy::kKernel), analyzer(analysis::rules::default_rules()) {}

  void begin_log(const std::string& path) override {
    summary.begin_log(path);
    analyzer.begin_log(path);
    works.begin_log();
#ifdef GPUFLIGHT_HAS_OCCUPANCY
    study.begin_log(path);
#endif
  }
  void at(const std::string& file, std::uint64_t line) override { analyzer.at(file, line); }
  void add(const log::LogEvent& event) override {
    summary.add(event);
    analyzer.add(event);
    works.add(event);
#ifdef GPUFLIGHT_HAS_OCCUPANCY
    study.add(event);
#endif
  }
  void end_log(const log::ReadStats& stats) override {
    summary.end_log(stats);
    analyzer.end_log(stats);
#ifdef GPUFLIGHT_HAS_OCCUPANCY
    study.end_log(stats);
#endif
  }

  // What explain says of the kernels that make up most of the time; rows of the page's table beyond have no curves.
  std::string occupancy_json() const {
#ifdef GPUFLIGHT_HAS_OCCUPANCY
    constexpr std::size_t kMost = 40;
    report::ExplainedKernels explained;
    explained.by_gpu_time = study.by_gpu_time();
    for (const analysis::StudiedConfig& config : study.configs()) {
      if (explained.kernels.size() < kMost) {
        explained.kernels.push_back(analysis::explain(config));
      } else {
        ++explained.left_out;
        explained.left_out_share += config.share;
      }
    }
    return report::kernel_page_json(explained, study.summary());
#else
    return {};
#endif
  }

  analysis::LogSummary summary;
  analysis::Analyzer analyzer;
  analysis::WorkSample works;
#ifdef GPUFLIGHT_HAS_OCCUPANCY
  analysis::KernelStudy study;
#endif
};

void write_file(const std::string& path, const std::string& text) {
  const auto fail = [&] {
    throw Failure(fmt::format("cannot write '{}': {}", report::printable(path), std::strerror(errno)));
  };
  std::FILE* const file = path == "-" ? stdout : std::fopen(path.c_str(), "wb");
  if (file == nullptr) fail();
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
  if (!written) fail();
  if (file != stdout && std::fclose(file) != 0) fail();
}

}  // namespace

int write_report_page(const std::string& file, const std::vector<std::string>& logs) {
  if (!report::can_render_html()) {
    throw Failure(
        "this gpuflight was built without uPlot, which draws the charts of a page; tools/setup.sh fetches it, then "
        "configure and build again");
  }
  PageTaker taker;
  std::vector<std::string> remarks;
  for (const LogInput& input : join_sessions(expand_logs(logs, &remarks))) {
    for (std::string& remark : scan_input(input, taker, true)) remarks.push_back(std::move(remark));
  }
  for (const std::string& remark : remarks) say("gpuflight: {}\n", remark);
  if (taker.summary.logs().empty()) return kExitFailure;
  taker.works.finish();
  const analysis::Analysis found = taker.analyzer.finish();
  const std::string page =
      report::render_html({taker.summary, found, taker.works, taker.occupancy_json(), GPUFLIGHT_VERSION,
                   analysis::rules::default_rules().size()});
  write_file(file, page);
  if (file != "-") {
    say("gpuflight: {} ({}); open it in a browser\n", report::printable(file), report::bytes_text(page.size()));
  }
  return kExitOk;
}

}  // namespace gpuflight::cli
