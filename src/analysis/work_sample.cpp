#include "analysis/work_sample.h"

#include <algorithm>

#include "event/plausible_time.h"

namespace gpuflight::analysis {
namespace {

constexpr std::int64_t kFirstQuantumNs = 256;
constexpr std::int64_t kMostBusyNs = std::int64_t{1} << 61;  // of damaged logs sums could be beyond any

bool by_start(const DrawnWork& a, const DrawnWork& b) {
  return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.end_ns < b.end_ns;
}

bool sane(const event::MaybeNs& start, const event::MaybeNs& end) {
  return start && end && event::plausible(*start) && event::plausible(*end) && *start <= *end;
}

// The neighbour goes into the piece before it.
void take_in(DrawnWork& into, const DrawnWork& more) {
  if (into.kind != more.kind) into.kind = DrawnKind::kMixed;
  if (more.longest_ns > into.longest_ns) into.name = more.name;
  into.longest_ns = std::max(into.longest_ns, more.longest_ns);
  into.end_ns = std::max(into.end_ns, more.end_ns);
  into.busy_ns = std::min(into.busy_ns + more.busy_ns, kMostBusyNs);
  into.amount += more.amount;
  into.pieces += more.pieces;
  into.queue_ns = -1;
}

void merge_short(std::vector<DrawnWork>& works, std::int64_t quantum) {
  std::sort(works.begin(), works.end(), by_start);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < works.size(); ++i) {
    if (kept > 0 && std::max(works[i].end_ns, works[kept - 1].end_ns) - works[kept - 1].start_ns <= quantum) {
      take_in(works[kept - 1], works[i]);
    } else {
      works[kept++] = works[i];
    }
  }
  works.resize(kept);
}

}  // namespace

void WorkSample::begin_log() { ++log_; }

void WorkSample::add(const log::LogEvent& event) {
  if (const auto* kernel = std::get_if<log::KernelEventLine>(&event)) return add_kernel(*kernel);
  if (const auto* copy = std::get_if<log::MemcpyLine>(&event)) return add_copy(*copy);
  if (const auto* fill = std::get_if<log::MemsetLine>(&event)) return add_fill(*fill);
  if (const auto* sync = std::get_if<log::SyncLine>(&event)) return add_wait(*sync);
  if (const auto* time = std::get_if<log::KernelTimeLine>(&event)) {
    if (!sane(time->time.start_ns, time->time.end_ns)) return;
    DrawnWork work;
    work.start_ns = *time->time.start_ns;
    work.end_ns = *time->time.end_ns;
    work.queue_ns = event::elapsed(time->time.launch_ns, time->time.start_ns).value_or(-1);
    DrawnName name;
    name.text = time->name;
    work.name = name_of("t" + time->name, name);
    return add_work({log_, false, time->device.value_or(-1), time->time.stream.value}, work);
  }
  if (const auto* stream = std::get_if<event::StreamInfo>(&event)) {
    if (streams_.size() < kMostTracks * 4) streams_[{log_, stream->stream.value}] = *stream;
  }
}

void WorkSample::add_kernel(const log::KernelEventLine& line) {
  const event::KernelLaunch& launch = line.launch;
  if (!sane(launch.start_ns, launch.end_ns)) return;
  DrawnWork work;
  work.start_ns = *launch.start_ns;
  work.end_ns = *launch.end_ns;
  work.amount = launch.grid.count();
  if (!launch.unlaunched) work.queue_ns = event::elapsed(launch.launch_ns, launch.start_ns).value_or(-1);
  const event::LaunchShape& shape = line.shape;
  key_ = "k";
  for (const std::uint32_t part : {shape.block.x, shape.block.y, shape.block.z, shape.dyn_shared_bytes,
                                   static_cast<std::uint32_t>(line.kernel.num_regs)}) {
    key_.append(reinterpret_cast<const char*>(&part), sizeof part);
  }
  key_ += line.kernel.name;
  if (const auto found = name_rows_.find(key_); found != name_rows_.end()) {
    work.name = found->second;
  } else {
    DrawnName name;
    name.text = line.kernel.name;
    name.details = line.details;
    name.facts = line.kernel;
    name.facts.name.clear();
    name.shape = shape;
    name.occupancy = line.occupancy_ratio;
    name.limiters = line.occupancy.limiters;
    work.name = name_of(key_, name);
  }
  add_work({log_, false, line.kernel.device, launch.stream.value}, work);
}

