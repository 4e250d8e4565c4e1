#include "kernel_choice.h"

#include <fmt/format.h>

#include <filesystem>

#include "event_filter.h"
#include "failure.h"
#include "log_scan.h"
#include "report/kernel_name.h"
#include "terminal.h"

namespace gpuflight::cli {
namespace {

// Kernels below this share say nothing worth reading, and what is left when so much has been told neither.
constexpr double kWorthIt = 0.01, kEnough = 0.95;
constexpr std::size_t kMostShown = 10;

bool is_file(const std::string& word) {
  std::error_code error;
  return word == "-" || std::filesystem::exists(word, error);
}

bool looks_like_a_path(const std::string& word) {
  return word.find(".ndjson") != std::string::npos || word.ends_with(".flight") ||
         (word.find('/') != std::string::npos && !(word.size() > 2 && word.front() == '/' && word.back() == '/'));
}

class StudyTaker final : public EventTaker {
 public:
  explicit StudyTaker(analysis::KernelStudy& study) : study_(study) {}
  void begin_log(const std::string& path) override { study_.begin_log(path); }
  void add(const log::LogEvent& event) override { study_.add(event); }
  void end_log(const log::ReadStats& stats) override { study_.end_log(stats); }

 private:
  analysis::KernelStudy& study_;
};

}  // namespace

void KernelChoice::add_options(CLI::App& app, bool logs_required) {
  auto* logs = app.add_option("LOG", words_, "Logs, flight files, folders of logs, or - for standard input");
  logs->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  if (logs_required) logs->required();
  app.add_option("--kernel", kernels_, "Only kernels whose name matches: a glob, /regex/, or a part. Several: any")
      ->type_name("NAME")
      ->allow_extra_args(false);
  app.add_option("--top", top_, "Only the first N configurations")->type_name("N");
  app.add_flag("--all", all_, "Every configuration, however small its share");
}

bool KernelChoice::scan(analysis::KernelStudy& study) {
  if (words_.size() > 1 && !is_file(words_.back()) && !looks_like_a_path(words_.back())) {
    kernels_.push_back(words_.back());
    words_.pop_back();
  }
  StudyTaker taker(study);
  std::vector<std::string> remarks;
  for (const LogInput& input : join_sessions(expand_logs(words_, &remarks))) {
    for (std::string& remark : scan_input(input, taker, true)) remarks.push_back(std::move(remark));
  }
  for (const std::string& remark : remarks) say("gpuflight: {}\n", remark);
  return !study.summary().logs().empty();
}

std::vector<analysis::StudiedConfig> KernelChoice::chosen(const analysis::KernelStudy& study, std::size_t* left_out,
                                                          double* left_out_share) const {
  EventFilter filter(verb_);
  for (const std::string& kernel : kernels_) filter.add_name(kernel);
  const std::vector<analysis::StudiedConfig> all = study.configs();
  std::vector<analysis::StudiedConfig> out;
  double told = 0;
  bool matched = false;
  for (const analysis::StudiedConfig& config : all) {
    const bool named = kernels_.empty() || filter.passes_name(config.kernel.name);
    matched = matched || named;
    const bool worth_it = !kernels_.empty() || all_ || top_ > 0 ||
                          (out.size() < kMostShown && (out.empty() || (told < kEnough && config.share >= kWorthIt)));
    if (named && worth_it && (top_ == 0 || out.size() < top_)) {
      out.push_back(config);
      told += config.share;
    } else if (named && left_out != nullptr) {
      ++*left_out;
      *left_out_share += config.share;
    }
  }
  if (!kernels_.empty() && !matched) {
    throw Failure(
        fmt::format("no kernel matches '{}'; 'gpuflight report' shows the names", report::printable(kernels_.front())));
  }
  return out;
}

}  // namespace gpuflight::cli
