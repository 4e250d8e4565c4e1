#include "capture/marker_board.h"

#include <algorithm>
#include <memory>
#include <new>
#include <sys/mman.h>

namespace gpuflight::capture {
namespace {

constexpr std::size_t kPageBytes = MarkerBoard::kTracksPerBlock * sizeof(std::uint32_t);
static_assert(kPageBytes == 4096);

}  // namespace

std::uint32_t MarkerBoard::block_for_locked(std::uint32_t context_uid) noexcept {
  for (std::uint32_t b = 0; b < blocks_used_.load(std::memory_order_relaxed); ++b) {
    const Block& block = *blocks_[b].load(std::memory_order_relaxed);
    if (block.context_uid == context_uid && !block.dead.load(std::memory_order_relaxed)) return b;
  }
  return kMaxBlocks;
}

std::uint32_t MarkerBoard::track_for(std::uint32_t stream, std::uint32_t context_uid) noexcept {
  if (stream == 0 || driver_.stream_write_value == nullptr || driver_.mem_host_register == nullptr ||
      driver_.mem_host_get_device_pointer == nullptr) {
    return kNoTrack;
  }
  try {
    std::unique_lock lock(mutex_);
    std::uint32_t b = block_for_locked(context_uid);
    if (b == kMaxBlocks) {
      if (std::find(refused_contexts_.begin(), refused_contexts_.end(), context_uid) != refused_contexts_.end()) {
        return kNoTrack;
      }
      lock.unlock();  // the driver is asked without it
      const bool made = make_block(context_uid);
      lock.lock();
      b = block_for_locked(context_uid);
      if (!made && b == kMaxBlocks) refused_contexts_.push_back(context_uid);
      if (b == kMaxBlocks) return kNoTrack;
    }
    Block& block = *blocks_[b].load(std::memory_order_relaxed);
    std::uint32_t index = block.used.load(std::memory_order_relaxed);
    if (!block.free.empty()) {
      index = block.free.back();
      block.free.pop_back();
    } else if (index == kTracksPerBlock) {
      return kNoTrack;
    } else {
      block.used.store(index + 1, std::memory_order_release);
    }
    Track& track = block.tracks[index];
    track.retired.store(false, std::memory_order_relaxed);
    track.stream.store(stream, std::memory_order_release);  // numbers go on from its last owner's
    return b * kTracksPerBlock + index;
  } catch (...) {
    return kNoTrack;
  }
}

bool MarkerBoard::make_block(std::uint32_t context_uid) noexcept {
  auto block = std::unique_ptr<Block>(new (std::nothrow) Block);
  if (block == nullptr) return false;
  // Our own memory, registered with the context: it stays readable when the context is gone.
  void* const page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (page == MAP_FAILED) return false;
  madvise(page, kPageBytes, MADV_DONTFORK);
  CUdeviceptr device = 0;
  if (driver_.mem_host_register(page, kPageBytes, CU_MEMHOSTREGISTER_DEVICEMAP) != CUDA_SUCCESS) {
    munmap(page, kPageBytes);
    return false;
  }
  if (driver_.mem_host_get_device_pointer(&device, page, 0) != CUDA_SUCCESS) {
    if (driver_.mem_host_unregister != nullptr && driver_.mem_host_unregister(page) == CUDA_SUCCESS) {
      munmap(page, kPageBytes);
    }
    return false;
  }
  block->context_uid = context_uid;
  block->words = static_cast<std::uint32_t*>(page);
  block->device_words = device;
  {
    std::lock_guard lock(mutex_);
    const std::uint32_t at = blocks_used_.load(std::memory_order_relaxed);
    if (at < kMaxBlocks && block_for_locked(context_uid) == kMaxBlocks) {
      blocks_[at].store(block.release(), std::memory_order_release);
      blocks_used_.store(at + 1, std::memory_order_release);
      return true;
    }
  }
  // Another thread was first, or there is no room.
  if (driver_.mem_host_unregister != nullptr && driver_.mem_host_unregister(page) == CUDA_SUCCESS) {
    munmap(page, kPageBytes);
  }
  return false;
}

void MarkerBoard::mark(std::uint32_t track, const void* stream, bool per_thread_default, std::int64_t now_ns) noexcept {
  Block& block = *blocks_[track / kTracksPerBlock].load(std::memory_order_acquire);
  const std::uint32_t index = track % kTracksPerBlock;
  Track& t = block.tracks[index];
  const std::uint32_t number = t.submitted.load(std::memory_order_relaxed) + 1;
  const auto write = per_thread_default && driver_.stream_write_value_ptsz != nullptr ? driver_.stream_write_value_ptsz
                                                                                     : driver_.stream_write_value;
  t.marked_ns[number % Track::kRemembered].store(now_ns, std::memory_order_relaxed);
  const CUdeviceptr word = block.device_words + index * sizeof(std::uint32_t);
  if (write(static_cast<CUstream>(const_cast<void*>(stream)), word, number, CU_STREAM_WRITE_VALUE_DEFAULT) ==
      CUDA_SUCCESS) {
    t.submitted.store(number, std::memory_order_release);
  }
}

void MarkerBoard::on_context_destroyed(std::uint32_t context_uid) noexcept {
  std::lock_guard lock(mutex_);
  for (std::uint32_t b = 0; b < blocks_used_.load(std::memory_order_relaxed); ++b) {
    Block& block = *blocks_[b].load(std::memory_order_relaxed);
    if (block.context_uid == context_uid) block.dead.store(true, std::memory_order_release);
  }
}

void MarkerBoard::recycle(std::uint32_t block, std::uint32_t index) noexcept {
  try {
    std::lock_guard lock(mutex_);
    Block& b = *blocks_[block].load(std::memory_order_relaxed);
    b.tracks[index].stream.store(0, std::memory_order_release);
    b.free.push_back(index);
  } catch (...) {
  }
}

}  // namespace gpuflight::capture