void WorkSample::add_copy(const log::MemcpyLine& line) {
  const event::MemcpyEvent& copy = line.copy;
  if (!sane(copy.start_ns, copy.end_ns)) return;
  DrawnWork work;
  work.start_ns = *copy.start_ns;
  work.end_ns = *copy.end_ns;
  work.amount = copy.bytes;
  work.queue_ns = event::elapsed(copy.origin.launch_ns, copy.start_ns).value_or(-1);
  work.kind = copy.kind == event::CopyKind::kHtoD || copy.kind == event::CopyKind::kHtoA   ? DrawnKind::kCopyIn
              : copy.kind == event::CopyKind::kDtoH || copy.kind == event::CopyKind::kAtoH ? DrawnKind::kCopyOut
                                                                                           : DrawnKind::kCopy;
  const auto word = [](const char* name) { return std::string(name != nullptr ? name : "unknown"); };
  DrawnName name;
  name.kind = work.kind;
  name.text = "copy " + word(event::kCopyKindNames[static_cast<std::size_t>(copy.kind)]) + ", " +
              word(event::kMemoryKindNames[static_cast<std::size_t>(copy.source)]) + " to " +
              word(event::kMemoryKindNames[static_cast<std::size_t>(copy.destination)]) +
              (copy.async ? ", async" : ", blocking");
  work.name = name_of("c" + name.text, name);
  add_work({log_, false, line.device.value_or(-1), copy.stream.value}, work);
}

void WorkSample::add_fill(const log::MemsetLine& line) {
  const event::MemsetEvent& fill = line.fill;
  if (!sane(fill.start_ns, fill.end_ns)) return;
  DrawnWork work;
  work.start_ns = *fill.start_ns;
  work.end_ns = *fill.end_ns;
  work.amount = fill.bytes;
  work.queue_ns = event::elapsed(fill.origin.launch_ns, fill.start_ns).value_or(-1);
  work.kind = DrawnKind::kFill;
  DrawnName name;
  name.kind = work.kind;
  name.text = fill.async ? "fill, async" : "fill";
  work.name = name_of("f" + name.text, name);
  add_work({log_, false, line.device.value_or(-1), fill.stream.value}, work);
}

void WorkSample::add_wait(const log::ApiLine& line) {
  const event::ApiEvent& call = line.call;
  if (!call.call_ns || !event::plausible(call.time_ns) || !event::plausible(*call.call_ns) || *call.call_ns < 0) return;
  DrawnWork work;
  work.start_ns = call.time_ns;
  work.end_ns = call.time_ns + *call.call_ns;
  work.kind = DrawnKind::kWait;
  DrawnName name;
  name.kind = work.kind;
  name.text = line.name;
  work.name = name_of("w" + line.name, name);
  add_work({log_, true, -1, call.thread}, work);
}

std::uint32_t WorkSample::name_of(const std::string& key, const DrawnName& name) {
  const auto found = name_rows_.find(key);
  if (found != name_rows_.end()) return found->second;
  if (names_.size() + 1 >= kMostNames) {
    if (names_.size() < kMostNames) {
      names_.push_back({"(more names than are kept)", DrawnKind::kMixed, false, {}, {}, {}, 0});
    }
    return static_cast<std::uint32_t>(kMostNames - 1);
  }
  names_.push_back(name);
  const auto row = static_cast<std::uint32_t>(names_.size() - 1);
  name_rows_.emplace(key, row);
  return row;
}

void WorkSample::add_work(Key key, DrawnWork work) {
  ++seen_;
  auto track = tracks_.find(key);
  if (track == tracks_.end()) {
    if (tracks_.size() >= kMostTracks) {
      ++left_out_;
      return;
    }
    track = tracks_.emplace(key, std::vector<DrawnWork>()).first;
  }
  work.busy_ns = work.longest_ns = work.end_ns - work.start_ns;
  track->second.push_back(work);
  // Merged down to a half, so that it is seldom done.
  if (++kept_ > 2 * most_) merge();
}

void WorkSample::merge() {
  // First what came since the last time, as what was before.
  if (quantum_ == 0) quantum_ = kFirstQuantumNs;
  for (;; quantum_ *= 2) {
    kept_ = 0;
    for (auto& [key, works] : tracks_) {
      merge_short(works, quantum_);
      kept_ += works.size();
    }
    // A track is never less than one piece.
    if (kept_ <= std::max(most_, tracks_.size()) || quantum_ > 4 * event::kMostNs) return;
  }
}

void WorkSample::draw(const Key& key, std::vector<DrawnWork>& works) {
  std::sort(works.begin(), works.end(), by_start);
  std::vector<DrawnTrack> lanes;
  for (const DrawnWork& work : works) {
    std::uint32_t lane = 0;
    while (lane < lanes.size() && lane + 1 < kMostLanes && lanes[lane].works.back().end_ns > work.start_ns) ++lane;
    if (lane == lanes.size()) {
      DrawnTrack track;
      std::tie(track.log, track.host, track.device, track.number) = key;
      track.lane = lane;
      const auto stream = streams_.find({track.log, track.number});
      if (!track.host && stream != streams_.end()) track.stream = stream->second;
      lanes.push_back(std::move(track));
    }
    lanes[lane].works.push_back(work);
  }
  for (DrawnTrack& lane : lanes) drawn_.push_back(std::move(lane));
  std::vector<DrawnWork>().swap(works);
}

void WorkSample::finish() {
  if (kept_ > most_) merge();
  for (auto& [key, works] : tracks_) draw(key, works);
  tracks_.clear();
}

std::size_t WorkSample::drawn() const {
  std::size_t count = 0;
  for (const DrawnTrack& track : drawn_) count += track.works.size();
  return count;
}

}  // namespace gpuflight::analysis
