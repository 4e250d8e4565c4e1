// Writes a log through the recorder's own encoder and sink, so that the tests of the command line read what is really
// written: rotation, compression, an end or none.
//
//   cli_log_writer PATH [--events N] [--kernels N] [--segment BYTES] [--batch N] [--pause-us N] [--no-end] [--pid N]
//                  [--compress] [--lost N] [--failed-every N] [--max BYTES] [--steps N]
//
// --steps N: instead of launches without times N steps of cli_timeline.cpp.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cli_timeline.h"
#include "event/board.h"
#include "event/schema_version.h"
#include "log/encoder.h"
#include "log/sink.h"

using namespace gpuflight;

namespace {

struct Settings {
  std::string path;
  std::uint64_t events = 10, kernels = 2, segment = 64 << 20, batch = 100, pause_us = 0, lost = 0, failed_every = 0;
  std::uint64_t max_bytes = 0, steps = 0;
  long pid = 4711;
  bool end = true, compress = false;
};

Settings parse(int argc, char** argv) {
  Settings s;
  s.path = argc > 1 ? argv[1] : "";
  for (int i = 2; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--no-end") s.end = false;
    else if (name == "--compress") s.compress = true;
    else if (i + 1 < argc) {
      const std::uint64_t value = std::strtoull(argv[++i], nullptr, 10);
      if (name == "--events") s.events = value;
      if (name == "--kernels") s.kernels = value;
      if (name == "--segment") s.segment = value;
      if (name == "--batch") s.batch = value;
      if (name == "--pause-us") s.pause_us = value;
      if (name == "--lost") s.lost = value;
      if (name == "--failed-every") s.failed_every = value;
      if (name == "--steps") s.steps = value;
      if (name == "--max") s.max_bytes = value;
      if (name == "--pid") s.pid = static_cast<long>(value);
    }
  }
  return s;
}

event::SessionStart session(const Settings& s) {
  event::SessionStart start;
  start.library_version = event::kLibraryVersion;
  start.program = "/opt/app/trainer";
  start.args = {"trainer", "--epochs", "3"};
  start.pid = s.pid;
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  start.host = host;
  if (std::FILE* file = std::fopen("/proc/sys/kernel/random/boot_id", "r")) {
    char id[64] = {};
    if (std::fgets(id, sizeof(id), file) != nullptr) start.boot_id.assign(id, strcspn(id, "\n"));
    std::fclose(file);
  }
  start.t0_unix_ns = 1'767'225'600'000'000'000;  // 2026-01-01
  start.t0_rfc3339 = "2026-01-01T00:00:00Z";
  start.capture = "cupti";
  start.mode = "stream";
  if (s.steps > 0) start.configuration = {{"details", "on"}, {"timing", "all"}, {"graphs", "node"}};
  return start;
}

event::StreamInfo stream(std::uint32_t id = 1) {
  event::StreamInfo info;
  info.seq = event::Seq(0, 1 + id);
  info.stream = event::StreamId(id);
  info.context = event::ContextId(1);
  info.device = 0;
  info.kind = id == 1 ? event::StreamInfo::Kind::kLegacyDefault : event::StreamInfo::Kind::kCreated;
  return info;
}

class Prologue : public log::SegmentPrologue {
 public:
  explicit Prologue(const Settings& s) : session_(session(s)), device_(*event::find_board("sm_86")), timeline_(s.steps > 0) {}
  void append_prologue(log::Buffer& out, std::uint32_t segment) noexcept override {
    log::append_session_start(out, session_, segment);
    log::append_device_info(out, device_, event::Seq(0, 1));
    log::append_stream_info(out, stream());
    if (timeline_) log::append_stream_info(out, stream(2));
  }

