#include "analysis/activity_tables.h"

#include "event/api_call.h"
#include "event/plausible_time.h"

namespace gpuflight::analysis {
namespace {

using event::ApiCall;

CallKind kind_of(const event::ApiCallFacts& facts) {
  switch (facts.kind) {
    case event::ApiKind::kSync: return CallKind::kSync;
    case event::ApiKind::kCopy: return CallKind::kCopy;
    case event::ApiKind::kFree: return CallKind::kFree;
    case event::ApiKind::kFill: return CallKind::kFill;
    case event::ApiKind::kAlloc: return CallKind::kAlloc;
    case event::ApiKind::kEdge: return CallKind::kEdge;
    case event::ApiKind::kOther: break;
  }
  return CallKind::kOther;
}

// Stream-ordered and asynchronous forms do not wait; edges and prefetches are orders for later.
bool may_wait(std::string_view name, CallKind kind) {
  if (kind == CallKind::kSync) return true;
  const bool waits_at_times = kind == CallKind::kAlloc || kind == CallKind::kFree || kind == CallKind::kCopy;
  return waits_at_times && name.find("Async") == std::string_view::npos;
}

const char* word(const char* name) { return name != nullptr ? name : "unknown"; }

}  // namespace

std::optional<double> Transfers::bytes_per_second() const {
  if (gpu.total_ns <= 0) return std::nullopt;
  return static_cast<double>(timed_bytes) * 1e9 / static_cast<double>(gpu.total_ns);
}

template <class Event>
void ActivityTables::add_transfer(Transfers& row, const Event& event) {
  ++row.count;
  row.bytes += event.bytes;
  if (event.origin.call_ns) row.call.add(*event.origin.call_ns);
  const event::MaybeNs duration = event::elapsed(event.start_ns, event.end_ns);
  if (duration && *duration >= 0) {
    row.gpu.add(*duration, budget_);
    row.timed_bytes += event.bytes;
    if (const auto queue = event::elapsed(event.origin.launch_ns, event.start_ns)) row.queue.add(*queue);
  }
  if (GraphRow* const of = event.graph ? graph(event.graph) : nullptr) {
    ++of->transfers;
    of->transfer_time.add(duration.value_or(0));
  }
}

void ActivityTables::add(const log::MemcpyLine& line) {
  const event::MemcpyEvent& copy = line.copy;
  CopyKey key{false, copy.kind, copy.source, copy.destination, copy.async, copy.source_device, copy.destination_device};
  if (copies_.size() >= kMostRows && !copies_.contains(key)) {
    key = CopyKey();
    key.others = true;
  }
  add_transfer(copies_[key], copy);
  if (!copy.origin.call_ns && !copy.origin.status) return;  // nobody's call
  if (copy.graph) return;
  const std::string name = std::string("copy ") + word(event::kCopyKindNames[static_cast<std::size_t>(copy.kind)]) +
                           (copy.async ? " async" : "");
  add_call(call(name, CallKind::kCopy, !copy.async), copy.origin.call_ns, copy.origin.status);
}

void ActivityTables::add(const log::MemsetLine& line) {
  const event::MemsetEvent& fill = line.fill;
  add_transfer(fills_[{fill.memory, fill.async}], fill);
  if ((!fill.origin.call_ns && !fill.origin.status) || fill.graph) return;
  add_call(call(fill.async ? "fill async" : "fill", CallKind::kFill, false), fill.origin.call_ns, fill.origin.status);
}

void ActivityTables::add(const log::MemoryLine& line) {
  const event::MemoryEvent& memory = line.memory;
  const bool alloc = memory.operation == event::MemoryEvent::Operation::kAlloc;
  const CallKind kind = alloc ? CallKind::kAlloc : CallKind::kFree;
  add_call(call(line.call, kind, may_wait(line.call, kind)), memory.call_ns, memory.status);
  const std::pair<PerLog, MemoryKey> key{log_, {memory.device, memory.kind, memory.pool.value_or(0)}};
  if (memory_.size() >= kMostRows && !memory_.contains(key)) {
    ++left_out_;
    return;
  }
  MemoryRow& row = memory_[key];
  if (memory.status.value_or(0) != 0) {
    ++row.failed;
    return;
  }
  ++(alloc ? row.allocs : row.frees);
  (alloc ? row.allocated_bytes : row.freed_bytes) += memory.bytes.value_or(0);
  if (!alloc && !memory.bytes) ++row.unseen_frees;
  if (memory.total_bytes) row.live_bytes = memory.total_bytes;
  if (memory.peak_bytes && *memory.peak_bytes >= row.peak_bytes.value_or(0)) row.peak_bytes = memory.peak_bytes;
}

void ActivityTables::add(const log::StreamEdgeLine& line) {
  const bool wait = line.edge.operation == event::StreamEdge::Operation::kWait;
  add_call(call(wait ? "cuStreamWaitEvent" : "cuEventRecord", CallKind::kEdge, false), line.edge.call_ns,
           line.edge.status);
}

void ActivityTables::add(const log::GraphLaunchLine& line) {
  const event::GraphLaunch& launch = line.launch;
  if (launch.captured) return;
  add_call(call("cuGraphLaunch", CallKind::kGraphLaunch, false), launch.call_ns, launch.status);
  GraphRow* const row = graph(launch.graph);
  if (row == nullptr) return;
  ++row->launches;
  if (launch.status.value_or(0) != 0) ++row->failed;
  if (launch.call_ns) row->call.add(*launch.call_ns);
  if (const auto duration = event::elapsed(launch.start_ns, launch.end_ns)) row->gpu.add(*duration, budget_);
}

void ActivityTables::add(const log::ApiLine& line, bool sync) {
  const event::ApiCallFacts& facts = event::facts(static_cast<event::ApiCall>(line.call.call));
  const CallKind kind = sync ? CallKind::kSync : line.call.call == 0 ? CallKind::kOther : kind_of(facts);
  add_call(call(line.name, kind, may_wait(line.name, kind)), line.call.call_ns, line.call.status);
}

void ActivityTables::add_launch(const event::KernelLaunch& launch, const std::optional<std::int64_t>& duration_ns) {
  if (launch.graph) {
    if (GraphRow* const row = graph(launch.graph)) {
      ++row->kernels;
      row->kernel_time.add(duration_ns.value_or(0));
    }
  }
  if (!launch.call_ns && !launch.status) return;
  if (launch.graph_node) return;
  if (launches_ == nullptr) launches_ = &call(kKernelLaunches, CallKind::kLaunch, false);
  add_call(*launches_, launch.call_ns, launch.status);
}

CallRow& ActivityTables::call(std::string_view name, CallKind kind, bool waits) {
  if (const auto known = calls_.find(name); known != calls_.end()) return known->second;
  const bool room = calls_.size() < kMostCalls || name == kKernelLaunches;
  CallRow& row = calls_[std::string(room ? name : kOtherCalls)];
  row.kind = room ? kind : CallKind::kOther;
  row.may_wait = room && waits;
  return row;
}

void ActivityTables::add_call(CallRow& row, const event::MaybeNs& call_ns, const event::MaybeStatus& status) {
  ++row.count;
  if (status.value_or(0) != 0) ++row.failed;
  if (call_ns) row.host.add(*call_ns, budget_);
}

GraphRow* ActivityTables::graph(event::GraphId id) {
  const std::pair<PerLog, std::uint32_t> key{log_, id.value};
  if (graphs_.size() >= kMostRows && !graphs_.contains(key)) {
    ++left_out_;
    return nullptr;
  }
  return &graphs_[key];
}

}  // namespace gpuflight::analysis
