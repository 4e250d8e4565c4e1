#include "recorder/line_writer.h"

#include <utility>

#include "flight/record_event.h"

namespace gpuflight::recorder {
namespace {

// Lines whose time is further than this behind a line already written are flagged late (docs/FORMAT.md, "Order").
constexpr std::int64_t kOrderWindowNs = 1'000'000'000;

using flight::RecordKind;
using flight::RecordPhase;

}  // namespace

LineWriter::LineWriter(const Parts& parts, bool details, std::size_t batch_bytes, std::size_t repeat_bytes)
    : parts_(parts),
      details_(details),
      batch_bytes_(batch_bytes),
      repeat_bytes_(repeat_bytes),
      unknown_config_(log::render_unknown_config(details)) {
  buffer_.reserve(batch_bytes_ + 128 * 1024);
}

// What the batch that is being written refers to stands in it too, also where the batch has it: it may be split here.
void LineWriter::append_prologue(log::Buffer& out, std::uint32_t segment) noexcept {
  log::append_session_start(out, session_, segment);
  for (int i = 0; i < capture::DeviceQuery::kMaxDevices; ++i) {
    const event::Seq seq = device_seqs_[static_cast<std::size_t>(i)];
    if (seq.value != 0) log::append_device_info(out, *parts_.devices.known(i), seq);
  }
  for (std::uint32_t id = 1; id < streams_written_; ++id) {
    if (const event::StreamInfo* const stream = parts_.streams.row(id)) {
      event::StreamInfo line = *stream;
      line.seq = stream_seqs_[id];
      log::append_stream_info(out, line);
    }
  }
  segment_ = segment;
  repeated_bytes_ = 0;
  for (const event::ContentsId id : batch_contents_) {
    if (may_repeat(id)) append_contents(out, id, contents_[id.value].seq);
    contents_[id.value].segment = segment;
  }
}

bool LineWriter::is_late(std::int64_t time_ns) const noexcept { return time_ns + kOrderWindowNs < newest_ns_; }

bool LineWriter::counted(bool written, std::int64_t time_ns) noexcept {
  if (!written) return false;
  ++buffered_events_;
  if (time_ns > newest_ns_) newest_ns_ = time_ns;
  return true;
}

bool LineWriter::record(const flight::Record& record, RecordPhase phase, event::Seq seq) noexcept {
  switch (static_cast<RecordKind>(record.kind)) {
    case RecordKind::kKernelLaunch:
      return kernel(flight::to_kernel_launch(record, phase, seq));
    case RecordKind::kGraphLaunch:
      return graph(flight::to_graph_launch(record, phase, seq));
    case RecordKind::kApiCall: {
      rendered_stream(record.stream);
      const std::string_view scope = rendered_scope(record.scope);
      return counted(parts_.calls.append(buffer_, scope, record, phase, seq, is_late(record.launch_ns)),
                     record.launch_ns);
    }
    default:
      return counted(
          log::append_scope_event(buffer_, rendered_scope(record.scope), flight::to_scope_event(record, seq)),
          record.launch_ns);
  }
}

// The stream first, in each: one that is new writes its stream_info line into the buffer.
bool LineWriter::kernel(event::KernelLaunch launch) noexcept {
  launch.late = is_late(launch.launch_ns);
  const log::RenderedStream& stream = rendered_place(launch.stream.value, launch.device);
  return counted(log::append_kernel_event(buffer_, rendered_config(launch.config.value), stream,
                                          rendered_scope(launch.scope.value), launch),
                 launch.launch_ns);
}

bool LineWriter::graph(event::GraphLaunch launch) noexcept {
  if (!launch.node_events) launch.node_events = parts_.nodes.of(launch);
  if (launch.contents) write_contents(launch.contents);
  const log::RenderedStream& stream = rendered_stream(launch.stream.value);
  return counted(log::append_graph_launch_event(buffer_, stream, rendered_scope(launch.scope.value), launch),
                 launch.launch_ns);
}

template <class Event>
bool LineWriter::work(Event event, AppendWork<Event> append) noexcept {
  const std::int64_t time_ns = event.origin.launch_ns.value_or(event.start_ns.value_or(newest_ns_));
  event.late = is_late(time_ns);
  const log::RenderedStream& stream = rendered_place(event.stream.value, event.device);
  return counted(append(buffer_, stream, rendered_scope(event.origin.scope.value), event), time_ns);
}

bool LineWriter::copy(const event::MemcpyEvent& copy) noexcept { return work(copy, log::append_memcpy_event); }

bool LineWriter::fill(const event::MemsetEvent& fill) noexcept { return work(fill, log::append_memset_event); }

void LineWriter::summary(event::KernelSummary summary) noexcept {
  summary.seq = own_seq();
  log::append_kernel_summary(buffer_, rendered_config(summary.config.value), summary);
}

void LineWriter::time(event::KernelTime time) noexcept {
  time.seq = own_seq();
  const log::RenderedStream& stream = rendered_stream(time.stream.value);
  log::append_kernel_time(buffer_, rendered_config(time.config.value), stream, time);
}

void LineWriter::pending(event::KernelPending pending) noexcept {
  pending.seq = own_seq();
  const log::RenderedStream& stream = rendered_stream(pending.stream.value);
  log::append_kernel_pending(buffer_, rendered_config(pending.config.value), stream, pending);
}

void LineWriter::say(event::Notice notice) noexcept {
  notice.seq = own_seq();
  if (notice.time_ns == 0) notice.time_ns = parts_.launches.now_ns();
  log::append_notice_event(buffer_, notice);
}

void LineWriter::error(event::ErrorEvent error) noexcept {
  error.seq = own_seq();
  log::append_error_event(buffer_, error);
}

void LineWriter::hang(event::HangEvent hang) noexcept {
  hang.seq = own_seq();
  log::append_hang_event(buffer_, hang);
}

void LineWriter::fork(event::ForkEvent fork) noexcept {
  fork.seq = own_seq();
  log::append_fork_event(buffer_, fork);
}

void LineWriter::clock(event::ClockEvent clock) noexcept {
  clock.seq = own_seq();
  log::append_clock_event(buffer_, clock);
}

void LineWriter::level(event::LevelEvent level) noexcept {
  level.seq = own_seq();
  log::append_level_event(buffer_, level);
}

bool LineWriter::loss(event::LossEvent loss) noexcept {
  loss.seq = own_seq();
  return log::append_loss_event(buffer_, loss);
}

void LineWriter::end(event::SessionEnd end) noexcept {
  end.seq = own_seq();
  log::append_session_end(buffer_, end);
}

// Caches by id, filled on first sight. Without memory the unknown one serves: a line with nulls beats no line.
log::RenderedConfig& LineWriter::rendered_config(std::uint32_t id) noexcept {
  if (id == 0) return unknown_config_;
  try {
    if (id >= configs_.size()) configs_.resize(id + 1);
    if (!configs_[id].valid()) {
      const event::KernelConfig* const config = parts_.kernels.config(event::ConfigId{id});
      const event::KernelInfo* const kernel = config != nullptr ? parts_.kernels.kernel(config->kernel) : nullptr;
      if (kernel == nullptr) return unknown_config_;
      const event::DeviceInfo* const device = parts_.devices.known(kernel->device);
      configs_[id] =
          log::render_config(*kernel, *config, event::ConfigId{id}, details_, device != nullptr ? device->sm_count : 0);
    }
    return configs_[id].valid() ? configs_[id] : unknown_config_;
  } catch (...) {
    return unknown_config_;
  }
}

const log::RenderedStream& LineWriter::rendered_stream(std::uint32_t id) noexcept {
  if (id >= streams_written_) write_new_streams();
  return id != 0 && id < streams_.size() ? streams_[id] : unknown_stream_;
}

// Of a copy in a stream that nothing was launched into only the GPU tells where it ran.
const log::RenderedStream& LineWriter::rendered_place(std::uint32_t stream, std::int32_t device) noexcept {
  if (stream != 0 || device < 0) return rendered_stream(stream);
  const auto at = static_cast<std::size_t>(device);
  if (at >= device_places_.size()) return unknown_stream_;
  if (!device_places_[at]) {
    event::StreamInfo nowhere;
    nowhere.device = device;
    device_places_[at] = log::render_stream(nowhere);
  }
  return *device_places_[at];
}

std::string_view LineWriter::rendered_scope(std::uint32_t id) noexcept {
  if (id == 0) return {};
  try {
    if (id >= scopes_.size()) scopes_.resize(id + 1);
    if (scopes_[id].empty()) {
      if (const std::string* const path = parts_.scopes.path(event::ScopeId{id})) {
        log::Buffer text;
        log::append_json_string(text, *path);
        scopes_[id] = text.view();
      }
    }
    return scopes_[id];
  } catch (...) {
    return {};
  }
}

void LineWriter::write_new_devices() noexcept {
  for (int i = 0; i < capture::DeviceQuery::kMaxDevices; ++i) {
    event::Seq& written = device_seqs_[static_cast<std::size_t>(i)];
    if (written.value != 0) continue;
    const event::DeviceInfo* const device = parts_.devices.known(i);
    if (device == nullptr) continue;
    const event::Seq seq = own_seq();
    if (log::append_device_info(buffer_, *device, seq)) written = seq;
  }
}

// Once a segment, before the first launch of it that refers to them.
void LineWriter::write_contents(event::ContentsId id) noexcept {
  try {
    if (id.value >= contents_.size()) contents_.resize(id.value + 1);
    Contents& known = contents_[id.value];
    if (known.segment == segment_ && known.batch == batch_) return;
    if (known.batch != batch_) batch_contents_.push_back(id);
    known.batch = batch_;
    if (std::exchange(known.segment, segment_) == segment_) return;
    const event::GraphContents* const contents = parts_.graphs.contents(id);
    if (contents == nullptr) return;
    if (known.seq.value == 0) {
      known.seq = own_seq();
      own_counter_ += contents->kernels.size();
    } else if (!may_repeat(id)) {
      return;
    }
    append_contents(buffer_, id, known.seq);
  } catch (...) {
  }
}

// Contents that a small segment has no room for are told by an earlier one alone.
bool LineWriter::may_repeat(event::ContentsId id) noexcept {
  constexpr std::size_t kLineBytes = 1000;
  const event::GraphContents* const contents = parts_.graphs.contents(id);
  if (contents == nullptr) return false;
  const std::size_t bytes = (contents->kernels.size() + 1) * kLineBytes;
  if (repeated_bytes_ + bytes > repeat_bytes_) return false;
  repeated_bytes_ += bytes;
  return true;
}

void LineWriter::append_contents(log::Buffer& out, event::ContentsId id, event::Seq first) noexcept {
  const event::GraphContents* const contents = parts_.graphs.contents(id);
  if (contents == nullptr) return;
  log::append_graph_info(out, {first, id, contents->nodes, contents->disabled, contents->kernels.size()});
  event::GraphKernelInfo line;
  line.seq = first;
  line.contents = id;
  for (const event::GraphKernel& kernel : contents->kernels) {
    ++line.seq.value;
    line.kernel = kernel;
    const event::KernelConfig* const config = parts_.kernels.config(kernel.config);
    const event::KernelInfo* const info = config != nullptr ? parts_.kernels.kernel(config->kernel) : nullptr;
    line.device = info != nullptr ? info->device : -1;
    log::append_graph_kernel(out, rendered_config(kernel.config.value), line);
  }
}

void LineWriter::write_new_streams() noexcept {
  write_new_devices();
  try {
    for (const std::uint32_t used = parts_.streams.used(); streams_written_ < used; ++streams_written_) {
      if (streams_.size() <= streams_written_) streams_.resize(streams_written_ + 1);
      if (stream_seqs_.size() <= streams_written_) stream_seqs_.resize(streams_written_ + 1);
      const event::StreamInfo* const row = parts_.streams.row(streams_written_);
      if (row == nullptr) continue;
      event::StreamInfo line = *row;
      line.seq = stream_seqs_[streams_written_] = own_seq();
      log::append_stream_info(buffer_, line);
      streams_[streams_written_] = log::render_stream(*row);
    }
  } catch (...) {
  }
}

}  // namespace gpuflight::recorder
