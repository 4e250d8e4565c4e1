// Whether the GPU tells of each node of a graph launch by itself: then these are events of their own, and what the
// graph runs is not to be counted once more.
//
// Threads: the recorder thread.
#pragma once

#include <cstdint>

#include "event/events.h"

namespace gpuflight::recorder {

class NodeEvents {
 public:
  // Of launches before `until_ns`, but for those between the other two.
  void expect(std::int64_t until_ns, std::int64_t not_from_ns, std::int64_t not_to_ns) noexcept {
    until_ns_ = until_ns;
    not_from_ns_ = not_from_ns;
    not_to_ns_ = not_to_ns;
  }
  // A launch that was seen without CUPTI has no correlation id to tell by.
  bool of(const event::GraphLaunch& launch) const noexcept {
    return launch.correlation && launch.launch_ns < until_ns_ &&
           (launch.launch_ns < not_from_ns_ || launch.launch_ns >= not_to_ns_);
  }

 private:
  std::int64_t until_ns_ = 0;
  std::int64_t not_from_ns_ = INT64_MAX, not_to_ns_ = INT64_MAX;
};

}  // namespace gpuflight::recorder
