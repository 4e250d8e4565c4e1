// Rules over the timeline of one or more logs: from lines to findings, log by log, in bounded memory.
//
//   Analyzer analyzer(rules::default_rules());
//   for each log: analyzer.begin_log(path); for each line: analyzer.at(file, line), analyzer.add(event);
//   analyzer.end_log(); const Analysis found = analyzer.finish();
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/rules/rank_totals.h"
#include "analysis/rules/rule_table.h"
#include "analysis/rules/timeline_pass.h"

namespace gpuflight::analysis {

struct AnalyzedLog {
  std::string path;
  std::optional<event::SessionStart> session;
  std::map<std::int32_t, std::string> device_names;
  rules::LogTotals totals;
  std::int64_t offset_ns = 0;  // of its t0 after that of the earliest log
  std::uint64_t lines = 0, broken_lines = 0, summary_lines = 0, lost = 0;
  bool ended = false;
};

struct Analysis {
  std::vector<AnalyzedLog> logs;
  std::vector<std::string> files;             // what EventRef::file is a row of
  std::vector<rules::Finding> findings;       // worst first
};

class Analyzer {
 public:
  explicit Analyzer(std::vector<rules::ChosenRule> chosen);

  void begin_log(const std::string& path);
  void at(const std::string& file, std::uint64_t line);  // where the next event stands
  void add(const log::LogEvent& event);
  void end_log(const log::ReadStats& stats);
  Analysis finish();

 private:
  std::vector<rules::ChosenRule> chosen_;
  std::unique_ptr<rules::TimelinePass> pass_;  // of the present log
  Analysis analysis_;
  std::vector<rules::RankTotals> ranks_;
  std::uint32_t file_ = 0;
  std::uint64_t line_ = 0;
};

}  // namespace gpuflight::analysis
