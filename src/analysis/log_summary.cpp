#include "analysis/log_summary.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "event/plausible_time.h"

namespace gpuflight::analysis {
namespace {

constexpr std::size_t kMaxStreams = 100'000;

template <class T>
void append_bytes(std::string& key, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  key.append(bytes, sizeof(T));
}

std::optional<std::int32_t> known(std::int32_t value) {
  return value < 0 ? std::nullopt : std::optional<std::int32_t>(value);
}

template <class Line>
ConfigFacts facts_of(const Line& line) {
  ConfigFacts facts;
  facts.num_regs = known(line.kernel.num_regs);
  facts.static_shared_bytes = known(line.kernel.static_shared_bytes);
  facts.local_bytes_per_thread = known(line.kernel.local_bytes_per_thread);
  facts.shape = line.shape;
  facts.shape_known = line.config_known;
  if (!line.details) return facts;
  facts.max_active_blocks = known(line.occupancy.max_active_blocks);
  facts.occupancy = line.occupancy_ratio;
  facts.limit_occupancy = line.limit_occupancy;
  if (line.occupancy.source != event::OccupancySource::kNone) {
    facts.limiter = line.occupancy.limiter;
    facts.limiters = line.occupancy.limiters;
  }
  return facts;
}

}  // namespace

std::optional<GroupBy> group_by(std::string_view name) {
  for (std::size_t i = 0; i < kGroupByNames.size(); ++i) {
    if (name == kGroupByNames[i]) return static_cast<GroupBy>(i);
  }
  return std::nullopt;
}

LogSummary::LogSummary(GroupBy by, SummaryLimits limits)
    : by_(by), limits_(limits), budget_(std::make_unique<event::SketchBudget>(limits.sketches)), activity_(*budget_) {}

void LogSummary::begin_log(const std::string& path) {
  logs_.emplace_back();
  logs_.back().path = path;
  activity_.begin_log(logs_.size() - 1);
  streams_.clear();
  timelines_.clear();
  untimed_.clear();
  replays_.begin_log();
  summarised_until_ns_ = -1;
}

void LogSummary::end_log(const log::ReadStats& stats) {
  spread_replays();
  LogFacts& log = logs_.back();
  log.read = stats;
  if (log.end) log.graph_launches = std::max(log.graph_launches, log.end->graph_launches);
  for (auto& [device, timeline] : timelines_) log.busy.push_back({known(device), timeline.times()});
  timelines_.clear();
  if (sampled()) extrapolate();
}

Stratum* LogSummary::stratum(std::uint32_t group, std::uint32_t config) {
  const auto known = strata_.find(std::uint64_t{group} << 32 | config);
  return known != strata_.end() ? &known->second : nullptr;
}

void LogSummary::extrapolate() {
  if (strata_full_) return;
  std::unordered_map<std::uint32_t, std::vector<const Stratum*>> of_group;
  for (const auto& [key, one] : strata_) of_group[static_cast<std::uint32_t>(key >> 32)].push_back(&one);
  for (const auto& [row, strata] : of_group) groups_[row].extrapolated = Extrapolation::of(strata);
}

void LogSummary::add(const log::LogEvent& event) {
  group_of_last_ = kNone;
  if (log::thread_seq(event)) ++logs_.back().event_lines;
  if (const auto* kernel = std::get_if<log::KernelEventLine>(&event)) {
    add_kernel(*kernel);
  } else if (const auto* summary = std::get_if<log::KernelSummaryLine>(&event)) {
    add_summary(*summary);
  } else if (const auto* stream = std::get_if<event::StreamInfo>(&event)) {
    if (streams_.size() < kMaxStreams) streams_[stream->stream.value] = *stream;
  } else if (const auto* time = std::get_if<log::KernelTimeLine>(&event)) {
    add_time(*time);
  } else if (const auto* info = std::get_if<event::GraphInfo>(&event)) {
    replays_.add(*info);
  } else if (const auto* kernel = std::get_if<log::GraphKernelLine>(&event)) {
    add_graph_kernel(*kernel);
  } else {
    if (const auto* graph = std::get_if<log::GraphLaunchLine>(&event)) add_graph_launch(*graph);
    logs_.back().add(event);
    add_activity(event);
  }
}

void LogSummary::Sums::add(const Sums& other) {
  count += other.count;
  captured += other.captured;
  failed += other.failed;
  calls_timed += other.calls_timed;
  replayed += other.replayed;
  if (__builtin_add_overflow(call_total_ns, other.call_total_ns, &call_total_ns)) call_total_ns = INT64_MAX;
}

void LogSummary::Sums::subtract(const Sums& other) {
  count -= std::min(count, other.count);
  captured -= std::min(captured, other.captured);
  failed -= std::min(failed, other.failed);
  calls_timed -= std::min(calls_timed, other.calls_timed);
  replayed -= std::min(replayed, other.replayed);
  call_total_ns -= std::min(call_total_ns, other.call_total_ns);
}

bool LogSummary::is_black_box() const {
  const std::optional<event::SessionStart>& start = logs_.back().start;
  return start && start->mode == "blackbox";
}

// In a black box's log each launch is in a summary of its second, and may have a line of its own besides, from a dump.
void LogSummary::add_kernel(const log::KernelEventLine& line) {
  LogFacts& log = logs_.back();
  const event::KernelLaunch& launch = line.launch;
  const bool black_box = is_black_box();
  if (black_box && launch.launch_ns <= summarised_until_ns_) return log.saw_time(launch.launch_ns);
  const std::uint32_t config = config_index(line.kernel, line.shape, facts_of(line), known(line.kernel.device));
  Told& told = told_of(config);
  if (told.session_only > 0) {  // recovered, of a log that had lost it before its end
    --told.session_only;
    return log.saw_time(launch.launch_ns);
  }
  LaunchGroup& group =
      group_for(config, {launch.stream.value, launch.thread, &line.scope, launch.graph.value});
  group_of_last_ = static_cast<std::uint32_t>(&group - groups_.data());
  const bool failed = launch.status && *launch.status != 0;
  log.saw_time(launch.launch_ns);
  if (launch.call_ns && event::plausible(launch.launch_ns) && event::plausible(*launch.call_ns)) {
    log.saw_time(launch.launch_ns + *launch.call_ns);
  }
  const Sums one{1, launch.captured ? 1u : 0u, failed ? 1u : 0u, 0, launch.call_ns ? 1u : 0u, launch.call_ns.value_or(0)};
  told.all.add(one);
  if (black_box) told.dumped.add(one);
  if (launch.captured) {
    ++log.captured;
    ++group.captured;
    activity_.add_launch(launch, std::nullopt);
    return;
  }
  ++(launch.seq.slot() == event::kGpuSlot ? log.gpu_kernels : log.launches);
  group.add_launches(configs_[config].facts, 1);
  group.grid_blocks.add(launch.grid.count());
  if (failed) {
    ++log.failed;
    ++group.failed;
  }
  if (launch.call_ns) group.call.add(*launch.call_ns);
  const bool timed = line.duration_ns && *line.duration_ns >= 0 && event::plausible(*line.duration_ns);
  Stratum* const kind = stratum(group_of_last_, config);
  if (kind != nullptr && !failed) ++kind->executed;
  if (kind != nullptr && timed) kind->add(static_cast<double>(*line.duration_ns));
  activity_.add_launch(launch, timed ? line.duration_ns : std::nullopt);
  if (timed) {
    group.gpu.add(*line.duration_ns, *budget_);
    ++log.timed_kernels;
    if (line.timed_by_events) {
      ++log.event_timed;
      if (const auto error = launch.by_events.error_ns; error && *error >= 0 && event::plausible(*error)) {
        group.event_error.add(*error);
      }
    }
    if (!log.pending.empty()) log.pending.erase(launch.seq.value);
  } else if (!failed) {
    ++log.untimed_kernels;
    if (log.times_expected()) note_untimed(launch.seq, group_of_last_, config);
  }
  if (const auto queue = event::elapsed(launch.launch_ns, launch.start_ns); queue && !launch.unlaunched) {
    group.queue.add(*queue);
  }
  // The lines of a dump are a part of what ran; when a device was busy cannot be told from them.
  if (!black_box) add_work(line.kernel.device, DeviceTimeline::Work::kKernel, launch.start_ns, launch.end_ns);
  if (launch.end_ns) log.saw_time(*launch.end_ns);
}

LogSummary::Told& LogSummary::told_of(std::uint32_t config) {
  Told& told = configs_[config].told;
  if (told.log != logs_.size()) {
    told = Told{};
    told.log = logs_.size();
  }
  return told;
}

// A summary line stands for launches that have no line of their own, or, at the end of a log, for all of the recording
// once more. Of the latter only what goes beyond what has been told already is new: launches whose lines were deleted
// with an old segment.
void LogSummary::add_summary(const log::KernelSummaryLine& line) {
  LogFacts& log = logs_.back();
  const event::KernelSummary& sum = line.summary;
  if (sum.session) spread_replays();
  log.saw_time(sum.to_ns);
  const std::uint32_t config = config_index(line.kernel, line.shape, facts_of(line), known(line.kernel.device));
  Told& told = told_of(config);
  const std::uint64_t replayed = std::min(sum.replayed, sum.count);
  // Without `calls_timed`: a log of before some calls were not timed.
  Sums fresh{sum.count, std::min(sum.captured, sum.count), sum.failed, replayed,
             line.calls_timed.value_or(sum.count - replayed),
             static_cast<std::int64_t>(sum.call_total_ns)};
  if (sum.session) {
    fresh.subtract(told.all);
    told.session_only += fresh.count;
  } else if (is_black_box()) {
    fresh.subtract(told.dumped);
    told.dumped = Sums();
    summarised_until_ns_ = std::max(summarised_until_ns_, sum.to_ns);
  }
  told.all.add(fresh);
  if (fresh.count == 0) return;

  const std::uint64_t executed = fresh.count - std::min(fresh.captured, fresh.count);
  const std::uint64_t launched = executed - std::min(fresh.replayed, executed);
  log.captured += fresh.captured;
  log.launches += launched;
  log.gpu_kernels += executed - launched;
  log.replayed_kernels += executed - launched;
  log.summarised += fresh.count;
  log.failed += fresh.failed;
  Place nowhere;
  nowhere.known = false;
  LaunchGroup& group = group_for(config, nowhere);
  group.captured += fresh.captured;
  group.failed += fresh.failed;
  group.add_launches(configs_[config].facts, executed);
  group.replayed += executed - launched;
  group.call.add_many(std::min(launched, fresh.calls_timed), fresh.call_total_ns, sum.call_min_ns, sum.call_max_ns);
  Stratum* const kind = stratum(static_cast<std::uint32_t>(&group - groups_.data()), config);
  if (kind != nullptr) kind->executed += executed - std::min(executed, fresh.failed);
  if (sum.total_ns && fresh.count == sum.count) {
    if (kind != nullptr) kind->add_sum(line.timed.value_or(executed), static_cast<double>(*sum.total_ns));
    // Without `timed`: a log of before there were samples.
    group.gpu.add_many(line.timed.value_or(executed), *sum.total_ns, sum.min_ns, sum.max_ns);
  }
}

void LogSummary::add_graph_kernel(const log::GraphKernelLine& line) {
  const std::uint32_t config = config_index(line.kernel, line.shape, facts_of(line), known(line.kernel.device));
  replays_.add(line, config);
  if (!collecting_replays_) return;
  Place nowhere;
  nowhere.known = false;
  group_for(config, nowhere);
}

// Only of those whose nodes have no lines, or these would be counted twice.
void LogSummary::add_graph_launch(const log::GraphLaunchLine& line) {
  const event::GraphLaunch& launch = line.launch;
  if (launch.captured || launch.status != 0) return;
  LogFacts& log = logs_.back();
  // Of a recovered launch it is not known, but for recordings without any times.
  if (!launch.node_events && log.timing() != "off") {
    if (launch.contents) ++log.unknown_replays;
    return;
  }
  if (launch.node_events.value_or(false)) return;
  if (is_black_box() && launch.launch_ns <= summarised_until_ns_) return;  // of a dump: its summary is there too
  GraphReplays::Place place;
  if (by_ == GroupBy::kStream) place.stream = launch.stream.value;
  if (by_ == GroupBy::kThread) place.thread = launch.thread;
  if (by_ == GroupBy::kGraph) place.graph = launch.graph.value;
  if (by_ == GroupBy::kScope) place.scope = line.scope;
  if (!launch.contents || !replays_.launch(launch.contents, std::move(place))) ++log.unknown_replays;
  if (is_black_box() || replays_.crowded()) spread_replays();
}

void LogSummary::spread_replays() {
  replays_.spread([this](const GraphReplays::Kernel& kernel, std::uint64_t times, const GraphReplays::Place& place) {
    LogFacts& log = logs_.back();
    Told& told = told_of(kernel.config);
    const std::uint64_t told_already = std::min(times, told.session_only);  // recovered, as in add_kernel
    told.session_only -= told_already;
    const Sums fresh{times - told_already, 0, 0, times - told_already, 0};
    if (fresh.count == 0) return;
    told.all.add(fresh);
    if (is_black_box()) told.dumped.add(fresh);
    LaunchGroup& group = group_for(kernel.config, {place.stream, place.thread, &place.scope, place.graph});
    group.add_launches(configs_[kernel.config].facts, fresh.count);
    group.replayed += fresh.count;
    const auto row = static_cast<std::uint32_t>(&group - groups_.data());
    if (Stratum* const kind = stratum(row, kernel.config)) kind->executed += fresh.count;
    group.grid_blocks.add(kernel.grid.count());
    log.gpu_kernels += fresh.count;
    log.replayed_kernels += fresh.count;
    if (!collecting_replays_) return;
    collected_.push_back({row, kernel.grid, fresh.count});
  });
}

bool LogSummary::has_times() const {
  if (!activity_.copies().empty() || !activity_.fills().empty()) return true;
  return std::any_of(logs_.begin(), logs_.end(), [](const LogFacts& log) {
    return log.timed_kernels + log.late_times > 0 || !log.busy.empty();
  });
}

bool LogSummary::sampled() const {
  return std::any_of(logs_.begin(), logs_.end(), [](const LogFacts& log) { return log.times_sampled(); });
}

std::uint32_t LogSummary::config_index(const event::KernelInfo& kernel, const event::LaunchShape& shape,
                                       ConfigFacts facts, std::optional<std::int32_t> device) {
  key_.assign(kernel.name);
  key_.push_back('\0');
  for (const std::int32_t fact : {kernel.num_regs, kernel.static_shared_bytes, kernel.local_bytes_per_thread,
                                  device.value_or(-1), shape.carveout, facts.max_active_blocks.value_or(-1)}) {
    append_bytes(key_, fact);
  }
  append_bytes(key_, shape.block);
  append_bytes(key_, shape.cluster);
  append_bytes(key_, shape.dyn_shared_bytes);
  key_.push_back(shape.cooperative ? '\1' : '\0');
  append_bytes(key_, config_tag_);
  if (by_ == GroupBy::kDevice) append_bytes(key_, logs_.size());  // an ordinal means something in its own log only
  if (const auto found = config_index_.find(std::string_view(key_)); found != config_index_.end()) return found->second;

  // Beyond the bound the last row changes its facts with every launch: ranges stay right, configurations are not
  // counted any more.
  const bool full = configs_.size() >= limits_.configs;
  if (!full) {
    config_index_.emplace(key_, static_cast<std::uint32_t>(configs_.size()));
    configs_.emplace_back();
  }
  Config& config = configs_.back();
  config = Config{};
  config.facts = std::move(facts);
  config.device = device;
  const std::string_view name = kernel.name.empty() ? std::string_view(kUnknownKernel) : std::string_view(kernel.name);
  if (const auto found = kernel_index_.find(name); found != kernel_index_.end()) {
    config.kernel = found->second;
  } else if (kernel_names_.size() < limits_.configs) {
    config.kernel = static_cast<std::uint32_t>(kernel_names_.size());
    kernel_names_.emplace_back(name);
    kernel_index_.emplace(std::string(name), config.kernel);
  }
  return static_cast<std::uint32_t>(configs_.size() - 1);
}

LaunchGroup& LogSummary::group_for(std::uint32_t config_row, const Place& place) {
  Config& config = configs_[config_row];
  const std::uint32_t row = find_group(config, place);
  LaunchGroup& group = groups_[row];
  const std::uint64_t member = std::uint64_t{row} << 32 | config_row;
  const bool last_row_shared = configs_.size() >= limits_.configs && config_row + 1 == configs_.size();
  if (strata_.contains(member) && !last_row_shared) return group;
  group.add_config(config.facts);
  group.add_device(config.device);
  strata_full_ = strata_full_ || last_row_shared || strata_.size() >= limits_.configs;
  if (strata_.size() < limits_.configs) strata_.try_emplace(member);
  return group;
}

std::uint32_t LogSummary::find_group(Config& config, const Place& place) {
  const bool by_config_alone = by_ == GroupBy::kKernel || by_ == GroupBy::kConfig || by_ == GroupBy::kDevice;
  if (by_config_alone && config.group != kNone) return config.group;
  make_key(config, place);
  const std::size_t before = groups_.size();
  const std::uint32_t row = group_row(key_);
  if (groups_.size() != before && groups_[row].label.empty()) groups_[row].label = label(config, place);
  if (by_config_alone) config.group = row;
  return row;
}

std::uint32_t LogSummary::group_row(std::string_view key) {
  if (const auto found = group_index_.find(key); found != group_index_.end()) return found->second;
  if (groups_full_) return static_cast<std::uint32_t>(groups_.size() - 1);
  groups_.emplace_back();
  const auto row = static_cast<std::uint32_t>(groups_.size() - 1);
  if (groups_.size() > limits_.groups) {
    groups_full_ = true;
    groups_.back().label = kOtherGroups;
  } else {
    group_index_.emplace(std::string(key), row);
  }
  return row;
}

void LogSummary::make_key(const Config& config, const Place& place) {
  const bool of_graph = by_ == GroupBy::kGraph && place.graph != 0;
  const bool per_log = by_ == GroupBy::kStream || by_ == GroupBy::kThread || of_graph;
  key_.clear();
  if (per_log) append_bytes(key_, logs_.size());
  switch (by_) {
    case GroupBy::kKernel: append_bytes(key_, config.kernel); break;
    case GroupBy::kConfig: append_bytes(key_, static_cast<std::uint64_t>(&config - configs_.data())); break;
    case GroupBy::kStream: append_bytes(key_, place.known ? place.stream : kNone); break;
    case GroupBy::kThread: append_bytes(key_, place.known ? place.thread : kNone); break;
    case GroupBy::kGraph: append_bytes(key_, place.known ? place.graph : kNone); break;
    case GroupBy::kDevice: key_ = device_label(config.device); break;
    case GroupBy::kScope:
      if (!place.known) key_ = "?";
      if (place.known && place.scope->has_value()) key_ = "/" + **place.scope;
      break;
  }
}

std::string LogSummary::label(const Config& config, const Place& place) const {
  constexpr const char* kSummarised = "(summarised launches)";
  switch (by_) {
    case GroupBy::kKernel:
    case GroupBy::kConfig: return config.kernel == kNone ? std::string(kUnknownKernel) : kernel_names_[config.kernel];
    case GroupBy::kDevice: return device_label(config.device);
    case GroupBy::kGraph:
      if (!place.known) return kSummarised;
      return place.graph == 0 ? kNoGraph : "graph " + std::to_string(place.graph) + of_process();
    case GroupBy::kThread:
      return (place.known ? "thread " + std::to_string(place.thread) : kSummarised) + of_process();
    case GroupBy::kScope:
      if (!place.known) return kSummarised;
      return place.scope->has_value() ? **place.scope : std::string(kNoScope);
    case GroupBy::kStream: break;
  }
  if (!place.known) return kSummarised + of_process();
  if (place.stream == 0) return "(unknown stream)" + of_process();
  std::string text = "stream " + std::to_string(place.stream);
  if (const auto found = streams_.find(place.stream); found != streams_.end()) {
    if (found->second.kind == event::StreamInfo::Kind::kLegacyDefault) text += " (default)";
    if (found->second.kind == event::StreamInfo::Kind::kPerThreadDefault) text += " (per-thread default)";
    if (found->second.priority.value_or(0) != 0) text += " priority " + std::to_string(*found->second.priority);
  }
  return text + of_process();
}

std::string LogSummary::of_process() const {
  const auto& start = logs_.back().start;
  return start ? " of process " + std::to_string(start->pid) : " of log " + std::to_string(logs_.size());
}

const event::DeviceInfo* LogSummary::device_of_log(std::optional<std::int32_t> device) const {
  if (!device) return nullptr;
  for (const event::DeviceInfo& info : logs_.back().devices) {
    if (info.device == *device) return &info;
  }
  return nullptr;
}

// The UUID names a board across processes; an ordinal alone does so only as far as they see the same boards.
std::string LogSummary::device_label(std::optional<std::int32_t> device) const {
  if (!device) return "(unknown device)";
  const event::DeviceInfo* info = device_of_log(device);
  std::string text = "device " + std::to_string(*device);
  if (info == nullptr) return text;
  text += ": " + info->name;
  if (!info->uuid.empty()) text += " " + info->uuid;
  return text;
}

LaunchGroup LogSummary::totals() const {
  LaunchGroup all;
  event::SketchBudget unbounded{SIZE_MAX};  // one sketch has its own bound: some 4,000 buckets hold all there are
  for (const LaunchGroup& group : groups_) {
    all.add_extrapolation(group);
    all.launches += group.launches;
    all.failed += group.failed;
    all.captured += group.captured;
    all.replayed += group.replayed;
    for (std::size_t i = 0; i < all.limited_by.size(); ++i) all.limited_by[i] += group.limited_by[i];
    all.call.add(group.call);
    all.gpu.add(group.gpu, unbounded);
    all.queue.add(group.queue);
    all.event_error.add(group.event_error);
    all.occupancy_sum += group.occupancy_sum;
    all.occupancy_count += group.occupancy_count;
  }
  all.configs = config_index_.size();
  return all;
}

}  // namespace gpuflight::analysis
