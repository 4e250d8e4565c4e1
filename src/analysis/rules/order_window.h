// Puts what comes almost in order of time into that order: holds back a fixed number of items and gives the earliest.
// What comes later than the window reaches is given next, out of order; of items of equal time that of the
// smaller number comes first, so that the order of lines does not matter.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace gpuflight::analysis::rules {

template <class Item>
class OrderWindow {
 public:
  explicit OrderWindow(std::size_t most) : most_(most) {}

  template <class Give>
  void put(std::int64_t at_ns, std::uint64_t number, Item item, Give&& give) {
    std::uint32_t place;
    if (free_.empty()) {
      place = static_cast<std::uint32_t>(items_.size());
      items_.push_back(std::move(item));
    } else {
      place = free_.back();
      free_.pop_back();
      items_[place] = std::move(item);
    }
    heap_.push_back({at_ns, number, count_++, place});
    std::push_heap(heap_.begin(), heap_.end(), later);
    if (heap_.size() > most_) take(give);
  }
  template <class Give>
  void flush(Give&& give) {
    while (!heap_.empty()) take(give);
  }

 private:
  struct Entry {
    std::int64_t at_ns;
    std::uint64_t number, order;
    std::uint32_t place;
  };
  static bool later(const Entry& a, const Entry& b) {
    if (a.at_ns != b.at_ns) return a.at_ns > b.at_ns;
    return a.number != b.number ? a.number > b.number : a.order > b.order;
  }
  template <class Give>
  void take(Give&& give) {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const std::uint32_t place = heap_.back().place;
    heap_.pop_back();
    give(items_[place]);
    free_.push_back(place);
  }

  std::size_t most_;
  std::uint64_t count_ = 0;
  std::vector<Entry> heap_;
  std::vector<Item> items_;
  std::vector<std::uint32_t> free_;
};

}  // namespace gpuflight::analysis::rules
