#include "analysis/graph_replays.h"

#include <functional>
#include <utility>

namespace gpuflight::analysis {

std::size_t GraphReplays::Hash::operator()(const Key& key) const {
  std::size_t h = std::hash<std::optional<std::string>>()(key.place.scope);
  for (const std::uint32_t part : {key.contents, key.place.stream, key.place.thread, key.place.graph}) {
    h = (h ^ part) * 0x9E3779B97F4A7C15ull;
  }
  return h;
}

void GraphReplays::begin_log() {
  contents_.clear();
  launches_.clear();
  kernels_ = 0;
}

void GraphReplays::add(const event::GraphInfo& info) {
  if (info.kernels > kMostKernels - kernels_) return;
  const auto [known, fresh] = contents_.try_emplace(info.contents.value);
  if (!fresh && known->second.kernels.size() == known->second.expected) return;  // all of it is known
  kernels_ += info.kernels - known->second.expected;
  known->second.expected = info.kernels;
  known->second.kernels.clear();
}

void GraphReplays::add(const log::GraphKernelLine& line, std::uint32_t config) {
  const auto known = contents_.find(line.info.contents.value);
  if (known == contents_.end() || known->second.kernels.size() >= known->second.expected) return;
  known->second.kernels.push_back({config, line.info.kernel.grid, line.info.kernel.count});
}

bool GraphReplays::launch(event::ContentsId contents, Place place) {
  const auto known = contents_.find(contents.value);
  if (known == contents_.end() || known->second.kernels.size() != known->second.expected) return false;
  ++launches_[Key{contents.value, std::move(place)}];
  return true;
}

}  // namespace gpuflight::analysis
