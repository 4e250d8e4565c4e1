#include "sim/cupti/activity.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <thread>

namespace gpuflight::sim {
namespace {

std::int64_t read_clock(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}
std::int64_t now_ns() { return read_clock(CLOCK_MONOTONIC); }

}  // namespace

ActivityRecorder& ActivityRecorder::instance() {
  static ActivityRecorder& recorder = *new ActivityRecorder;
  return recorder;
}

// Hands the thread's last buffer over when the thread ends.
struct ActivityRecorder::ThreadShard {
  Shard* shard = nullptr;

  ~ThreadShard() {
    if (shard == nullptr) return;
    ActivityRecorder& recorder = instance();
    BufferPtr last;
    {
      const std::lock_guard lock(recorder.mutex_);
      recorder.shards_.erase(shard);
    }
    {
      const std::lock_guard lock(shard->mutex);
      last = std::move(shard->current);
    }
    if (last != nullptr) recorder.retire(std::move(last));
    delete shard;
  }
};

ActivityRecorder::Shard& ActivityRecorder::shard() {
  if (!per_thread_.load(std::memory_order_relaxed)) return common_;
  static thread_local ThreadShard mine;
  if (mine.shard == nullptr) {
    mine.shard = new Shard;
    const std::lock_guard lock(mutex_);
    shards_.insert(mine.shard);
  }
  return *mine.shard;
}

void ActivityRecorder::register_callbacks(CUpti_BuffersCallbackRequestFunc requested,
                                          CUpti_BuffersCallbackCompleteFunc completed) {
  completed_.store(completed);
  requested_.store(requested);
}

void ActivityRecorder::register_timestamp(CUpti_TimestampCallbackFunc timestamp) {
  timestamp_.store(timestamp);
  clock_offset_.store(static_cast<std::int64_t>(timestamp()) - now_ns());
}

std::uint64_t ActivityRecorder::timestamp() const {
  const CUpti_TimestampCallbackFunc timestamp = timestamp_.load();
  return timestamp != nullptr ? timestamp() : static_cast<std::uint64_t>(read_clock(CLOCK_REALTIME));
}

std::uint64_t ActivityRecorder::client_time(std::int64_t monotonic_ns) const {
  return static_cast<std::uint64_t>(monotonic_ns + clock_offset_.load(std::memory_order_relaxed));
}

bool ActivityRecorder::simulated(CUpti_ActivityKind kind) { return record_bytes(kind, 0) != 0; }

void ActivityRecorder::enable(CUpti_ActivityKind kind, bool on) {
  if (!simulated(kind)) return;
  const std::lock_guard lock(mutex_);
  if (on) {
    enabled_.insert(kind);
    if (timestamp_.load() == nullptr) clock_offset_.store(read_clock(CLOCK_REALTIME) - now_ns());
    start_worker();
  } else {
    enabled_.erase(kind);
  }
  set_hooks();
}

// Caller holds mutex_.
void ActivityRecorder::set_hooks() {
  SimHooks& hooks = *gpuflight_sim_hooks();
  const auto any_of = [this](auto... kinds) { return (enabled_.contains(kinds) || ...); };
  const auto set = [](auto& hook, bool on, auto* function) { hook.store(on ? function : nullptr); };
  peer_copies_.store(any_of(CUPTI_ACTIVITY_KIND_MEMCPY2));
  plain_copies_.store(any_of(CUPTI_ACTIVITY_KIND_MEMCPY));
  set(hooks.on_kernel, any_of(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_KERNEL),
      +[](const KernelExecution& k) { instance().record(k); });
  set(hooks.on_copy, any_of(CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY2),
      +[](const CopyExecution& c) { instance().record(c); });
  set(hooks.on_fill, any_of(CUPTI_ACTIVITY_KIND_MEMSET), +[](const FillExecution& f) { instance().record(f); });
  set(hooks.on_graph, any_of(CUPTI_ACTIVITY_KIND_GRAPH_TRACE), +[](const GraphExecution& g) { instance().record(g); });
  hooks.activity.store(!enabled_.empty());
}

void ActivityRecorder::record(const KernelExecution& kernel) {
  const SimConfig& config = *gpuflight_sim_config();
  KernelExecution told = kernel;
  if (kernel.graph_node_id != 0 && config.body_kernel == kernel.name) told.correlation = 0;
  store(make_record(told, config.cupti_version, static_cast<std::int64_t>(seen_.load())));
}

void ActivityRecorder::record(const CopyExecution& copy) {
  const bool peer = kind_of(copy) == CUPTI_ACTIVITY_KIND_MEMCPY2;
  if (!(peer ? peer_copies_ : plain_copies_).load(std::memory_order_relaxed)) return;
  store(make_record(copy, gpuflight_sim_config()->cupti_version));
}

void ActivityRecorder::record(const FillExecution& fill) {
  store(make_record(fill, gpuflight_sim_config()->cupti_version));
}

void ActivityRecorder::record(const GraphExecution& graph) {
  store(make_record(graph, gpuflight_sim_config()->cupti_version));
}

void ActivityRecorder::store(const RawRecord& record) {
  const SimConfig& config = *gpuflight_sim_config();
  const std::uint64_t number = seen_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (config.drop_every != 0 && number % config.drop_every == 0) {
    dropped_.fetch_add(1);
    return;
  }
  Shard& mine = shard();
  BufferPtr full;
  {
    const std::lock_guard lock(mine.mutex);
    if (mine.current != nullptr && mine.current->has_room(record.bytes)) {
      append(*mine.current, record);
      return;
    }
    full = std::move(mine.current);
  }
  if (full != nullptr) retire(std::move(full));
  BufferPtr fresh = take_buffer();
  if (fresh == nullptr || !fresh->has_room(record.bytes)) {
    dropped_.fetch_add(1);
    if (fresh != nullptr) retire(std::move(fresh));
    return;
  }
  append(*fresh, record);
  BufferPtr other;  // with one buffer for all threads, another thread may have been faster
  {
    const std::lock_guard lock(mine.mutex);
    other = std::move(mine.current);
    mine.current = std::move(fresh);
  }
  if (other != nullptr) retire(std::move(other));
}

void ActivityRecorder::append(ActivityBuffer& buffer, const RawRecord& record) {
  const Execution& e = *record.execution;
  std::memcpy(buffer.data + buffer.used, record.data.data(), record.bytes);
  const auto at = [&](std::size_t offset) { return offset != 0 ? buffer.used + offset : 0; };
  buffer.records.push_back({at(record.start_at), at(record.end_at), at(record.completed_at), e.start_ns, e.end_ns,
                            e.context_error});
  buffer.used += record.bytes;
  buffer.complete_ns = std::max(buffer.complete_ns, e.end_ns);
}

ActivityRecorder::BufferPtr ActivityRecorder::request_buffer() {
  const CUpti_BuffersCallbackRequestFunc requested = requested_.load();
  if (requested == nullptr) return nullptr;
  auto buffer = std::make_unique<ActivityBuffer>();
  requested(&buffer->data, &buffer->size, &buffer->max_records);
  if (buffer->data == nullptr) return nullptr;
  return buffer;
}

// The worker keeps one buffer ready; a thread that finds none asks by itself, as does every thread under the fault.
ActivityRecorder::BufferPtr ActivityRecorder::take_buffer() {
  if (!gpuflight_sim_config()->buffers_on_app_threads) {
    const std::lock_guard lock(mutex_);
    if (spare_ != nullptr) {
      kicked_ = true;
      wake_.notify_one();
      return std::move(spare_);
    }
  }
  return request_buffer();
}

void ActivityRecorder::retire(BufferPtr buffer) {
  const std::int64_t late = gpuflight_sim_config()->buffers_late_ms;
  buffer->not_before_ns = late > 0 ? now_ns() + late * 1'000'000 : 0;
  const std::lock_guard lock(mutex_);
  full_.push_back(std::move(buffer));
  kicked_ = true;
  wake_.notify_one();
}

void ActivityRecorder::deliver(BufferPtr buffer, std::int64_t now) {
  const SimConfig& config = *gpuflight_sim_config();
  static std::atomic<std::uint64_t> delivered{0};
  for (const ActivityBuffer::Times& t : buffer->records) {
    std::uint64_t start = t.start_ns <= now ? client_time(t.start_ns) : 0;
    std::uint64_t end = t.end_ns <= now ? client_time(t.end_ns) : 0;
    const bool dead = t.context_error->load(std::memory_order_relaxed) != 0;
    const std::uint64_t number = delivered.fetch_add(1, std::memory_order_relaxed) + 1;
    const bool zeroed = config.zero_times_every != 0 && number % config.zero_times_every == 0;
    if (dead || zeroed) start = end = 0;
    std::memcpy(buffer->data + t.start_at, &start, sizeof start);
    std::memcpy(buffer->data + t.end_at, &end, sizeof end);
    if (t.completed_at != 0) std::memcpy(buffer->data + t.completed_at, &end, sizeof end);
  }
  const CUpti_BuffersCallbackCompleteFunc completed = completed_.load();
  if (completed != nullptr) completed(nullptr, 0, buffer->data, buffer->size, buffer->used);
}

// Takes out what may be delivered: full buffers, and with `partial` also those still being filled.
std::vector<ActivityRecorder::BufferPtr> ActivityRecorder::collect(bool forced, bool partial, std::int64_t now) {
  std::vector<BufferPtr> out;
  const std::lock_guard lock(mutex_);
  const auto ready = [&](const ActivityBuffer& b) {
    return forced || (b.complete_ns <= now && b.not_before_ns <= now) ||
           std::any_of(b.records.begin(), b.records.end(),
                       [](const auto& t) { return t.context_error->load(std::memory_order_relaxed) != 0; });
  };
  for (auto it = full_.begin(); it != full_.end();) {
    if (!ready(**it)) {
      ++it;
      continue;
    }
    out.push_back(std::move(*it));
    it = full_.erase(it);
  }
  if (!partial) return out;
  const bool late = gpuflight_sim_config()->buffers_late_ms > 0 && !forced;
  const auto take = [&](Shard& shard) {
    const std::lock_guard shard_lock(shard.mutex);
    if (shard.current == nullptr || shard.current->records.empty() || late || !ready(*shard.current)) return;
    out.push_back(std::move(shard.current));
  };
  for (Shard* shard : shards_) take(*shard);
  take(common_);
  return out;
}

void ActivityRecorder::flush(bool forced) {
  const std::int64_t now = now_ns();
  for (BufferPtr& buffer : collect(forced, true, now)) deliver(std::move(buffer), now);
}

void ActivityRecorder::set_period(std::uint32_t ms) {
  period_ms_.store(ms);
  const std::lock_guard lock(mutex_);
  kicked_ = true;
  wake_.notify_one();
}

void ActivityRecorder::start_worker() {
  if (worker_started_) return;
  worker_started_ = true;
  // Locks that other threads held at a fork are held for good in the child.
  pthread_atfork(nullptr, nullptr, +[] {
    SimHooks& hooks = *gpuflight_sim_hooks();
    hooks.on_kernel.store(nullptr);
    hooks.on_copy.store(nullptr);
    hooks.on_fill.store(nullptr);
    hooks.on_graph.store(nullptr);
    hooks.activity.store(false);
  });
  kicked_ = true;
  static std::once_flag fork_handlers;
  std::call_once(fork_handlers, [] {
    pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); }, &on_child);
  });
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([this] { work(); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// A forked child, which has no worker and nothing to deliver: what is in the buffers is its parent's.
void ActivityRecorder::on_child() {
  ActivityRecorder& recorder = instance();
  recorder.worker_started_ = false;
  recorder.enabled_.clear();
  recorder.set_hooks();
  static_cast<void>(recorder.spare_.release());
  for (BufferPtr& buffer : recorder.full_) static_cast<void>(buffer.release());
  recorder.full_.clear();
  for (Shard* shard : recorder.shards_) static_cast<void>(shard->current.release());
  static_cast<void>(recorder.common_.current.release());
  recorder.mutex_.unlock();
}

void ActivityRecorder::work() {
  std::int64_t last_flush = now_ns();
  for (;;) {
    bool want_spare = false;
    {
      std::unique_lock lock(mutex_);
      using std::chrono::milliseconds;
      const std::uint32_t period = period_ms_.load();
      // Full buffers wait for the virtual time of their last record: look again soon.
      const auto nap = !full_.empty() ? milliseconds(1) : milliseconds(period != 0 ? std::min(period, 50u) : 50u);
      wake_.wait_for(lock, nap, [this] { return kicked_; });
      kicked_ = false;
      want_spare = spare_ == nullptr && !enabled_.empty() && !gpuflight_sim_config()->buffers_on_app_threads;
    }
    if (want_spare) {
      BufferPtr fresh = request_buffer();
      const std::lock_guard lock(mutex_);
      if (spare_ == nullptr) {
        spare_ = std::move(fresh);
      } else if (fresh != nullptr) {
        full_.push_back(std::move(fresh));
      }
    }
    const std::int64_t now = now_ns();
    const std::uint32_t period = period_ms_.load();
    const bool due = period != 0 && now - last_flush >= std::int64_t{period} * 1'000'000;
    if (due) last_flush = now;
    for (BufferPtr& buffer : collect(false, due, now)) deliver(std::move(buffer), now);
  }
}

}  // namespace gpuflight::sim
