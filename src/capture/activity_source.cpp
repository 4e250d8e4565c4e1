#include "capture/activity_source.h"

#include <pthread.h>

#include <algorithm>
#include <array>

#include "capture/activity_api.h"
#include "capture/activity_layout.h"
#include "capture/system_clock.h"

namespace gpuflight::capture {
namespace {

// CUPTI's callbacks carry no user data. Set by start(), before the callbacks are registered, and never taken back.
std::atomic<ActivityBuffers*> g_buffers{nullptr};

std::uint64_t CUPTIAPI on_timestamp() noexcept { return static_cast<std::uint64_t>(system_clock_ns(CLOCK_MONOTONIC)); }

void CUPTIAPI on_request(std::uint8_t** data, std::size_t* bytes, std::size_t* max_records) noexcept {
  ActivityBuffers::Buffer* const buffer =
      g_buffers.load(std::memory_order_acquire)
          ->hand_out(static_cast<std::uint64_t>(pthread_self()), system_clock_ns(CLOCK_MONOTONIC));
  *data = buffer != nullptr ? buffer->data() : nullptr;
  *bytes = buffer != nullptr ? buffer->capacity() : 0;
  *max_records = buffer != nullptr ? buffer->grant.records : 0;
}

void CUPTIAPI on_complete(CUcontext, std::uint32_t, std::uint8_t* data, std::size_t, std::size_t valid) noexcept {
  g_buffers.load(std::memory_order_acquire)->complete(data, valid);
}

// Reads nothing but the buffer: CUPTI may be asked on any thread.
RecordCounts count_records(const void* context, std::uint8_t* data, std::size_t valid_bytes) noexcept {
  const auto& reader = *static_cast<const ActivityReader*>(context);
  RecordCounts counts;
  CUpti_Activity* raw = nullptr;
  while (reader.api->next_record(data, valid_bytes, &raw) == CUPTI_SUCCESS) {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(raw);
    ActivityRecord record;
    const auto room = static_cast<std::size_t>(data + valid_bytes - bytes);
    if (read_activity(*reader.layout, bytes, room, 0, record) == ReadResult::kUnknown) continue;
    ++(record.graph_node != 0 ? counts.nodes : counts.single);
  }
  return counts;
}

struct Kind {
  CUpti_ActivityKind kind;
  const char* name;
  bool (*wanted)(const ActivitySource::Settings&, bool peer_copies);
};
using Settings = ActivitySource::Settings;
// GRAPH_TRACE first: enabled after kernels, it is too late for graphs launched in between.
constexpr std::array kKinds = {
    Kind{CUPTI_ACTIVITY_KIND_GRAPH_TRACE, "GRAPH_TRACE",
         [](const Settings& s, bool) { return s.graphs != ActivitySource::Graphs::kNode && s.before_graphs; }},
    Kind{CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, "CONCURRENT_KERNEL", [](const Settings& s, bool) { return s.kernels; }},
    Kind{CUPTI_ACTIVITY_KIND_MEMCPY, "MEMCPY", [](const Settings& s, bool) { return s.copies; }},
    Kind{CUPTI_ACTIVITY_KIND_MEMCPY2, "MEMCPY2", [](const Settings& s, bool peer_copies) { return s.copies && peer_copies; }},
    Kind{CUPTI_ACTIVITY_KIND_MEMSET, "MEMSET", [](const Settings& s, bool) { return s.copies; }},
};

// CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE_DEVICE_GRAPHS, which headers before CUDA 12.9 do not have.
constexpr auto kDeviceGraphs = static_cast<CUpti_ActivityAttribute>(10);

template <class... Parts>
bool refuse(std::string& problem, const Parts&... parts) noexcept {
  try {
    problem.clear();
    (problem.append(parts), ...);
  } catch (...) {
  }
  return false;
}

}  // namespace

ActivitySource::ActivitySource() noexcept = default;

ActivitySource::~ActivitySource() {
  // CUPTI cannot be told to forget the callbacks: what they use stays.
  if (!registered_.load(std::memory_order_acquire)) return;
  static_cast<void>(buffers_.release());
  static_cast<void>(reader_.release());
  static_cast<void>(api_.release());
}

bool ActivitySource::start(const SharedObject& library, std::uint32_t cupti_version, const Settings& settings,
                           std::int64_t t0_monotonic_ns, std::string& problem) noexcept {
  try {
    if (!registered_.load(std::memory_order_acquire)) {
      settings_ = settings;
      t0_ns_ = t0_monotonic_ns;
      layout_ = find_activity_layout(cupti_version);
      if (layout_ == nullptr) {
        return refuse(problem, "the activity records of CUPTI ", std::to_string(cupti_version),
                      " are not known: those of CUDA 12.0 to 13.x are");
      }
      api_ = std::make_unique<ActivityApi>();
      if (const char* missing = api_->load(library)) {
        return refuse(problem, missing, " is missing in ", library.path());
      }
      reader_ = std::make_unique<ActivityReader>(ActivityReader{api_.get(), layout_});
      buffers_ = std::make_unique<ActivityBuffers>(settings_.buffer_bytes, settings_.memory_bound,
                                                   RecordCounter{&count_records, reader_.get()});
      if (!buffers_->reserve()) return refuse(problem, "no memory for activity buffers");
      set_attributes();
      if (!register_callbacks(problem)) return false;
      registered_.store(true, std::memory_order_release);
    }
  } catch (...) {
    return refuse(problem, "no memory");
  }
  if (enable_kinds(problem)) return true;
  stop();
  return false;
}

// Best effort: a CUPTI that does not know one of them goes by its own value. Buffers are not promised to be zeroed
// (ZEROED_OUT_ACTIVITY_BUFFER): zeroing them on the recorder thread cost it 0.2 us an event on the H200 and saved
// launching threads nothing that could be measured.
void ActivitySource::set_attributes() noexcept {
  if (api_->set_attribute == nullptr) return;
  const auto set = [this](CUpti_ActivityAttribute attribute, auto value) {
    std::size_t bytes = sizeof value;
    api_->set_attribute(attribute, &bytes, &value);
  };
  set(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE, settings_.device_buffer_bytes);
  set(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT, settings_.device_buffer_pool_limit);
  set(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_PRE_ALLOCATE_VALUE, settings_.device_buffers_at_once);
  set(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE_CDP, settings_.device_launch_bytes);
  set(kDeviceGraphs, settings_.device_graph_bytes);
}

bool ActivitySource::register_callbacks(std::string& problem) noexcept {
  // Before anything is enabled, and once: records made before a change of clock keep the old one.
  own_clock_ = api_->register_timestamp != nullptr && api_->register_timestamp(on_timestamp) == CUPTI_SUCCESS;
  ActivityBuffers* const before = g_buffers.exchange(buffers_.get(), std::memory_order_acq_rel);
  const CUptiResult result = api_->register_callbacks(on_request, on_complete);
  if (result == CUPTI_SUCCESS) return true;
  g_buffers.store(before, std::memory_order_release);
  return refuse(problem, "cuptiActivityRegisterCallbacks: ", api_->result_text(result));
}

// Kernels are what it is for; without one of the others there is less to tell, and `problem` says so.
bool ActivitySource::enable_kinds(std::string& problem) noexcept {
  for (std::size_t i = 0; i < kKinds.size(); ++i) {
    const Kind& kind = kKinds[i];
    const std::uint32_t bit = 1u << i;
    if (!kind.wanted(settings_, peer_copies_.load()) || (enabled_.load() & bit) != 0) continue;
    const CUptiResult result = api_->enable(kind.kind);
    if (result == CUPTI_SUCCESS) {
      enabled_.fetch_or(bit);
      continue;
    }
    refuse(problem, "cuptiActivityEnable of ", kind.name, ": ", api_->result_text(result));
    if (kind.kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) return false;
  }
  return true;
}

void ActivitySource::tell_peer_copies() noexcept {
  if (peer_copies_.exchange(true) || !settings_.copies) return;
  const auto at = static_cast<std::size_t>(
      std::find_if(kKinds.begin(), kKinds.end(), [](const Kind& k) { return k.kind == CUPTI_ACTIVITY_KIND_MEMCPY2; }) -
      kKinds.begin());
  if (api_->enable(CUPTI_ACTIVITY_KIND_MEMCPY2) != CUPTI_SUCCESS) return;
  // Stopped meanwhile by another thread, which did not know of it.
  if (enabled_.fetch_or(1u << at) == 0) stop();
}

void ActivitySource::stop() noexcept {
  const std::uint32_t enabled = enabled_.exchange(0);
  for (std::size_t i = kKinds.size(); i-- > 0;) {
    if ((enabled & (1u << i)) != 0) api_->disable(kKinds[i].kind);
  }
}

void ActivitySource::flush(bool forced) noexcept {
  if (!registered_.load(std::memory_order_acquire)) return;
  api_->flush_all(forced ? CUPTI_ACTIVITY_FLAG_FLUSH_FORCED : 0);
}

void ActivitySource::begin_take() noexcept {
  if (!registered_.load(std::memory_order_acquire)) return;
  clock_base_ = t0_ns_;
  // Each time anew: CLOCK_REALTIME is set and slewed.
  if (!own_clock_) clock_base_ += system_clock_ns(CLOCK_REALTIME) - system_clock_ns(CLOCK_MONOTONIC);
  if (taken_ == nullptr) taken_ = buffers_->take_completed();
}

ActivityBuffers::Buffer* ActivitySource::next_buffer() noexcept {
  ActivityBuffers::Buffer* const buffer = taken_;
  if (buffer != nullptr) taken_ = std::exchange(buffer->next, nullptr);
  timed_ = 0;
  return buffer;
}

bool ActivitySource::next_record(ActivityBuffers::Buffer& buffer, void*& place, ActivityRecord& record) noexcept {
  std::uint8_t* const end = buffer.data() + buffer.valid_bytes;
  CUpti_Activity* raw = static_cast<CUpti_Activity*>(place);
  while (api_->next_record(buffer.data(), buffer.valid_bytes, &raw) == CUPTI_SUCCESS) {
    place = raw;
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(raw);
    const auto room = static_cast<std::size_t>(end - bytes);
    const ReadResult result = read_activity(*layout_, bytes, room, clock_base_, record);
    if (result == ReadResult::kUnknown) {
      unknown_records_.fetch_add(1, std::memory_order_relaxed);
      continue;
    }
    if (result == ReadResult::kRead) note_run(*record.start_ns, *record.end_ns);
    const bool of_graph = record.graph_node != 0 || record.kind == ActivityRecord::Kind::kGraph;
    if (settings_.graphs == Graphs::kOff && of_graph) continue;
    records_.fetch_add(1, std::memory_order_relaxed);
    if (result == ReadResult::kNoTime) null_times_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  return false;
}

void ActivitySource::note_run(std::int64_t start_ns, std::int64_t end_ns) noexcept {
  first_start_ns_ = timed_ == 0 ? start_ns : std::min(first_start_ns_, start_ns);
  last_end_ns_ = timed_ == 0 ? end_ns : std::max(last_end_ns_, end_ns);
  ++timed_;
}

void ActivitySource::recycle(ActivityBuffers::Buffer* buffer) noexcept {
  if (timed_ != 0) buffers_->ran(*buffer, timed_, first_start_ns_, last_end_ns_);
  buffers_->recycle(buffer);
}

void ActivitySource::end_take() noexcept {
  if (!registered_.load(std::memory_order_acquire)) return;
  std::size_t dropped = 0;
  if (api_->dropped_records != nullptr && api_->dropped_records(nullptr, 0, &dropped) == CUPTI_SUCCESS) {
    dropped_.fetch_add(dropped, std::memory_order_relaxed);
  }
  buffers_->replenish();
}

ActivitySource::Counters ActivitySource::counters() const noexcept {
  Counters counters;
  counters.records = records_.load(std::memory_order_relaxed);
  counters.dropped = dropped_.load(std::memory_order_relaxed);
  counters.unknown_records = unknown_records_.load(std::memory_order_relaxed);
  counters.null_times = null_times_.load(std::memory_order_relaxed);
  if (!registered_.load(std::memory_order_acquire)) return counters;
  counters.buffers_requested = buffers_->requested();
  counters.over_bound = buffers_->over_bound();
  const RecordCounts unread = buffers_->unread();
  counters.unread = unread.single + unread.nodes;
  counters.unread_nodes = unread.nodes;
  counters.bytes_held = buffers_->bytes_held();
  return counters;
}

}  // namespace gpuflight::capture
