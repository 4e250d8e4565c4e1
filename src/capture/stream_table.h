// Streams by handle: each gets a small id for good and is described once. A handle that is used again after
// cuStreamDestroy is a new stream.
//
// Threads: any. `id_of` is called on a miss of the thread's own stream cache: locks, asks the driver outside the lock,
// may allocate. Rows stay readable by the recorder without the lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>

#include "capture/driver_api.h"
#include "capture/hot_page.h"
#include "capture/notice_board.h"
#include "event/events.h"
#include "flight/table_writer.h"

namespace gpuflight::capture {

struct StreamKey {
  const void* handle = nullptr;  // null: a default stream
  std::uint32_t context_uid = 0;
  std::uint32_t thread = 0;  // != 0: the per-thread default stream of this thread
  auto operator<=>(const StreamKey&) const = default;
};

class StreamTable {
 public:
  // `notices`: where to say that the table is full; null: nowhere.
  StreamTable(const DriverApi& driver, flight::TableWriter& rows, HotPage& page, std::uint32_t capacity,
              NoticeBoard* notices = nullptr);

  // `may_ask`: no graph capture runs in the process. Asking the driver for flags or priority of a stream that is being
  // captured invalidates the capture (H200, driver 580.159: the next launch into it returned 901).
  event::StreamId id_of(const StreamKey& key, std::int32_t device, bool may_ask) noexcept;

  // What is known from the call that created it, so that nothing need be asked.
  void on_stream_created(const void* handle, std::uint32_t context_uid, std::uint32_t flags,
                         std::optional<std::int32_t> priority) noexcept;

  void on_stream_destroyed(const void* handle, std::uint32_t context_uid) noexcept;
  void on_context_destroyed(std::uint32_t context_uid) noexcept;

  void forget_all() noexcept;  // handles may mean something else now

  // Grows when an id in some thread's cache may be wrong.
  std::uint32_t generation() const noexcept { return page_.stream_generation.load(std::memory_order_acquire); }

  // Holds off the destruction of streams while one is used that the host may be destroying on another thread. False:
  // some stream has gone since `generation`, do not touch any. end_use() after true.
  bool begin_use(std::uint32_t generation) noexcept {
    users_.fetch_add(1, std::memory_order_seq_cst);
    if (page_.stream_generation.load(std::memory_order_seq_cst) == generation) return true;
    end_use();
    return false;
  }
  void end_use() noexcept { users_.fetch_sub(1, std::memory_order_release); }

  std::uint32_t used() const noexcept { return used_.load(std::memory_order_acquire); }
  const event::StreamInfo* row(std::uint32_t id) const noexcept;

 private:
  const DriverApi& driver_;
  flight::TableWriter& rows_;
  const std::uint32_t capacity_;
  NoticeBoard* const notices_;
  std::mutex mutex_;
  struct Created {
    std::uint32_t flags = 0;
    std::optional<std::int32_t> priority;
  };

  std::map<StreamKey, event::StreamId> ids_;
  std::map<StreamKey, Created> created_;  // and not launched into yet
  std::unique_ptr<std::unique_ptr<event::StreamInfo>[]> infos_;  // by id; published by used_
  std::atomic<std::uint32_t> used_{1};
  HotPage& page_;
  std::atomic<std::uint32_t> users_{0};

  void invalidate() noexcept;
};

}  // namespace gpuflight::capture
