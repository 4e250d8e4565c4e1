// One pass over one log: lines become works and calls, these are put in order of time within a window, idle stretches
// are found and explained, and every rule is fed. Memory is bounded by the window and by fixed numbers of streams,
// threads, devices and configurations, whatever the log holds.
#pragma once

#include <map>
#include <memory>
#include <unordered_map>
#include <variant>
#include <vector>

#include "analysis/rules/gap_finder.h"
#include "analysis/rules/order_window.h"
#include "analysis/rules/rule.h"
#include "log/decoder.h"

namespace gpuflight::analysis::rules {

class TimelinePass final : public LogContext {
 public:
  static constexpr std::size_t kWindow = std::size_t{1} << 17;  // items held back; about 25 MB

  explicit TimelinePass(std::vector<std::unique_ptr<Rule>> rules, std::size_t window = kWindow);

  void add(const log::LogEvent& event, std::uint32_t file, std::uint64_t line);
  // Everything that is held back, then what the rules found.
  void finish(std::vector<Finding>& findings);
  const LogTotals& totals() const { return totals_; }
  // The first collectives (kernels of NCCL), by their start.
  const std::vector<EventRef>& collectives() const { return collectives_; }
  const Evidence& longest() const { return longest_; }

  const LaunchConfig* config(std::uint32_t row) const override;
  const event::StreamInfo* stream(std::uint32_t stream) const override;
  const event::DeviceInfo* device(std::int32_t device) const override;

 private:
  using Item = std::variant<GpuWork, HostCall>;

  void add_kernel(const log::KernelEventLine& line);
  void add_late_time(const log::KernelTimeLine& line);
  void add_level(const event::LevelEvent& level);
  void add_graph(const log::GraphLaunchLine& line);
  void add_copy(const log::MemcpyLine& line);
  void add_fill(const log::MemsetLine& line);
  template <class Event, class Line>
  void add_transfer(GpuWork work, const Event& event, const Line& line);
  void add_memory(const log::MemoryLine& line);
  void add_api(const log::ApiLine& line, bool sync);
  void add_edge(const log::StreamEdgeLine& line);
  std::uint32_t config_row(const log::KernelEventLine& line);
  EventRef ref(event::Seq seq, std::int64_t at_ns) const { return {file_, line_, seq.value, at_ns}; }
  void put_work(GpuWork work, const event::MaybeNs& start, const event::MaybeNs& end);
  void put_call(HostCall call);
  bool spend(std::int64_t ns);
  void put_copy_call(const GpuWork& work, const event::WorkOrigin& origin, std::uint32_t context);
  void give(Item& item);
  void give_work(GpuWork& work);
  void give_call(const HostCall& call);

  std::vector<std::unique_ptr<Rule>> rules_;
  OrderWindow<Item> window_;
  GapFinder gaps_;
  LogTotals totals_;
  std::int64_t left_ns_ = std::int64_t{1}
                          << 61;  // all sums of times together stay below: a hostile log must not overflow
  std::uint32_t file_ = 0;
  std::uint64_t line_ = 0;
  std::vector<LaunchConfig> configs_;
  std::vector<bool> is_collective_;                            // by row of configs_
  std::unordered_map<std::uint32_t, std::uint32_t> config_rows_;  // by the log's number
  std::unordered_map<std::uint32_t, event::StreamInfo> streams_;
  std::unordered_map<std::uint32_t, std::int64_t> stream_ends_;   // of what was given so far
  std::map<std::int32_t, event::DeviceInfo> devices_;
  std::vector<EventRef> collectives_;
  Evidence longest_;
};

}  // namespace gpuflight::analysis::rules
