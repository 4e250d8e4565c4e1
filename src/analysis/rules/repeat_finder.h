// Finds that a sequence of tokens repeats itself, and with which period, in one pass: where three tokens in a row were
// seen before, the distance to there is a guess; it holds as long as each token is that of one period ago.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace gpuflight::analysis::rules {

class RepeatFinder {
 public:
  static constexpr std::size_t kLongest = 1024;  // period

  // The period in which `token` goes on, and how many tokens in a row have; 0: none.
  struct State {
    std::size_t period = 0;
    std::uint64_t matched = 0;
  };
  State add(std::uint64_t token) {
    tokens_[count_ % kKept] = token;
    const std::uint64_t three = triple();
    if (state_.period > 0 && count_ >= state_.period && tokens_[(count_ - state_.period) % kKept] == token) {
      ++state_.matched;
    } else {
      state_ = State();
      const auto seen = last_.find(three);
      if (count_ >= 2 && seen != last_.end() && count_ - seen->second <= kLongest) state_ = {count_ - seen->second, 1};
    }
    if (last_.size() >= kMostTriples) last_.clear();
    last_[three] = count_++;
    return state_;
  }

 private:
  static constexpr std::size_t kKept = 2 * kLongest, kMostTriples = 1 << 14;
  std::uint64_t triple() const {
    std::uint64_t hash = 0;
    for (std::size_t i = 0; i < 3 && i <= count_; ++i) {
      hash = hash * 0x9e3779b97f4a7c15ull + tokens_[(count_ - i) % kKept] + 1;
      hash ^= hash >> 29;
    }
    return hash;
  }
  std::array<std::uint64_t, kKept> tokens_{};
  std::uint64_t count_ = 0;
  State state_;
  std::unordered_map<std::uint64_t, std::uint64_t> last_;  // where each three tokens were last
};

}  // namespace gpuflight::analysis::rules
