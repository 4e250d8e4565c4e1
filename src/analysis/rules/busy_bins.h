// How much of each stretch of time a device was busy, for stretches of a number that is only known at the end: bins
// that double their width when time goes beyond them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace gpuflight::analysis::rules {

class BusyBins {
 public:
  // Busy from `from` to `to`; calls in order, without overlap.
  void add(std::int64_t from, std::int64_t to) {
    if (!begun_) origin_ = from;
    begun_ = true;
    from = std::max(from, origin_);
    while (to - origin_ >= width_ * static_cast<std::int64_t>(kBins)) halve();
    for (std::int64_t at = from; at < to;) {
      const std::int64_t bin = (at - origin_) / width_;
      const std::int64_t end = std::min(to, origin_ + (bin + 1) * width_);
      busy_[static_cast<std::size_t>(bin)] += end - at;
      at = end;
    }
  }
  // Busy time in each of `chunks` equal parts from the first time to `last`.
  std::vector<double> chunks(std::size_t chunks, std::int64_t last) const {
    std::vector<double> sums(chunks, 0.0);
    const double length = static_cast<double>(last - origin_) / static_cast<double>(chunks);
    if (length <= 0) return sums;
    for (std::size_t bin = 0; bin < kBins; ++bin) {
      if (busy_[bin] == 0) continue;
      const double width = static_cast<double>(width_);
      const double from = static_cast<double>(bin) * width;
      const double to = std::min(from + width, static_cast<double>(last - origin_));
      if (to <= from) continue;
      for (auto i = static_cast<std::size_t>(from / length); i < chunks; ++i) {
        const double inside =
            std::min(to, length * static_cast<double>(i + 1)) - std::max(from, length * static_cast<double>(i));
        if (inside <= 0) break;
        sums[i] += static_cast<double>(busy_[bin]) * inside / (to - from);
      }
    }
    return sums;
  }
  std::int64_t origin() const { return origin_; }

 private:
  static constexpr std::size_t kBins = 4096;
  void halve() {
    for (std::size_t i = 0; i < kBins / 2; ++i) busy_[i] = busy_[2 * i] + busy_[2 * i + 1];
    std::fill(busy_.begin() + kBins / 2, busy_.end(), 0);
    width_ *= 2;
  }
  bool begun_ = false;
  std::int64_t origin_ = 0, width_ = 1024;
  std::array<std::int64_t, kBins> busy_{};
};

}  // namespace gpuflight::analysis::rules
