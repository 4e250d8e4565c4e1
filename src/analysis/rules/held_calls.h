// How much of the time that the host stood in a call no kernel ran on the device: what of it can be lost. The rest the
// device had to do anyway. Fed in order of time; a call is settled when work comes that starts after its end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>

#include "analysis/rules/rule.h"

namespace gpuflight::analysis::rules {

class HeldCalls {
 public:
  // Called once for each: its tag, where it stands, how long it held the host while no kernel ran.
  using Settled = std::function<void(std::uint32_t tag, const EventRef& ref, std::int64_t idle_ns)>;
  explicit HeldCalls(Settled settled) : settled_(std::move(settled)) {}

  void saw_work(const GpuWork& work) {
    if (work.kind == WorkKind::kKernel || work.kind == WorkKind::kGraph) {
      auto& busy = busy_[work.device];
      if (!busy.empty() && work.start_ns <= busy.back().second) {
        busy.back().second = std::max(busy.back().second, work.end_ns);
      } else {
        busy.emplace_back(work.start_ns, work.end_ns);
        if (busy.size() > kMostStretches) busy.pop_front();
      }
    }
    while (!held_.empty() && (held_.front().to_ns <= work.start_ns || held_.size() > kMostHeld)) settle();
  }
  void hold(std::int32_t device, std::int64_t from_ns, std::int64_t to_ns, const EventRef& ref, std::uint32_t tag = 0) {
    if (to_ns > from_ns) held_.push_back({device, from_ns, to_ns, ref, tag});
  }
  void settle_all() {
    while (!held_.empty()) settle();
  }

 private:
  static constexpr std::size_t kMostStretches = 4096, kMostHeld = 4096;
  struct Held {
    std::int32_t device;
    std::int64_t from_ns, to_ns;
    EventRef ref;
    std::uint32_t tag;
  };
  void settle() {
    const Held held = held_.front();
    held_.pop_front();
    std::int64_t idle = held.to_ns - held.from_ns;
    const auto& busy = busy_[held.device];
    for (auto stretch = busy.rbegin(); stretch != busy.rend() && stretch->second > held.from_ns; ++stretch) {
      idle -= std::max<std::int64_t>(0, std::min(stretch->second, held.to_ns) - std::max(stretch->first, held.from_ns));
    }
    settled_(held.tag, held.ref, std::max<std::int64_t>(idle, 0));
  }
  Settled settled_;
  std::map<std::int32_t, std::deque<std::pair<std::int64_t, std::int64_t>>>
      busy_;               // by device: kernels at work, ascending
  std::deque<Held> held_;  // in order of their beginning
};

}  // namespace gpuflight::analysis::rules
