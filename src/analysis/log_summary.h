// One pass over one or more logs, into groups of launches. Memory grows with the number of groups and configurations,
// both bounded, never with the number of lines.
//
//   LogSummary summary(GroupBy::kKernel);
//   for each log: summary.begin_log(path); for each event: summary.add(event); summary.end_log(reader.stats());
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analysis/activity_tables.h"
#include "analysis/device_timeline.h"
#include "analysis/graph_replays.h"
#include "analysis/launch_group.h"
#include "analysis/log_facts.h"

namespace gpuflight::analysis {

enum class GroupBy : std::uint8_t { kKernel, kConfig, kStream, kThread, kDevice, kScope, kGraph };
inline constexpr std::array<const char*, 7> kGroupByNames = {"kernel", "config", "stream", "thread",
                                                             "device", "scope",  "graph"};
std::optional<GroupBy> group_by(std::string_view name);

struct SummaryLimits {
  std::size_t groups = 200'000;   // further ones are put together in one, labelled kOtherGroups
  std::size_t configs = 400'000;
  event::SketchBudget sketches = {};
};
inline constexpr const char* kOtherGroups = "(others: more groups than can be kept apart)";
inline constexpr const char* kUnknownKernel = "(unknown kernel)";
inline constexpr const char* kNoScope = "(no scope)";
inline constexpr const char* kNoGraph = "(no graph)";

class LogSummary {
 public:
  explicit LogSummary(GroupBy by, SummaryLimits limits = {});

  void begin_log(const std::string& path);
  // Configurations added under different tags are told apart: kinds of boards, which an ordinal does not name.
  void set_config_tag(std::uint32_t tag) { config_tag_ = tag; }
  void add(const log::LogEvent& event);
  void end_log(const log::ReadStats& stats);

  GroupBy by() const { return by_; }
  const std::vector<LogFacts>& logs() const { return logs_; }
  const std::vector<LaunchGroup>& groups() const { return groups_; }
  // Row of groups() that the kernel event added last counts in; kNone: another event, or one that counts elsewhere.
  std::uint32_t group_of_last() const { return group_of_last_; }
  std::size_t kernels() const { return kernel_names_.size(); }
  LaunchGroup totals() const;  // of all groups; label empty
  bool groups_full() const { return groups_full_; }
  const ActivityTables& activity() const { return activity_; }
  bool has_times() const;  // of any log: the GPU's times of anything
  bool sampled() const;    // some kernels only have times, by option

  static constexpr std::uint32_t kNone = UINT32_MAX;

  // For who looks at grids: from now on kernels of graphs have a group as soon as their line comes, and what was run of
  // them is handed out by take_replays.
  struct Replay {
    std::uint32_t group;
    event::Dim3 grid;
    std::uint64_t times;
  };
  void collect_replays() { collecting_replays_ = true; }
  std::vector<Replay> take_replays() { return std::exchange(collected_, {}); }

 private:
  struct Sums {
    std::uint64_t count = 0, captured = 0, failed = 0, replayed = 0;
    std::uint64_t calls_timed = 0;  // that the time is of
    std::int64_t call_total_ns = 0;
    void add(const Sums& other);
    void subtract(const Sums& other);  // not below zero
  };
  // What the present log has told of one configuration so far.
  struct Told {
    std::size_t log = 0;  // number of the log, from 1; another one: nothing yet
    Sums all;
    std::uint64_t session_only = 0;  // launches that only the sum of the session has told of
    Sums dumped;          // black box: of these, by lines that the next summary of a second tells of again
  };
  struct Config {
    ConfigFacts facts;
    Told told;
    std::uint32_t kernel = kNone;  // row of kernel_names_
    std::optional<std::int32_t> device;
    std::uint32_t group = kNone;   // where the configuration alone decides it
  };
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  using TextIndex = std::unordered_map<std::string, std::uint32_t, TextHash, std::equal_to<>>;
  // What of a launch decides its group, beside its configuration.
  struct Place {
    std::uint32_t stream = 0;
    std::uint32_t thread = 0;
    const std::optional<std::string>* scope = nullptr;
    std::uint32_t graph = 0;
    bool known = true;  // false: a summary line, which says neither stream nor thread nor scope
  };

  std::uint32_t config_index(const event::KernelInfo& kernel, const event::LaunchShape& shape, ConfigFacts facts,
                             std::optional<std::int32_t> device);
  LaunchGroup& group_for(std::uint32_t config, const Place& place);
  std::uint32_t find_group(Config& config, const Place& place);
  std::uint32_t group_row(std::string_view key);
  void make_key(const Config& config, const Place& place);
  std::string label(const Config& config, const Place& place) const;
  std::string device_label(std::optional<std::int32_t> device) const;
  const event::DeviceInfo* device_of_log(std::optional<std::int32_t> device) const;
  std::string of_process() const;
  void add_kernel(const log::KernelEventLine& line);
  void add_summary(const log::KernelSummaryLine& line);
  void add_graph_kernel(const log::GraphKernelLine& line);
  void add_graph_launch(const log::GraphLaunchLine& line);
  void spread_replays();
  void add_activity(const log::LogEvent& event);
  void add_time(const log::KernelTimeLine& line);
  void add_work(std::int32_t device, DeviceTimeline::Work work, const event::MaybeNs& start, const event::MaybeNs& end);
  void note_untimed(event::Seq seq, std::uint32_t group, std::uint32_t config);
  Stratum* stratum(std::uint32_t group, std::uint32_t config);  // null: not kept apart
  void extrapolate();
  bool is_black_box() const;
  Told& told_of(std::uint32_t config);

  GroupBy by_;
  SummaryLimits limits_;
  std::vector<LogFacts> logs_;
  std::vector<LaunchGroup> groups_;
  TextIndex group_index_;
  std::vector<Config> configs_;
  TextIndex config_index_;
  std::vector<std::string> kernel_names_;
  TextIndex kernel_index_;
  std::unordered_map<std::uint64_t, Stratum> strata_;  // by group << 32 | configuration: which have met
  std::unordered_map<std::uint32_t, event::StreamInfo> streams_;  // of the present log
  std::unique_ptr<event::SketchBudget> budget_;  // at one place however the summary is moved
  ActivityTables activity_;
  GraphReplays replays_;
  std::vector<Replay> collected_;
  bool collecting_replays_ = false;
  std::map<std::int32_t, DeviceTimeline> timelines_;  // of the present log, by device; -1: not known
  // Kernels of the present log without times, of which a kernel_time may come: the latest of each place.
  struct Untimed {
    std::uint64_t seq = UINT64_MAX;
    std::uint32_t group = 0, config = 0;
  };
  std::vector<Untimed> untimed_;
  std::string key_;  // scratch
  std::int64_t summarised_until_ns_ = -1;  // of the present log, by summaries of seconds
  std::uint32_t group_of_last_ = kNone;
  std::uint32_t config_tag_ = 0;
  bool groups_full_ = false;
  bool strata_full_ = false;
};

}  // namespace gpuflight::analysis
