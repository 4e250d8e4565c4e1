#include "log/encoder.h"

#include <cstring>

#include "log/line.h"

namespace gpuflight::log {
namespace {

using event::Limiter;

constexpr std::string_view kEventStart = R"({"type":"kernel_event",)";
constexpr std::string_view kSummaryStart = R"({"type":"kernel_summary",)";
constexpr std::string_view kGraphKernelStart = R"({"type":"graph_kernel",)";
constexpr std::string_view kGridKey = R"(,"grid":)";
constexpr std::string_view kWavesKey = R"(,"waves":)";

// All of a kernel_event but its rendered parts: 15 keys of at most 16 characters with their values.
constexpr std::size_t kLaunchChars = 704;

template <std::size_t N>
char* put(char* to, const char (&literal)[N]) noexcept {
  std::memcpy(to, literal, N - 1);
  return to + N - 1;
}

char* put_text(char* to, std::string_view text) noexcept {
  std::memcpy(to, text.data(), text.size());
  return to + text.size();
}

template <std::size_t N, class T>
char* put_maybe(char* to, const char (&key)[N], const std::optional<T>& value) noexcept {
  to = put(to, key);
  return value ? write_int(to, *value) : put(to, "null");
}

template <std::size_t N>
char* put_id(char* to, const char (&key)[N], std::uint32_t value) noexcept {
  to = put(to, key);
  return value != 0 ? write_int(to, value) : put(to, "null");
}

std::int64_t warps(const event::Occupancy& o, std::int64_t blocks) noexcept {
  return blocks < 0 || o.warps_per_block <= 0 ? -1 : blocks * o.warps_per_block;
}

// The blocks one limit allows, as share of the SM's warps. A resource that is not used does not limit.
void limit_share(Members& m, std::string_view name, const event::Occupancy& o, Limiter limiter, bool unused) noexcept {
  const std::int32_t blocks = o.limit_blocks[static_cast<std::size_t>(limiter)];
  if (blocks < 0 && unused && o.max_warps_per_sm > 0) return m.raw(name, "1.0");
  m.share(name, warps(o, blocks), o.max_warps_per_sm);
}

void limiters(Members& m, const event::Occupancy& o) noexcept {
  const auto first = static_cast<std::size_t>(o.limiter);
  if (o.source == event::OccupancySource::kNone || o.limiters == 0 || first >= event::kLimiterCount) {
    m.null("limiting_resource");
    m.null("limiting_resources");
    return;
  }
  m.text("limiting_resource", event::kLimiterNames[first]);
  m.open("limiting_resources", '[');
  for (std::size_t i = 0; i < event::kLimiterCount; ++i) {
    if (o.limiters & event::limiter_bit(static_cast<Limiter>(i))) m.element(event::kLimiterNames[i]);
  }
  m.close(']');
}

void occupancy_part(Members& m, const event::KernelInfo& k, const event::LaunchShape& shape,
                    const event::Occupancy& o) noexcept {
  m.known("max_active_blocks", o.max_active_blocks);
  limit_share(m, "reg_occupancy", o, Limiter::kRegisters, k.num_regs == 0);
  limit_share(m, "smem_occupancy", o, Limiter::kSharedMem, k.static_shared_bytes == 0 && shape.dyn_shared_bytes == 0);
  limit_share(m, "warp_occupancy", o, Limiter::kWarps, false);
  limit_share(m, "block_occupancy", o, Limiter::kBlocks, false);
  limiters(m, o);
  limit_share(m, "barrier_occupancy", o, Limiter::kBarriers, false);
  limit_share(m, "cluster_occupancy", o, Limiter::kCluster, false);
  m.open("limit_blocks", '{');
  for (std::size_t i = 0; i < event::kLimiterCount; ++i) {
    // No count says "as many as you like": what does not limit has a share of 1.0 and no blocks.
    const std::int32_t blocks = o.limit_blocks[i];
    m.known(event::kLimiterNames[i], blocks == event::kUnlimitedBlocks ? -1 : blocks);
  }
  m.close('}');
  switch (o.source) {
    case event::OccupancySource::kDriver: m.text("occupancy_source", "driver"); break;
    case event::OccupancySource::kModel: m.text("occupancy_source", "model"); break;
    default: m.null("occupancy_source");
  }
  if (o.model_disagrees) m.known("model_blocks", o.model_blocks);
  if (shape.cluster.x != 0) m.known("max_active_clusters", o.max_active_clusters);
  m.known("local_bytes_per_thread", k.local_bytes_per_thread);
  m.known("max_threads_per_block", k.max_threads_per_block);
  m.known("binary_version", k.binary_version);
}

void shape_part(Members& m, const event::KernelInfo* k, const event::LaunchShape* shape) noexcept {
  if (k == nullptr || shape == nullptr) {
    for (const auto* name : {"cluster", "cooperative", "carveout", "module_hash"}) m.null(name);
    return;
  }
  shape->cluster.x != 0 ? m.dim("cluster", shape->cluster) : m.null("cluster");
  m.boolean("cooperative", shape->cooperative);
  m.known("carveout", shape->carveout);
  k->module_hash != 0 ? m.hex("module_hash", "", k->module_hash, 16) : m.null("module_hash");
}

}  // namespace

void RenderedConfig::render(const event::KernelInfo* kernel, const event::KernelConfig* config, event::ConfigId id,
                            std::int32_t sm_count) noexcept {
  const bool known = kernel != nullptr && config != nullptr;
  const event::KernelInfo no_kernel{};
  const event::KernelConfig no_config{};
  const event::KernelInfo& k = known ? *kernel : no_kernel;
  const event::KernelConfig& c = known ? *config : no_config;
  const event::Occupancy& o = c.occupancy;

  text_.append(kEventStart);
  Members head(text_, true);
  name_at_ = text_.size();
  known ? head.text("name", k.name) : head.null("name");
  name_end_ = text_.size();
  if (details_) {
    head.share("occupancy", warps(o, o.max_active_blocks), o.max_warps_per_sm);
    head.known("num_regs", k.num_regs);
    head.known("static_shared_bytes", k.static_shared_bytes);
  }
  head.known("dyn_shared_bytes", known ? std::int64_t{c.shape.dyn_shared_bytes} : -1);
  known ? head.dim("block", c.shape.block) : head.null("block");
  shape_end_ = text_.size();

  text_.append(kGridKey);
  grid_at_ = text_.size();

  Members rest(text_, false);
  if (details_) occupancy_part(rest, k, c.shape, o);
  shape_part(rest, known ? &k : nullptr, &c.shape);
  rest.id("config", id.value);
  rest_end_ = text_.size();
  if (details_) text_.append(kWavesKey);

  if (o.max_active_blocks > 0 && sm_count > 0) {
    blocks_per_wave_ = static_cast<std::uint64_t>(o.max_active_blocks) * static_cast<std::uint64_t>(sm_count);
  }
  valid_ = !text_.failed();
  text_.shrink();
  render_grid({1, 1, 1});
}

void RenderedConfig::render_grid(event::Dim3 grid) noexcept {
  grid_ = grid;
  char* end = grid_text_;
  *end++ = '"';
  end = write_dim(end, grid);
  *end++ = '"';
  grid_chars_ = static_cast<std::uint8_t>(end - grid_text_);
  if (!details_) {
    waves_chars_ = 0;
    return;
  }
  end = blocks_per_wave_ != 0 ? write_ratio(waves_text_, grid.count(), blocks_per_wave_) : put(waves_text_, "null");
  waves_chars_ = static_cast<std::uint8_t>(end - waves_text_);
}

RenderedConfig render_config(const event::KernelInfo& kernel, const event::KernelConfig& config, event::ConfigId id,
                             bool details, std::int32_t sm_count) noexcept {
  RenderedConfig rendered;
  rendered.details_ = details;
  rendered.render(&kernel, &config, id, sm_count);
  return rendered;
}

RenderedConfig render_unknown_config(bool details) noexcept {
  RenderedConfig rendered;
  rendered.details_ = details;
  rendered.render(nullptr, nullptr, event::ConfigId{}, 0);
  return rendered;
}

RenderedStream::RenderedStream() noexcept {
  char* end = put(text.data(), R"(,"device":null,"context":null,"stream":null)");
  chars = static_cast<std::uint8_t>(end - text.data());
}

RenderedStream render_stream(const event::StreamInfo& stream) noexcept {
  RenderedStream rendered;
  char* end = put(rendered.text.data(), R"(,"device":)");
  end = stream.device >= 0 ? write_int(end, stream.device) : put(end, "null");
  end = put_id(end, R"(,"context":)", stream.context.value);
  end = put_id(end, R"(,"stream":)", stream.stream.value);
  rendered.chars = static_cast<std::uint8_t>(end - rendered.text.data());
  return rendered;
}

bool append_kernel_event(Buffer& out, RenderedConfig& config, const RenderedStream& stream, std::string_view scope,
                         const event::KernelLaunch& launch) noexcept {
  char* const start =
      config.valid_ ? out.reserve(config.text_.size() + stream.chars + scope.size() + kLaunchChars) : nullptr;
  if (start == nullptr) {
    out.drop_line();
    return false;
  }
  if (launch.grid != config.grid_) config.render_grid(launch.grid);
  const std::string_view text = config.text_.view();
  char* to = put_text(start, text.substr(0, config.grid_at_));
  to = put_text(to, {config.grid_text_, config.grid_chars_});
  to = put_text(to, text.substr(config.grid_at_));
  to = put_text(to, {config.waves_text_, config.waves_chars_});
  to = put_text(to, stream.view());
  to = put(to, R"(,"scope":)");
  to = scope.empty() ? put(to, "null") : put_text(to, scope);
  to = put_id(to, R"(,"thread":)", launch.thread);
  to = write_int(put(to, R"(,"seq":)"), launch.seq.value);
  to = put_id(to, R"(,"correlation":)", launch.correlation.value);
  to = write_int(put(to, R"(,"launch_ns":)"), launch.launch_ns);
  to = put_maybe(to, R"(,"call_ns":)", launch.call_ns);
  to = put_maybe(to, R"(,"status":)", launch.status);
  to = put_maybe(to, R"(,"start_ns":)", launch.start_ns);
  to = put_maybe(to, R"(,"end_ns":)", launch.end_ns);
  event::MaybeNs queue;
  if (launch.start_ns && !launch.unlaunched) queue = *launch.start_ns - launch.launch_ns;
  to = put_maybe(to, R"(,"duration_ns":)", launch.gpu_ns());
  to = put_maybe(to, R"(,"queue_ns":)", queue);
  to = put_id(to, R"(,"graph":)", launch.graph.value);
  to = put_maybe(to, R"(,"graph_node":)", launch.graph_node);
  to = launch.captured ? put(to, R"(,"captured":true)") : put(to, R"(,"captured":false)");
  if (launch.late) to = put(to, R"(,"late":true)");
  if (queue && *queue < 0) to = put(to, R"(,"queue_negative":true)");
  if (launch.unlaunched) to = put(to, R"(,"unlaunched":true)");
  if (launch.between) to = put_maybe(to, R"(,"launch_error_ns":)", launch.launch_error_ns);
  if (launch.by_events.duration_ns) {
    to = put_maybe(to, R"(,"time_source":"events","error_ns":)", launch.by_events.error_ns);
  }
  to = put(to, "}\n");
  out.commit_line(static_cast<std::size_t>(to - start));
  return true;
}

bool append_kernel_summary(Buffer& out, const RenderedConfig& config, const event::KernelSummary& s) noexcept {
  if (!config.valid_) {
    out.drop_line();
    return false;
  }
  out.begin_line();
  const std::string_view text = config.text_.view();
  out.append(kSummaryStart);
  out.append(text.substr(kEventStart.size(), config.shape_end_ - kEventStart.size()));
  out.append(text.substr(config.grid_at_, config.rest_end_ - config.grid_at_));
  Members m(out, false);
  m.number("seq", s.seq.value);
  m.number("from_ns", s.from_ns);
  m.number("to_ns", s.to_ns);
  m.boolean("session", s.session);
  m.number("count", s.count);
  m.number("failed", s.failed);
  m.number("captured", s.captured);
  m.number("replayed", s.replayed);
  m.number("call_total_ns", s.call_total_ns);
  m.number("calls_timed", s.calls_timed);
  m.maybe("call_min_ns", s.call_min_ns);
  m.maybe("call_max_ns", s.call_max_ns);
  m.number("timed", s.timed);
  m.maybe("total_ns", s.total_ns);
  m.maybe("min_ns", s.min_ns);
  m.maybe("max_ns", s.max_ns);
  m.maybe("p50_ns", s.p50_ns);
  m.maybe("p95_ns", s.p95_ns);
  m.maybe("p99_ns", s.p99_ns);
  out.append('}');
  return out.end_line();
}

bool append_graph_launch_event(Buffer& out, const RenderedStream& stream, std::string_view scope,
                               const event::GraphLaunch& launch) noexcept {
  Line line(out, "graph_launch_event");
  line.id("graph", launch.graph.value);
  line.rendered(stream.view().substr(1));
  line.raw("scope", scope.empty() ? "null" : scope);
  line.id("thread", launch.thread);
  line.number("seq", launch.seq.value);
  line.id("correlation", launch.correlation.value);
  line.number("launch_ns", launch.launch_ns);
  line.maybe("call_ns", launch.call_ns);
  line.maybe("status", launch.status);
  line.maybe("start_ns", launch.start_ns);
  line.maybe("end_ns", launch.end_ns);
  line.maybe("duration_ns", event::elapsed_ns(launch.start_ns, launch.end_ns));
  line.boolean("captured", launch.captured);
  line.id("contents", launch.contents.value);
  launch.node_events ? line.boolean("node_events", *launch.node_events) : line.null("node_events");
  return line.end();
}

bool append_graph_info(Buffer& out, const event::GraphInfo& graph) noexcept {
  Line line(out, "graph_info");
  line.number("contents", graph.contents.value);
  line.number("seq", graph.seq.value);
  line.open("nodes", '{');
  for (std::size_t i = 0; i < event::kNodeKindCount; ++i) line.number(event::kNodeKindNames[i], graph.nodes[i]);
  line.close('}');
  line.number("disabled", graph.disabled);
  line.number("kernels", graph.kernels);
  return line.end();
}

bool append_graph_kernel(Buffer& out, const RenderedConfig& config, const event::GraphKernelInfo& info) noexcept {
  if (!config.valid_) {
    out.drop_line();
    return false;
  }
  out.begin_line();
  const std::string_view text = config.text_.view();
  out.append(kGraphKernelStart);
  out.append(text.substr(kEventStart.size(), config.shape_end_ - kEventStart.size()));
  Members m(out, false);
  m.dim("grid", info.kernel.grid);
  out.append(text.substr(config.grid_at_, config.rest_end_ - config.grid_at_));
  m.known("device", info.device);
  m.number("seq", info.seq.value);
  m.number("contents", info.contents.value);
  m.number("count", info.kernel.count);
  out.append('}');
  return out.end_line();
}

bool append_scope_event(Buffer& out, std::string_view scope, const event::ScopeEvent& event) noexcept {
  Line line(out, "scope_event");
  switch (event.phase) {
    case event::ScopeEvent::Phase::kBegin: line.text("phase", "begin"); break;
    case event::ScopeEvent::Phase::kEnd: line.text("phase", "end"); break;
    default: line.text("phase", "mark");
  }
  line.raw("scope", scope.empty() ? "null" : scope);
  line.id("thread", event.thread);
  line.number("seq", event.seq.value);
  line.number("time_ns", event.time_ns);
  if (event.range != 0) line.number("range", event.range);
  return line.end();
}

bool is_ring_event(std::string_view line) noexcept {
  constexpr std::string_view kStart = R"({"type":")";
  if (!line.starts_with(kStart)) return false;
  line.remove_prefix(kStart.size());
  return line.starts_with("kernel_event\"") || line.starts_with("graph_launch_event\"") ||
         line.starts_with("scope_event\"") || line.starts_with("sync_event\"") || line.starts_with("api_event\"") ||
         line.starts_with("memcpy_event\"") || line.starts_with("memset_event\"") ||
         line.starts_with("memory_event\"") || line.starts_with("stream_edge\"");
}

}  // namespace gpuflight::log
