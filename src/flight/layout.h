// The flight file: one memory-mapped, shared file of fixed size per process, the only path from the app's threads to
// the recorder and all that is left after a SIGKILL. Native endian, 64-bit, every part 64-byte aligned.
//
//   0 ┌────────────────────────────┐
//     │ Header            4096 B   │ magic, versions, section table, process, clocks, state, heartbeat, control
//     ├────────────────────────────┤ ledger_offset
//     │ LedgerBlock        512 B   │ counters of everything seen, written and lost, live
//     ├────────────────────────────┤ slots_offset
//     │ ThreadSlot[8192]   64 B    │ who wrote with which slot, how many records it has seen and dropped
//     ├────────────────────────────┤ kernels_offset
//     │ KernelEntry[]      64 B    │ facts of a compiled kernel, name in the string arena
//     ├────────────────────────────┤ configs_offset
//     │ ConfigEntry[]     128 B    │ launch shape and its occupancy
//     ├────────────────────────────┤ streams_offset
//     │ StreamEntry[]      64 B    │ stream, context, device
//     ├────────────────────────────┤ scopes_offset
//     │ ScopeEntry[]       16 B    │ parent and name
//     ├────────────────────────────┤ strings_offset
//     │ string arena               │ u32 length, bytes, padded to 4; referred to by offset
//     ├────────────────────────────┤ chunks_offset
//     │ Chunk[]         16,384 B   │ ChunkHeader (64 B) + 255 Record (64 B each)
//     └────────────────────────────┘ file_bytes
//
// Rows of tables are written once and published by their `state` (release); row 0 of each table is "not known" and
// never used. A chunk belongs to one slot until all its lines are written; it keeps its content until it is used again. In
// black-box mode the chunk used again is the one free for longest, so that the file always ends with the last events. Records [0, committed) of a chunk are whole; record i of it has the sequence number (slot, first_counter + i). A reader trusts nothing in here: it checks
// every offset, count and state against the size of the file.
//
// The process that records treats the file as write-only: chunk ownership, free list and table sizes it goes by live
// in private memory, so that another process scribbling over the file cannot lead it astray.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "event/events.h"
#include "event/ids.h"
#include "event/schema_version.h"

