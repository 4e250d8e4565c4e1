// Forks of the host, for the recorder thread to write: each child notes itself in its first moment, in a page that it
// shares with its parent. (The flight file is not mapped in a child, and the parent's fork handler is not told the
// child's number.) A vfork, a posix_spawn and a raw clone run no handlers and are not seen.
//
// Threads: note_child on the only thread of a forked child: stores and two system calls, no lock, no memory. take on
// the recorder thread. The page is never unmapped.
#pragma once

#include <atomic>
#include <cstdint>

namespace gpuflight::recorder {

class ForkBoard {
 public:
  static constexpr std::uint32_t kRoom = 255;  // forks between two rounds that can be told apart

  struct Fork {
    std::int64_t monotonic_ns;
    std::int32_t child_pid;
  };

  // Makes the board of this process; null: no memory.
  static ForkBoard* create() noexcept;

  // In the child: of the board that its parent had, which it then forgets.
  static void note_child() noexcept;

  // Calls take_one(Fork) for each fork since the last call; returns how many there were no room for.
  template <class TakeOne>
  std::uint32_t take(TakeOne&& take_one) noexcept {
    const std::uint32_t begun = page_.begun.load(std::memory_order_acquire);
    std::uint32_t missed = 0;
    if (begun - taken_ > kRoom) {
      missed = begun - taken_ - kRoom;
      taken_ = begun - kRoom;
    }
    for (; taken_ != begun; ++taken_) {
      const Entry& entry = page_.entries[taken_ % kRoom];
      const std::uint32_t number = entry.number.load(std::memory_order_acquire);
      if (number == taken_) return missed;  // the child is at it
      if (number != taken_ + 1) {
        ++missed;
        continue;
      }
      take_one(Fork{entry.monotonic_ns.load(std::memory_order_relaxed), entry.child_pid.load(std::memory_order_relaxed)});
    }
    return missed;
  }

 private:
  struct Entry {
    std::atomic<std::int64_t> monotonic_ns;
    std::atomic<std::int32_t> child_pid;
    std::atomic<std::uint32_t> number;  // 1 for the first fork; stored last
  };
  struct Page {
    std::atomic<std::uint32_t> begun;
    std::int32_t owner;  // a child of a raw clone still has its parent's board, and its children are not the parent's
    std::uint64_t reserved;
    Entry entries[kRoom];
  };
  static_assert(sizeof(Page) == 4096);

  explicit ForkBoard(Page& page) : page_(page) {}

  Page& page_;
  std::uint32_t taken_ = 0;
};

}  // namespace gpuflight::recorder
