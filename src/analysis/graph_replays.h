// Kernels of graph launches whose nodes have no events of their own: what one log says its graphs run, and how often it
// was run where. Counted per contents and place, and spread over the kernels at the end: a log may have millions of
// launches of graphs with hundreds of kernels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "log/decoder.h"

namespace gpuflight::analysis {

class GraphReplays {
 public:
  static constexpr std::size_t kMostKernels = 1 << 20;  // of all contents
  static constexpr std::size_t kMostPlaces = 4096;      // then they are to be spread before the end

  struct Kernel {
    std::uint32_t config = 0;  // LogSummary's row
    event::Dim3 grid;
    std::uint64_t count = 0;   // with one launch
  };
  // Where it was launched.
  struct Place {
    std::uint32_t stream = 0, thread = 0, graph = 0;
    std::optional<std::string> scope;
    bool operator==(const Place&) const = default;
  };

  void begin_log();
  // Lines of contents may come again, in a later segment.
  void add(const event::GraphInfo& info);
  void add(const log::GraphKernelLine& line, std::uint32_t config);
  // False: the log does not say what it runs.
  bool launch(event::ContentsId contents, Place place);
  bool crowded() const { return launches_.size() >= kMostPlaces; }

  // Hands each kernel to `take(kernel, times, place)` and forgets the launches.
  template <class Take>
  void spread(Take&& take) {
    for (const auto& [key, times] : launches_) {
      for (const Kernel& kernel : contents_.at(key.contents).kernels) take(kernel, times * kernel.count, key.place);
    }
    launches_.clear();
  }

 private:
  struct Contents {
    std::uint64_t expected = 0;
    std::vector<Kernel> kernels;
  };
  struct Key {
    std::uint32_t contents = 0;
    Place place;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const;
  };

  std::unordered_map<std::uint32_t, Contents> contents_;
  std::unordered_map<Key, std::uint64_t, Hash> launches_;
  std::size_t kernels_ = 0;
};

}  // namespace gpuflight::analysis
