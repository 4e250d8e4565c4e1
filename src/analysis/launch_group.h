// What is known of a set of launches after one pass: counts, times, and the range of every fact of their
// configurations. Fixed size but for its label, so that a summary grows with the number of groups, never with the log.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "analysis/extrapolation.h"
#include "event/quantile_sketch.h"
#include "event/events.h"
#include "event/kernel_config.h"

namespace gpuflight::analysis {

// Smallest and largest of what was seen; nothing seen: not known.
template <class T>
struct Range {
  T min{}, max{};
  bool known = false;

  void add(T value) {
    min = known ? std::min(min, value) : value;
    max = known ? std::max(max, value) : value;
    known = true;
  }
  void add(const std::optional<T>& value) {
    if (value) add(*value);
  }
  bool single() const { return known && min == max; }
};

// Durations of some of a group's launches: those whose duration is known.
struct Durations {
  std::uint64_t count = 0;
  std::int64_t total_ns = 0;
  Range<std::int64_t> each_ns;

  // A hostile log can bring the total to its bounds; there it stays.
  void add(std::int64_t ns) {
    ++count;
    add_total(ns);
    each_ns.add(ns);
  }
  void add(const Durations& other) {
    count += other.count;
    add_total(other.total_ns);
    if (!other.each_ns.known) return;
    each_ns.add(other.each_ns.min);
    each_ns.add(other.each_ns.max);
  }
  void add_total(std::int64_t ns) {
    if (__builtin_add_overflow(total_ns, ns, &total_ns)) total_ns = ns < 0 ? INT64_MIN : INT64_MAX;
  }
  // Of a kernel_summary: `n` launches at once.
  void add_many(std::uint64_t n, std::int64_t total, const event::MaybeNs& least, const event::MaybeNs& most);
  std::optional<double> mean_ns() const {
    if (count == 0) return std::nullopt;
    return static_cast<double>(total_ns) / static_cast<double>(count);
  }
};

// Durations whose spread is known too: of those that were told one by one, which a kernel_summary does not.
struct SpreadDurations : Durations {
  event::QuantileSketch sketch;

  void add(std::int64_t ns, event::SketchBudget& budget);
  void add(const SpreadDurations& other, event::SketchBudget& budget);
  std::optional<double> deviation_ns() const;         // standard deviation, of all of them
  std::optional<double> quantile_ns(double q) const;  // within the sketch's error

 private:
  double mean_ = 0, squares_ = 0;  // squares of the distances to the mean, added up (Welford)
};

// The facts of one configuration, as far as its lines tell them.
struct ConfigFacts {
  std::optional<std::int32_t> num_regs, static_shared_bytes, local_bytes_per_thread, max_active_blocks;
  std::optional<double> occupancy;
  std::optional<event::Limiter> limiter;
  event::LimiterSet limiters = 0;
  std::array<std::optional<double>, event::kLimiterCount> limit_occupancy;
  event::LaunchShape shape;
  bool shape_known = false;
};

struct LaunchGroup {
  std::string label;            // mangled name, scope path, "stream 3 of pid 17" ...
  std::optional<std::int32_t> device;  // where all launches agree
  bool several_devices = false;

  std::uint64_t launches = 0;   // executed or refused; not those captured into a graph
  std::uint64_t failed = 0;     // of these: refused by the driver
  std::uint64_t captured = 0;   // recorded into a graph, beside `launches`
  std::uint64_t replayed = 0;   // of `launches`: run by graphs, counted by what these run
  std::uint64_t configs = 0;    // configurations seen
  Durations call;               // host duration of the launch call
  SpreadDurations gpu;          // time on the device
  Durations queue;              // from the launch call to the start on the device
  Durations event_error;        // of times by events: by how much each may be too long
  std::optional<Extrapolation> extrapolated;  // of all launches, where times were taken of samples

  Range<std::int32_t> num_regs, static_shared_bytes, local_bytes_per_thread, max_active_blocks;
  Range<std::uint32_t> dyn_shared_bytes;
  Range<std::uint64_t> block_threads;
  Range<std::uint64_t> grid_blocks;  // blocks of a launch, of those that have lines of their own
  event::Dim3 block;            // of the first configuration
  bool several_blocks = false;
  event::Dim3 cluster{0, 0, 0};
  Range<double> occupancy;
  double occupancy_sum = 0;     // weighted by launches
  std::uint64_t occupancy_count = 0;
  std::array<std::uint64_t, event::kLimiterCount> limited_by{};  // launches by limiter
  std::array<Range<double>, event::kLimiterCount> limit_occupancy;
  event::LimiterSet limiters = 0;  // every tied limiter of every configuration

  void add_config(const ConfigFacts& facts);
  void add_device(std::optional<std::int32_t> which);
  // `facts` of a configuration that add_config has had.
  void add_launches(const ConfigFacts& facts, std::uint64_t count);
  // Another group's launches as well; the label stays. `configs` then counts those of both, also where they are the same.
  void add(const LaunchGroup& other, event::SketchBudget& budget);
  void add_extrapolation(const LaunchGroup& other);

  // Executed or tried, and not refused: those that can have a time.
  std::uint64_t executed() const { return launches - std::min(launches, failed); }
  // Total GPU time if those without a time took as long as those with one, on average: of their configuration where
  // samples were taken, else of all.
  std::optional<double> estimated_total_ns() const;
  // By how much the former may be too long, as the gaps between events and kernel are in it; 0: not at all.
  double most_too_long_ns() const;
  std::optional<double> mean_occupancy() const;
  std::optional<event::Limiter> main_limiter() const;  // by launches
};

}  // namespace gpuflight::analysis