 private:
  event::SessionStart session_;
  event::DeviceInfo device_;
  bool timeline_;
};

// Even kernels are limited by shared memory (5 of 6 blocks), odd ones by warps.
log::RenderedConfig config(std::uint64_t index) {
  event::KernelInfo kernel;
  const std::string name = "reduce_" + std::to_string(index);
  kernel.name = "_Z" + std::to_string(name.size()) + name + "PKfPfi";
  kernel.num_regs = 16;
  const bool limited = index % 2 == 0;
  kernel.static_shared_bytes = limited ? 16384 : 0;
  kernel.local_bytes_per_thread = 0;
  kernel.max_threads_per_block = 1024;
  kernel.binary_version = 86;
  event::KernelConfig config;
  config.kernel = event::KernelId(static_cast<std::uint32_t>(index) + 1);
  config.shape.block = {256, 1, 1};
  config.shape.dyn_shared_bytes = limited ? 0 : 1024;
  event::Occupancy& o = config.occupancy;
  o.source = event::OccupancySource::kDriver;
  o.max_active_blocks = limited ? 5 : 6;
  o.warps_per_block = 8;
  o.max_warps_per_sm = 48;
  o.limit_blocks = {6, 16, 16, limited ? 5 : 50, -1, -1};
  o.limiter = limited ? event::Limiter::kSharedMem : event::Limiter::kWarps;
  o.limiters = event::limiter_bit(o.limiter);
  return log::render_config(kernel, config, event::ConfigId(static_cast<std::uint32_t>(index) + 1), true, 84);
}

event::SessionEnd end_of(const Settings& s, std::uint64_t events, std::uint64_t failed, std::int64_t now) {
  event::SessionEnd end;
  end.time_ns = now;
  end.reason = "exit";
  end.launches = s.events;
  end.failed = failed;
  end.kernels = end.configs = s.kernels;
  end.ledger.seen = events + s.lost;
  end.ledger.written = events;
  end.ledger.lost[static_cast<int>(event::LossCause::kPoolEmpty)] = s.lost;
  return end;
}

// Compression goes on in the background, as slowly as a busy machine has it: the first segment is waited for, so that a
// test has one to look at.
void await_compressed(const std::string& log) {
  const std::string stem = log.substr(0, log.rfind(".ndjson"));
  for (int i = 0; i < 3000 && access((stem + ".0001.ndjson.zst").c_str(), F_OK) != 0; ++i) usleep(10'000);
}

}  // namespace

int main(int argc, char** argv) {
  const Settings s = parse(argc, argv);
  Prologue prologue(s);
  log::LogSink sink;
  log::SinkOptions options;
  options.path = s.path;
  options.segment_bytes = s.segment;
  options.max_bytes = s.max_bytes;
  options.compress = s.compress;
  if (const int error = sink.open(options, &prologue); error != 0) {
    std::fprintf(stderr, "cli_log_writer: %s\n", std::strerror(error));
    return 1;
  }
  std::vector<log::RenderedConfig> configs;
  for (std::uint64_t i = 0; i < s.kernels; ++i) configs.push_back(config(i));
  const log::RenderedStream on_stream = log::render_stream(stream());
  log::Buffer batch;
  std::uint64_t in_batch = 0, failed = 0;
  std::int64_t now = 1'000'000;
  std::uint64_t step_lines = 0;
  for (std::uint64_t i = 0; i < s.steps; ++i) {
    const std::uint64_t lines = cli_test::append_step(batch, i);
    step_lines += lines;
    now = static_cast<std::int64_t>(i + 1) * cli_test::kStepNs;
    if (sink.write(batch.view(), lines, now).error != 0) return 1;
    batch.clear();
  }
  for (std::uint64_t i = 0; s.steps == 0 && i < s.events; ++i) {
    event::KernelLaunch launch;
    launch.seq = event::Seq(1, i);
    launch.config = event::ConfigId(static_cast<std::uint32_t>(i % s.kernels) + 1);
    launch.grid = {16384, 1, 1};
    launch.stream = event::StreamId(1);
    launch.thread = 99;
    launch.launch_ns = now += 10'000;
    launch.call_ns = 5000;
    const bool refused = s.failed_every > 0 && i % s.failed_every == s.failed_every - 1;
    launch.status = refused ? 701 : 0;
    failed += refused ? 1 : 0;
    log::append_kernel_event(batch, configs[i % s.kernels], on_stream, "", launch);
    if (++in_batch < s.batch && i + 1 < s.events) continue;
    if (sink.write(batch.view(), in_batch, now).error != 0) return 1;
    batch.clear();
    in_batch = 0;
    if (s.pause_us > 0) usleep(static_cast<useconds_t>(s.pause_us));
  }
  if (s.end) {
    log::append_session_end(batch, end_of(s, s.steps > 0 ? step_lines : s.events, failed, now));
    if (sink.write(batch.view(), 0, now).error != 0) return 1;
  }
  if (s.compress && sink.segment() > 1) await_compressed(sink.path());
  std::printf("%s\n", sink.path().c_str());
  sink.close(5000);
}
