#include "recorder/fork_board.h"

#include <cerrno>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

#include "capture/system_clock.h"

namespace gpuflight::recorder {
namespace {

std::atomic<ForkBoard*> g_board{nullptr};

}  // namespace

ForkBoard* ForkBoard::create() noexcept {
  void* const memory = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* const page = static_cast<Page*>(memory);  // zeros: a page without forks
  page->owner = getpid();
  auto* const board = new (std::nothrow) ForkBoard(*page);
  if (board == nullptr) {
    munmap(memory, sizeof(Page));
    return nullptr;
  }
  g_board.store(board, std::memory_order_release);
  return board;
}

void ForkBoard::note_child() noexcept {
  ForkBoard* const board = g_board.exchange(nullptr, std::memory_order_relaxed);
  if (board == nullptr || getppid() != board->page_.owner) return;
  const int saved = errno;
  const std::int64_t now_ns = capture::system_clock_ns(CLOCK_MONOTONIC);
  const std::uint32_t at = board->page_.begun.fetch_add(1, std::memory_order_acq_rel);
  Entry& entry = board->page_.entries[at % kRoom];
  entry.monotonic_ns.store(now_ns, std::memory_order_relaxed);
  entry.child_pid.store(getpid(), std::memory_order_relaxed);
  entry.number.store(at + 1, std::memory_order_release);
  errno = saved;
}

}  // namespace gpuflight::recorder
