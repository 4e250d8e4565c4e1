// Events to lines of the log (docs/FORMAT.md). Each append_X adds one whole line and returns true, or, when memory
// runs out, adds nothing, counts the line in Buffer::dropped_lines() and returns false.
// What is the same for every launch of a configuration is rendered once and copied.
// Threads: one at a time per Buffer and RenderedConfig (the recorder thread). Blocks: no. Never throws.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "event/activity.h"
#include "event/api_call.h"
#include "event/events.h"
#include "event/incidents.h"
#include "event/kernel_config.h"
#include "event/level.h"
#include "log/buffer.h"
#include "log/json_text.h"

namespace gpuflight::log {

struct RenderedStream;

// One configuration as it stands in its lines. Remembers the last grid, since most configurations have only one.
class RenderedConfig {
 public:
  RenderedConfig() = default;
  // False: no memory for it, or default-made; lines made with it are dropped and counted.
  bool valid() const noexcept { return valid_; }
  std::size_t bytes() const noexcept { return sizeof(*this) + text_.capacity(); }
  // "name":"..." or "name":null
  std::string_view name_pair() const noexcept { return text_.view().substr(name_at_, name_end_ - name_at_); }

 private:
  friend RenderedConfig render_config(const event::KernelInfo&, const event::KernelConfig&, event::ConfigId, bool,
                                      std::int32_t) noexcept;
  friend RenderedConfig render_unknown_config(bool) noexcept;
  friend bool append_kernel_event(Buffer&, RenderedConfig&, const RenderedStream&, std::string_view,
                                  const event::KernelLaunch&) noexcept;
  friend bool append_graph_kernel(Buffer&, const RenderedConfig&, const event::GraphKernelInfo&) noexcept;
  friend bool append_kernel_summary(Buffer&, const RenderedConfig&, const event::KernelSummary&) noexcept;
  // Null pointers: not known.
  void render(const event::KernelInfo* kernel, const event::KernelConfig* config, event::ConfigId id,
              std::int32_t sm_count) noexcept;
  void render_grid(event::Dim3 grid) noexcept;

  // {"type":"kernel_event","name":...,"block":"(256,1,1)" | ,"grid": | ,"max_active_blocks":... | ,"waves":
  Buffer text_;
  std::size_t name_at_ = 0, name_end_ = 0;
  std::size_t shape_end_ = 0;  // the bars above
  std::size_t grid_at_ = 0;
  std::size_t rest_end_ = 0;
  bool valid_ = false;
  bool details_ = false;
  std::uint64_t blocks_per_wave_ = 0;  // 0: not known
  event::Dim3 grid_{0, 0, 0};
  std::uint8_t grid_chars_ = 0, waves_chars_ = 0;
  char grid_text_[40];
  char waves_text_[kMaxRatioChars];
};

// A stream's part of the line. Default-made: not known, its values are null.
struct RenderedStream {
  std::array<char, 112> text;
  std::uint8_t chars = 0;
  RenderedStream() noexcept;
  std::string_view view() const noexcept { return {text.data(), chars}; }
};

// `details` off: without the occupancy part. `sm_count` of the kernel's device, for `waves`; <= 0: not known.
RenderedConfig render_config(const event::KernelInfo& kernel, const event::KernelConfig& config, event::ConfigId id,
                             bool details, std::int32_t sm_count) noexcept;
// A launch whose kernel or configuration found no room in the table: its values are null. One serves all.
RenderedConfig render_unknown_config(bool details) noexcept;
RenderedStream render_stream(const event::StreamInfo& stream) noexcept;

// `scope`: made by append_json_string from the scope's path (outermost first, joined by '/'); empty: none.
bool append_kernel_event(Buffer& out, RenderedConfig& config, const RenderedStream& stream, std::string_view scope,
                         const event::KernelLaunch& launch) noexcept;
bool append_graph_launch_event(Buffer& out, const RenderedStream& stream, std::string_view scope,
                               const event::GraphLaunch& launch) noexcept;
// What graph launches run: this line, and one for each of its kernels.
bool append_graph_info(Buffer& out, const event::GraphInfo& graph) noexcept;
bool append_graph_kernel(Buffer& out, const RenderedConfig& config, const event::GraphKernelInfo& kernel) noexcept;
bool append_scope_event(Buffer& out, std::string_view scope, const event::ScopeEvent& event) noexcept;
bool append_kernel_summary(Buffer& out, const RenderedConfig& config, const event::KernelSummary& summary) noexcept;

// `segment`: 1 for the first file of a recording; a rotated log starts each file with this line again, same `seq`.
bool append_session_start(Buffer& out, const event::SessionStart& session, std::uint32_t segment) noexcept;
bool append_device_info(Buffer& out, const event::DeviceInfo& device, event::Seq seq) noexcept;
bool append_stream_info(Buffer& out, const event::StreamInfo& stream) noexcept;
bool append_notice_event(Buffer& out, const event::Notice& notice) noexcept;
bool append_loss_event(Buffer& out, const event::LossEvent& loss) noexcept;
bool append_session_end(Buffer& out, const event::SessionEnd& end) noexcept;

// Calls that may wait: sync_event for synchronisations, api_event for the others.
bool append_api_event(Buffer& out, std::string_view scope, const event::ApiEvent& call) noexcept;
bool append_error_event(Buffer& out, const event::ErrorEvent& error) noexcept;
bool append_hang_event(Buffer& out, const event::HangEvent& hang) noexcept;
bool append_fork_event(Buffer& out, const event::ForkEvent& fork) noexcept;
bool append_exit_event(Buffer& out, const event::ExitEvent& exit) noexcept;
bool append_level_event(Buffer& out, const event::LevelEvent& level) noexcept;

// GPU work other than kernels, memory, edges between streams, clocks. `stream` as for kernels.
bool append_memcpy_event(Buffer& out, const RenderedStream& stream, std::string_view scope,
                         const event::MemcpyEvent& copy) noexcept;
bool append_memset_event(Buffer& out, const RenderedStream& stream, std::string_view scope,
                         const event::MemsetEvent& fill) noexcept;
bool append_memory_event(Buffer& out, std::string_view scope, const event::MemoryEvent& memory) noexcept;
bool append_stream_edge(Buffer& out, std::string_view scope, const event::StreamEdge& edge) noexcept;
// `config` for the kernel's name.
bool append_kernel_time(Buffer& out, const RenderedConfig& config, const RenderedStream& stream,
                        const event::KernelTime& time) noexcept;
bool append_kernel_pending(Buffer& out, const RenderedConfig& config, const RenderedStream& stream,
                           const event::KernelPending& pending) noexcept;
bool append_clock_event(Buffer& out, const event::ClockEvent& clock) noexcept;

// Whether a line is one of those that the ledger counts (kernel_event, graph_launch_event, scope_event, sync_event,
// api_event, memcpy_event, memset_event, memory_event, stream_edge): written for one record of a ring or one record of
// the GPU's that belongs to none. Looks at the line's beginning only.
bool is_ring_event(std::string_view line) noexcept;

}  // namespace gpuflight::log
