// A flight file as a recorder makes it, small, in a folder of its own: for tests of whoever reads one.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <string>
#include <unistd.h>

#include "flight/flight_file.h"
#include "flight/ring.h"
#include "flight/table_writer.h"

namespace gpuflight::flight {

inline Capacities small_capacities(std::uint32_t chunks = 16) {
  Capacities c;
  c.pool_bytes = std::uint64_t{chunks} * kChunkBytes;
  c.kernels = c.configs = c.streams = c.scopes = 16;
  c.string_bytes = 4096;
  return c;
}

// The writer's side, as capture and recorder use it.
class FlightWriter {
 public:
  explicit FlightWriter(const std::string& path, const Capacities& capacities = small_capacities()) {
    const auto made = file.create(path, capacities);
    EXPECT_TRUE(made.on_disk) << made.problem;
    Header& h = file.header();
    h.pid = 4242;
    h.process_start_ticks = 77;
    h.t0_unix_ns = kT0;
    h.t0_monotonic_ns = 1'000;
    std::strcpy(h.boot_id, "another-boot");
    std::strcpy(h.program, "/bin/train");
    h.details = 1;
    h.state.store(static_cast<std::uint32_t>(SessionState::kRecording));
    rings = std::make_unique<RingSet>(file);
    rows = std::make_unique<TableWriter>(file);
  }

  void set_log(const std::string& path) {
    std::strncpy(file.header().log_path, path.c_str(), sizeof(Header::log_path) - 1);
  }
  void set_host(const std::string& name) { std::strncpy(file.header().host, name.c_str(), sizeof(Header::host) - 1); }

  event::ConfigId add_config(const std::string& kernel_name, std::uint32_t block = 256) {
    event::KernelInfo kernel;
    kernel.name = kernel_name;
    kernel.num_regs = 16;
    kernel.static_shared_bytes = 16384;
    event::KernelConfig config;
    config.kernel = rows->add_kernel(kernel);
    config.shape.block = {block, 1, 1};
    config.occupancy.source = event::OccupancySource::kDriver;
    config.occupancy.max_active_blocks = 5;
    config.occupancy.warps_per_block = 8;
    config.occupancy.max_warps_per_sm = 48;
    config.occupancy.limiter = event::Limiter::kSharedMem;
    config.occupancy.limiters = event::limiter_bit(event::Limiter::kSharedMem);
    return rows->add_config(config);
  }

  // As LaunchRecorder does it; nullptr: dropped.
  Record* launch(Ring* ring, std::int64_t ns, std::uint32_t config, std::uint32_t stream = 1,
                 RecordPhase phase = RecordPhase::kReturned, std::int32_t status = 0) {
    Record* const record = ring->begin();
    if (record == nullptr) return nullptr;
    record->kind = static_cast<std::uint8_t>(RecordKind::kKernelLaunch);
    record->flags = 0;
    record->config = config;
    record->launch_ns = ns;
    record->call_ns = 1500;
    record->status = status;
    record->grid_x = 64;
    record->grid_y = record->grid_z = 1;
    record->stream = stream;
    record->correlation = 9;
    record->scope = record->graph = 0;
    record->thread = 555;
    record->phase.store(static_cast<std::uint8_t>(phase));
    ring->publish();
    return record;
  }

  static constexpr std::int64_t kT0 = 1'700'000'000'000'000'000;
  FlightFile file;
  std::unique_ptr<RingSet> rings;
  std::unique_ptr<TableWriter> rows;
};

class FolderTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/gpuflight-read-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { EXPECT_EQ(std::system(("rm -rf " + folder_).c_str()), 0); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
};

inline std::string slurp(const std::string& path) {
  std::string bytes;
  const int fd = open(path.c_str(), O_RDONLY);
  char piece[65536];
  for (ssize_t n; (n = read(fd, piece, sizeof piece)) > 0;) bytes.append(piece, static_cast<std::size_t>(n));
  close(fd);
  return bytes;
}

inline void spill(const std::string& path, std::string_view bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ASSERT_EQ(write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  close(fd);
}

}  // namespace gpuflight::flight
