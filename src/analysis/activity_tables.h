// What the GPU did beside kernels and what the host did for it: copies and fills by kind, calls by name, memory by kind,
// graphs. Rows are few by nature; a bound holds for hostile logs, beyond it one row takes the rest.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "analysis/launch_group.h"
#include "event/activity.h"
#include "log/decoder.h"

namespace gpuflight::analysis {

struct CopyKey {
  bool others = false;  // the row that takes what is beyond the bound
  event::CopyKind kind = event::CopyKind::kUnknown;
  event::MemoryKind source = event::MemoryKind::kUnknown, destination = event::MemoryKind::kUnknown;
  bool async = false;
  std::optional<std::int32_t> source_device, destination_device;  // of peer copies
  auto operator<=>(const CopyKey&) const = default;
};

struct FillKey {
  event::MemoryKind memory = event::MemoryKind::kUnknown;
  bool async = false;
  auto operator<=>(const FillKey&) const = default;
};

// Of copies or fills of one kind.
struct Transfers {
  std::uint64_t count = 0, bytes = 0;
  std::uint64_t timed_bytes = 0;  // of those whose time is known
  SpreadDurations gpu;
  Durations call, queue;
  std::optional<double> bytes_per_second() const;  // while they ran, not counting what was between them
};

enum class CallKind : std::uint8_t { kSync, kAlloc, kFree, kCopy, kFill, kLaunch, kGraphLaunch, kEdge, kOther };
inline constexpr std::array<const char*, 9> kCallKindNames = {"sync", "alloc",  "free",         "copy", "fill",
                                                              "launch", "graph_launch", "edge", "other"};

struct CallRow {
  CallKind kind = CallKind::kOther;
  // The host may wait in it for the GPU: synchronisations, and those that wait as a side effect (cuMemAlloc, cuMemFree,
  // blocking copies).
  bool may_wait = false;
  std::uint64_t count = 0, failed = 0;
  SpreadDurations host;
};

struct MemoryKey {
  std::int32_t device = -1;
  event::AllocationKind kind = event::AllocationKind::kDevice;
  std::uint64_t pool = 0;
  auto operator<=>(const MemoryKey&) const = default;
};

struct MemoryRow {
  std::uint64_t allocs = 0, frees = 0, failed = 0;
  std::uint64_t allocated_bytes = 0, freed_bytes = 0;
  std::uint64_t unseen_frees = 0;           // of what was allocated before the recording
  std::optional<std::uint64_t> live_bytes;  // after the latest call
  std::optional<std::uint64_t> peak_bytes;
};

struct GraphRow {
  std::uint64_t launches = 0, failed = 0;
  Durations call;
  SpreadDurations gpu;                         // as a whole, where the graph was traced so
  std::uint64_t kernels = 0, transfers = 0;    // nodes that ran
  Durations kernel_time, transfer_time;        // of these
};
inline constexpr const char* kOtherCalls = "(other calls)";
inline constexpr const char* kKernelLaunches = "(kernel launches)";

class ActivityTables {
 public:
  explicit ActivityTables(event::SketchBudget& budget) : budget_(budget) {}

  // Graphs are numbered within a log, memory is of its process.
  void begin_log(std::size_t log) { log_ = log; }

  void add(const log::MemcpyLine& line);
  void add(const log::MemsetLine& line);
  void add(const log::MemoryLine& line);
  void add(const log::StreamEdgeLine& line);
  void add(const log::GraphLaunchLine& line);
  void add(const log::ApiLine& line, bool sync);
  void add_launch(const event::KernelLaunch& launch, const std::optional<std::int64_t>& duration_ns);

  const std::map<CopyKey, Transfers>& copies() const { return copies_; }
  const std::map<FillKey, Transfers>& fills() const { return fills_; }
  const std::map<std::string, CallRow, std::less<>>& calls() const { return calls_; }
  using PerLog = std::size_t;  // number of the log, from 0
  const std::map<std::pair<PerLog, MemoryKey>, MemoryRow>& memory() const { return memory_; }
  const std::map<std::pair<PerLog, std::uint32_t>, GraphRow>& graphs() const { return graphs_; }
  std::uint64_t left_out() const { return left_out_; }  // memory events and launches of graphs beyond the bound

 private:
  static constexpr std::size_t kMostRows = 4096;
  static constexpr std::size_t kMostCalls = 256;

  template <class Event>
  void add_transfer(Transfers& row, const Event& event);
  CallRow& call(std::string_view name, CallKind kind, bool may_wait);
  void add_call(CallRow& row, const event::MaybeNs& call_ns, const event::MaybeStatus& status);
  GraphRow* graph(event::GraphId id);

  event::SketchBudget& budget_;
  std::size_t log_ = 0;
  std::map<CopyKey, Transfers> copies_;
  std::map<FillKey, Transfers> fills_;
  std::map<std::string, CallRow, std::less<>> calls_;
  CallRow* launches_ = nullptr;  // row of calls_
  std::map<std::pair<PerLog, MemoryKey>, MemoryRow> memory_;
  std::map<std::pair<PerLog, std::uint32_t>, GraphRow> graphs_;
  std::uint64_t left_out_ = 0;
};

}  // namespace gpuflight::analysis
