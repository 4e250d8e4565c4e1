// docs/FORMAT.md draws the flight file field by field: offsets and sizes there must be those of the code.
#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "flight/layout.h"

namespace gpuflight::flight {
namespace {

struct Field {
  const char* name;
  std::size_t offset, bytes;
};

#define FIELD(type, member) Field{#member, offsetof(type, member), sizeof(type::member)}

std::string document() {
  std::ifstream file(GPUFLIGHT_SOURCE_DIR "/docs/FORMAT.md");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The rows of a section are the fields in order, without a gap, up to the size of the struct.
void expect_documented(const std::string& section, std::size_t bytes, const std::vector<Field>& fields) {
  const std::string text = document();
  const std::size_t begin = text.find("#### " + section);
  ASSERT_NE(begin, std::string::npos) << section;
  const std::string part = text.substr(begin, text.find("\n#", begin + 1) - begin);
  EXPECT_NE(part.find(std::to_string(bytes) + " bytes"), std::string::npos) << section;
  std::size_t end = 0, at = 0;
  for (const Field& field : fields) {
    const std::string row = "| " + std::to_string(field.offset) + " | " + std::to_string(field.bytes) + " | `" +
                            field.name + "` |";
    const std::size_t found = part.find(row);
    EXPECT_NE(found, std::string::npos) << section << " lacks the row: " << row;
    EXPECT_GE(found, at) << section << ": out of order: " << row;
    if (found != std::string::npos) at = found;
    EXPECT_LT(field.offset - end, 8u) << section << ": a field before " << field.name << " is not listed";
    end = field.offset + field.bytes;
  }
  EXPECT_LE(bytes - end, 63u) << section << ": fields at the end are not listed";
}

TEST(FormatDocument, Header) {
  expect_documented("Header", sizeof(Header),
                    {FIELD(Header, magic), FIELD(Header, endian_mark), FIELD(Header, version_major),
                     FIELD(Header, version_minor), FIELD(Header, header_bytes), FIELD(Header, record_bytes),
                     FIELD(Header, chunk_bytes), FIELD(Header, slot_count), FIELD(Header, kernel_capacity),
                     FIELD(Header, config_capacity), FIELD(Header, stream_capacity), FIELD(Header, scope_capacity),
                     FIELD(Header, chunk_count), FIELD(Header, reserved0), FIELD(Header, ledger_offset),
                     FIELD(Header, slots_offset), FIELD(Header, kernels_offset), FIELD(Header, configs_offset),
                     FIELD(Header, streams_offset), FIELD(Header, scopes_offset), FIELD(Header, strings_offset),
                     FIELD(Header, strings_bytes), FIELD(Header, chunks_offset), FIELD(Header, file_bytes),
                     FIELD(Header, pid), FIELD(Header, process_start_ticks), FIELD(Header, t0_unix_ns),
                     FIELD(Header, t0_monotonic_ns), FIELD(Header, boot_id), FIELD(Header, host),
                     FIELD(Header, program), FIELD(Header, log_path), FIELD(Header, state), FIELD(Header, control),
                     FIELD(Header, heartbeat_ns), FIELD(Header, kernels_used), FIELD(Header, configs_used),
                     FIELD(Header, streams_used), FIELD(Header, scopes_used), FIELD(Header, strings_used),
                     FIELD(Header, control_result), FIELD(Header, control_done), FIELD(Header, mode), FIELD(Header, details)});
}

TEST(FormatDocument, LedgerBlock) {
  expect_documented("LedgerBlock", sizeof(LedgerBlock),
                    {FIELD(LedgerBlock, written), FIELD(LedgerBlock, summarised), FIELD(LedgerBlock, rotated_away),
                     FIELD(LedgerBlock, null_time), FIELD(LedgerBlock, table_full),
                     FIELD(LedgerBlock, occupancy_mismatch), FIELD(LedgerBlock, lost), FIELD(LedgerBlock, lines),
                     FIELD(LedgerBlock, bytes), FIELD(LedgerBlock, drained), FIELD(LedgerBlock, reserved)});
}

TEST(FormatDocument, ThreadSlot) {
  expect_documented("ThreadSlot", sizeof(ThreadSlot),
                    {FIELD(ThreadSlot, owner_tid), FIELD(ThreadSlot, generation), FIELD(ThreadSlot, seen),
                     FIELD(ThreadSlot, dropped), FIELD(ThreadSlot, current_chunk), FIELD(ThreadSlot, reserved0),
                     FIELD(ThreadSlot, name), FIELD(ThreadSlot, reserved1)});
}

TEST(FormatDocument, KernelEntry) {
  expect_documented(
      "KernelEntry", sizeof(KernelEntry),
      {FIELD(KernelEntry, state), FIELD(KernelEntry, name), FIELD(KernelEntry, device), FIELD(KernelEntry, num_regs),
       FIELD(KernelEntry, static_shared_bytes), FIELD(KernelEntry, local_bytes_per_thread),
       FIELD(KernelEntry, const_bytes), FIELD(KernelEntry, max_threads_per_block),
       FIELD(KernelEntry, max_dyn_shared_bytes), FIELD(KernelEntry, binary_version), FIELD(KernelEntry, ptx_version),
       FIELD(KernelEntry, reserved0), FIELD(KernelEntry, module_hash), FIELD(KernelEntry, reserved1)});
}

TEST(FormatDocument, ConfigEntry) {
  expect_documented(
      "ConfigEntry", sizeof(ConfigEntry),
      {FIELD(ConfigEntry, state), FIELD(ConfigEntry, kernel), FIELD(ConfigEntry, block),
       FIELD(ConfigEntry, dyn_shared_bytes), FIELD(ConfigEntry, cluster), FIELD(ConfigEntry, carveout),
       FIELD(ConfigEntry, carveout_from_launch), FIELD(ConfigEntry, cooperative), FIELD(ConfigEntry, occupancy_source),
       FIELD(ConfigEntry, limiter), FIELD(ConfigEntry, limiters), FIELD(ConfigEntry, model_disagrees),
       FIELD(ConfigEntry, reserved0), FIELD(ConfigEntry, reserved1), FIELD(ConfigEntry, max_active_blocks),
       FIELD(ConfigEntry, warps_per_block), FIELD(ConfigEntry, max_warps_per_sm), FIELD(ConfigEntry, model_blocks),
       FIELD(ConfigEntry, max_active_clusters), FIELD(ConfigEntry, limit_blocks), FIELD(ConfigEntry, reserved2)});
}

TEST(FormatDocument, StreamEntry) {
  expect_documented("StreamEntry", sizeof(StreamEntry),
                    {FIELD(StreamEntry, state), FIELD(StreamEntry, context), FIELD(StreamEntry, device),
                     FIELD(StreamEntry, kind), FIELD(StreamEntry, has_priority), FIELD(StreamEntry, has_flags),
                     FIELD(StreamEntry, reserved0), FIELD(StreamEntry, handle), FIELD(StreamEntry, priority),
                     FIELD(StreamEntry, flags), FIELD(StreamEntry, thread), FIELD(StreamEntry, reserved1),
                     FIELD(StreamEntry, finished_ns), FIELD(StreamEntry, marked_ns), FIELD(StreamEntry, reserved2)});
}

TEST(FormatDocument, ScopeEntry) {
  expect_documented("ScopeEntry", sizeof(ScopeEntry),
                    {FIELD(ScopeEntry, state), FIELD(ScopeEntry, parent), FIELD(ScopeEntry, name),
                     FIELD(ScopeEntry, reserved0)});
}

TEST(FormatDocument, ChunkHeader) {
  expect_documented("ChunkHeader", sizeof(ChunkHeader),
                    {FIELD(ChunkHeader, slot_plus_one), FIELD(ChunkHeader, committed),
                     FIELD(ChunkHeader, first_counter), FIELD(ChunkHeader, next), FIELD(ChunkHeader, taken),
                     FIELD(ChunkHeader, reserved)});
}

TEST(FormatDocument, Record) {
  expect_documented("Record", sizeof(Record),
                    {FIELD(Record, kind), FIELD(Record, phase), FIELD(Record, flags), FIELD(Record, config),
                     FIELD(Record, launch_ns), FIELD(Record, call_ns), FIELD(Record, status), FIELD(Record, grid_x),
                     FIELD(Record, grid_y), FIELD(Record, grid_z), FIELD(Record, stream), FIELD(Record, correlation),
                     FIELD(Record, scope), FIELD(Record, graph), FIELD(Record, counter_low), FIELD(Record, thread),
                     FIELD(Record, bytes_low)});
}

}  // namespace
}  // namespace gpuflight::flight