namespace gpuflight::flight {

inline constexpr char kMagic[8] = {'G', 'P', 'U', 'F', 'L', 'T', '0', '\n'};
inline constexpr std::uint32_t kEndianMark = 0x01020304;
inline constexpr std::size_t kHeaderBytes = 4096;
inline constexpr std::size_t kChunkBytes = 16384;
inline constexpr std::size_t kRecordBytes = 64;
inline constexpr std::uint32_t kRecordsPerChunk = kChunkBytes / kRecordBytes - 1;
inline constexpr std::uint32_t kNoString = 0;

enum class SessionState : std::uint32_t { kEmpty = 0, kRecording = 1, kPaused = 2, kClosed = 3, kDisabled = 4 };

// `gpuflight dump|pause|resume PID` write a command into `control` of the mapped file; the recorder thread does it within
// one round, writes control_result, counts control_done up and sets control back to kNone. No socket, no signal.
enum class ControlCommand : std::uint32_t { kNone = 0, kDump = 1, kPause = 2, kPauseRelease = 3, kResume = 4,
                                          kTimingOff = 5, kTimingOn = 6 };
enum class ControlResult : std::uint32_t { kNone = 0, kDone = 1, kRefused = 2, kSlotTaken = 3, kUnknown = 4 };

struct alignas(64) Header {
  char magic[8];
  std::uint32_t endian_mark;
  std::uint16_t version_major, version_minor;
  std::uint32_t header_bytes;   // sizeof(Header)
  std::uint32_t record_bytes;
  std::uint32_t chunk_bytes;
  std::uint32_t slot_count;
  std::uint32_t kernel_capacity, config_capacity, stream_capacity, scope_capacity;
  std::uint32_t chunk_count;
  std::uint32_t reserved0;
  std::uint64_t ledger_offset, slots_offset, kernels_offset, configs_offset, streams_offset, scopes_offset;
  std::uint64_t strings_offset, strings_bytes, chunks_offset, file_bytes;
  std::int64_t pid;
  std::uint64_t process_start_ticks;
  std::int64_t t0_unix_ns, t0_monotonic_ns;
  char boot_id[40];
  char host[64];
  char program[256];    // cut at 255 bytes; the log has it whole
  char log_path[1024];  // of the log that belongs to this file; empty: none
  std::atomic<std::uint32_t> state;  // SessionState
  std::atomic<std::uint32_t> control;  // ControlCommand wanted from outside; set from kNone only
  std::atomic<std::uint64_t> heartbeat_ns;  // since t0, by the recorder thread
  std::atomic<std::uint32_t> kernels_used, configs_used, streams_used, scopes_used;
  std::atomic<std::uint64_t> strings_used;
  std::atomic<std::uint32_t> control_result;  // ControlResult of the last command done
  std::atomic<std::uint32_t> control_done;    // how many commands have been done
  std::uint32_t mode;  // 0 stream, 1 blackbox
  std::uint32_t details;
};
static_assert(sizeof(Header) <= kHeaderBytes);
static_assert(std::is_standard_layout_v<Header>);

// Counters by the recorder; those by app threads are in the thread slots, so that no two threads share a line.
struct alignas(64) LedgerBlock {
  std::atomic<std::uint64_t> written, summarised, rotated_away, null_time, table_full, occupancy_mismatch;
  std::atomic<std::uint64_t> lost[event::kLossCauseCount];  // without pool_empty, which each slot counts
  std::atomic<std::uint64_t> lines, bytes, drained;  // records taken out of the rings
  std::uint64_t reserved[64 - 6 - event::kLossCauseCount - 3];
};
static_assert(sizeof(LedgerBlock) == 512);

struct alignas(64) ThreadSlot {
  std::atomic<std::uint32_t> owner_tid;  // 0: free
  std::atomic<std::uint32_t> generation;  // how many threads have had this slot
  std::atomic<std::uint64_t> seen;        // records this slot was asked to take; next counter of `seq`
  std::atomic<std::uint64_t> dropped;     // of these: no chunk was free
  std::atomic<std::uint32_t> current_chunk;  // index + 1; 0: none
  std::uint32_t reserved0;
  char name[16];  // pthread name when the slot was taken
  std::uint64_t reserved1;
};
static_assert(sizeof(ThreadSlot) == 64);

enum class RowState : std::uint32_t { kFree = 0, kReady = 1 };

struct alignas(64) KernelEntry {
  std::atomic<std::uint32_t> state;
  std::uint32_t name;  // offset in the string arena
  std::int32_t device;
  std::int32_t num_regs, static_shared_bytes, local_bytes_per_thread, const_bytes;
  std::int32_t max_threads_per_block, max_dyn_shared_bytes, binary_version, ptx_version;
  std::uint32_t reserved0;
  std::uint64_t module_hash;
  std::uint64_t reserved1;
};
static_assert(sizeof(KernelEntry) == 64);

struct alignas(64) ConfigEntry {
  std::atomic<std::uint32_t> state;
  std::uint32_t kernel;
  std::uint32_t block[3];
  std::uint32_t dyn_shared_bytes;
  std::uint32_t cluster[3];
  std::int32_t carveout;
  std::uint8_t carveout_from_launch, cooperative, occupancy_source, limiter;
  std::uint8_t limiters, model_disagrees, reserved0, reserved1;
  std::int32_t max_active_blocks, warps_per_block, max_warps_per_sm, model_blocks, max_active_clusters;
  std::int32_t limit_blocks[event::kLimiterCount];
  std::uint32_t reserved2[8];
};
static_assert(sizeof(ConfigEntry) == 128);

struct alignas(64) StreamEntry {
  std::atomic<std::uint32_t> state;
  std::uint32_t context;
  std::int32_t device;
  std::uint8_t kind, has_priority, has_flags, reserved0;
  std::uint64_t handle;
  std::int32_t priority;
  std::uint32_t flags;
  std::uint32_t thread;
  std::uint32_t reserved1;
  // How far the GPU is known to be: work whose launch call had returned by finished_ns is done. marked_ns is the latest
  // time that will be answered for; beyond it nothing is known. Both since t0, 0: never.
  std::atomic<std::int64_t> finished_ns;
  std::atomic<std::int64_t> marked_ns;
  std::uint64_t reserved2;
};
static_assert(sizeof(StreamEntry) == 64);

struct ScopeEntry {
  std::atomic<std::uint32_t> state;
  std::uint32_t parent;  // 0: top level
  std::uint32_t name;
  std::uint32_t reserved0;
};
static_assert(sizeof(ScopeEntry) == 16);

struct alignas(64) ChunkHeader {
  std::atomic<std::uint32_t> slot_plus_one;  // 0: free
  std::atomic<std::uint32_t> committed;      // records published
  std::atomic<std::uint64_t> first_counter;  // seq counter of record 0
  std::atomic<std::uint32_t> next;           // chunk index + 1 that the slot went on with; 0: none yet
  std::atomic<std::uint32_t> taken;          // records the recorder has put into the log
  std::uint64_t reserved[5];
};
static_assert(sizeof(ChunkHeader) == 64);

enum class RecordKind : std::uint8_t {
  kNone = 0,
  kKernelLaunch = 1,
  kGraphLaunch = 2,
  kScopeBegin = 3,
  kScopeEnd = 4,
  kMark = 5,
  kApiCall = 6,  // a call beside launches: `config` is an event::ApiCall
};

enum class RecordPhase : std::uint8_t {
  kEntered = 1,    // the call has begun; call_ns and status mean nothing yet
  kReturned = 2,   // the call came back
  kAbandoned = 3,  // the thread left the call another way (cancelled, longjmp)
};

inline constexpr std::uint16_t kFlagCaptured = 1;
inline constexpr std::uint16_t kFlagConfigUnknown = 2;  // the table was full
inline constexpr std::uint16_t kFlagEventTimed = 4;    // between two events of ours, by whose number `correlation` is
inline constexpr std::uint16_t kFlagCallUntimed = 8;   // call_ns means nothing though the call came back
inline constexpr std::uint16_t kFlagSummarised = 16;   // by the recorder: it has no line and stands in its next summary

// launch_ns is the time of the launch last read before it, in the same chunk, as is the next record without the flag: the
// call began between the two, and call_ns is kTimeNotKnown. Who takes it out of the ring settles it (shared_time.h): from
// then on launch_ns may be off by call_ns.
inline constexpr std::uint16_t kFlagTimeShared = 32;
inline constexpr std::int64_t kTimeNotKnown = -1;
inline constexpr std::int64_t kBurstStepNs = 10'000;  // launches that share times follow one another faster

// One event, 64 bytes, one cache line. Counters do not repeat across a recycled chunk: `counter_low` lets a reader
// tell a record of this chunk's life from one left over of the life before.
//
// A launch of a graph has in grid_x the number of what it runs (event::ContentsId; 0: not known).
//
// A call beside launches has other things where a launch has grid, correlation and graph (record_event.h packs them):
//
//                            grid_x    grid_y  grid_z        correlation  graph       bytes_low
//   copies and fills         context   0       0             CUPTI's      0           0
//   synchronisations         context   0       0             0            0           0
//   edges between streams    context   0       0             └──── event handle ────┘ 0
//   allocations and frees    context   ◂ bytes device + 1    └─────── address ──────┘ bytes ▸
//   of a pool, and mappings  └ owner ▸ ◂ bytes ◂ owner       └─────── address ──────┘ bytes ▸
//
// bytes: 48 bits, high part in grid_y; 0: not known. owner: 48 bits, high part in grid_z, the memory pool or the handle
// of the physical memory that is mapped; 0: not known, or longer. device + 1: 0 where it is not known or of no single one.
struct alignas(64) Record {
  std::uint8_t kind;                 // RecordKind
  std::atomic<std::uint8_t> phase;   // RecordPhase
  std::uint16_t flags;
  std::uint32_t config;
  std::int64_t launch_ns;  // since t0
  std::int64_t call_ns;
  std::int32_t status;
  std::uint32_t grid_x;
  std::uint16_t grid_y, grid_z;  // the hardware's limit is 65,535
  std::uint32_t stream;
  std::uint32_t correlation;
  std::uint32_t scope;
  std::uint32_t graph;
  std::uint32_t counter_low;
  std::uint32_t thread;  // OS thread id
  std::uint32_t bytes_low;  // of kind kApiCall only
};
static_assert(sizeof(Record) == kRecordBytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

struct Chunk {
  ChunkHeader header;
  Record records[kRecordsPerChunk];
};
static_assert(sizeof(Chunk) == kChunkBytes);

}  // namespace gpuflight::flight
