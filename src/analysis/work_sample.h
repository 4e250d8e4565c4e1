// What a timeline is drawn of: work of the GPU by stream and waits of the host by thread, each with its times. All of
// it up to a bound; beyond that, short neighbours on one track are drawn as one piece, so that what was busy stays so
// and long work stays as it was. Memory is bounded by twice `most`, whatever comes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "log/decoder.h"

namespace gpuflight::analysis {

enum class DrawnKind : std::uint8_t { kKernel, kCopyIn, kCopyOut, kCopy, kFill, kWait, kMixed };

struct DrawnWork {
  std::int64_t start_ns = 0, end_ns = 0;  // since t0 of its log
  std::int64_t busy_ns = 0;               // of the pieces it stands for, added up
  std::int64_t longest_ns = 0;            // of them
  std::int64_t queue_ns = -1;             // from the launch to the start; -1: not known, or several pieces
  std::uint64_t amount = 0;               // blocks of a grid, or bytes; of all pieces
  std::uint32_t pieces = 1;
  std::uint32_t name = 0;                 // row of names(); of several pieces, of the longest
  DrawnKind kind = DrawnKind::kKernel;
};

// A kernel as launched, a kind of copy, a call.
struct DrawnName {
  std::string text;  // of kernels mangled
  DrawnKind kind = DrawnKind::kKernel;
  bool details = false;  // the following are known
  event::KernelInfo facts;
  event::LaunchShape shape;
  std::optional<double> occupancy;
  event::LimiterSet limiters = 0;
};

struct DrawnTrack {
  std::size_t log = 0;  // from 0
  bool host = false;
  std::int32_t device = -1;  // -1: not known
  std::uint32_t number = 0;  // of the stream, or the thread
  std::uint32_t lane = 0;    // work that ran beside other work of its stream stands in a further lane
  std::optional<event::StreamInfo> stream;
  std::vector<DrawnWork> works;  // by start
};

class WorkSample {
 public:
  static constexpr std::size_t kMost = 200'000;
  explicit WorkSample(std::size_t most = kMost) : most_(most) {}

  void begin_log();
  void add(const log::LogEvent& event);
  void finish();  // then the following hold

  const std::vector<DrawnTrack>& tracks() const { return drawn_; }
  const std::vector<DrawnName>& names() const { return names_; }
  std::uint64_t seen() const { return seen_; }                // pieces with times
  std::size_t drawn() const;
  std::int64_t merged_below_ns() const { return quantum_; }   // 0: everything is drawn as it was
  std::uint64_t left_out() const { return left_out_; }        // on tracks beyond the bound

 private:
  static constexpr std::size_t kMostTracks = 256, kMostNames = 20'000;
  static constexpr std::uint32_t kMostLanes = 6;
  using Key = std::tuple<std::size_t, bool, std::int32_t, std::uint32_t>;

  void add_work(Key key, DrawnWork work);
  void add_kernel(const log::KernelEventLine& line);
  void add_copy(const log::MemcpyLine& line);
  void add_fill(const log::MemsetLine& line);
  void add_wait(const log::ApiLine& line);
  std::uint32_t name_of(const std::string& key, const DrawnName& name);
  void merge();
  void draw(const Key& key, std::vector<DrawnWork>& works);

  const std::size_t most_;
  std::size_t log_ = SIZE_MAX, kept_ = 0;
  std::uint64_t seen_ = 0, left_out_ = 0;
  std::int64_t quantum_ = 0;
  std::map<Key, std::vector<DrawnWork>> tracks_;
  std::map<std::pair<std::size_t, std::uint32_t>, event::StreamInfo> streams_;
  std::unordered_map<std::string, std::uint32_t> name_rows_;
  std::vector<DrawnName> names_;
  std::vector<DrawnTrack> drawn_;
  std::string key_;  // scratch
};

}  // namespace gpuflight::analysis
