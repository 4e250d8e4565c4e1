// When a device was busy: the union of the intervals in which its work ran, by how many kernels and copies at a time.
// Intervals come in nearly any order, a kernel that ran for minutes long after the many that ran beside it.
//
//   steps     the recent past, exact: at which time how many kernels and copies begin to be at work
//   blocks    what was before: of each stretch of time how long each mixture of work lasted, no longer when
//
// An interval that covers a block whole is added exactly. Of one that ends in the middle of a block it is not known what
// it met there: it is taken to have met the mixture of the whole block, and uncertain_ns grows by as much as that can be
// wrong. Memory is bounded by kMaxSteps and kMaxBlocks, whatever comes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpuflight::analysis {

// All in ns. Copies: fills too.
struct BusyTimes {
  std::int64_t first_ns = 0, last_ns = 0;  // first start, last end
  std::int64_t busy_ns = 0;
  std::int64_t kernel_ns = 0;              // a kernel at least was running
  std::int64_t copy_ns = 0;                // a copy at least
  std::int64_t overlapped_ns = 0;          // two pieces of work at least
  std::int64_t copy_beside_kernel_ns = 0;  // a kernel and a copy
  std::int64_t kernels_beside_ns = 0;      // two kernels at least
  std::int64_t uncertain_ns = 0;           // none of the above is off by more
  std::uint64_t kernels = 0, copies = 0;   // intervals
  std::int64_t kernel_sum_ns = 0, copy_sum_ns = 0;  // their lengths
  std::int64_t span_ns() const { return last_ns - first_ns; }
  std::int64_t idle_ns() const { return span_ns() - busy_ns; }
};

class DeviceTimeline {
 public:
  enum class Work : std::uint8_t { kKernel, kCopy };
  static constexpr std::size_t kMaxSteps = 1 << 19;  // 8 MB
  static constexpr std::size_t kMaxBlocks = 1 << 14;
  static constexpr std::size_t kStepsPerBlock = 256;

  explicit DeviceTimeline(std::size_t max_steps = kMaxSteps, std::size_t max_blocks = kMaxBlocks)
      : max_steps_(max_steps), max_blocks_(max_blocks) {}

  // One with end before start is left out.
  void add(Work work, std::int64_t start_ns, std::int64_t end_ns);
  BusyTimes times();
  std::size_t steps() const { return steps_.size(); }
  std::size_t blocks() const { return blocks_.size(); }

 private:
  // Kernels at work, 2 standing for more, plus 3 times the same of copies.
  using State = std::uint8_t;
  static constexpr std::size_t kStates = 9;
  struct Step {
    std::int64_t at;
    State state;  // from then on until the next step
  };
  struct Block {
    std::int64_t from, to;
    std::array<std::int64_t, kStates> ns;  // by state
  };
  struct Interval {
    std::int64_t start, end;
    Work work;
  };
  struct Edge {
    std::int64_t at;
    std::int8_t kernels, copies;
  };

  static State with(State state, Work work);
  static State with(State state, std::int32_t kernels, std::int32_t copies);
  void take_batch();
  void sweep();
  void fold_oldest();
  void add_to_past(std::int64_t start, std::int64_t end, Work work);
  void add_to_block(Block& block, std::int64_t length, Work work);

  std::size_t max_steps_, max_blocks_;
  std::vector<Interval> batch_;  // not in steps_ yet: sorted together, many at a time
  std::vector<Edge> edges_;      // scratch
  std::vector<Step> steps_, swept_;
  std::vector<Block> blocks_;    // without gaps up to the first step
  BusyTimes sums_;
};

}  // namespace gpuflight::analysis
