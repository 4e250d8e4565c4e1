// Memory over time: growth that never returns, and a peak near what the device has.
#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "analysis/rules/rule_table.h"

namespace gpuflight::analysis::rules {
namespace {

constexpr std::size_t kMostKinds = 1024;
using Key = std::tuple<std::int32_t, event::AllocationKind, std::uint64_t>;  // device, kind, pool

// Least and last total in each of up to 64 stretches of time, which double when time goes beyond them.
class TotalsOverTime {
 public:
  void add(std::int64_t at, std::uint64_t total) {
    if (!begun_) origin_ = at;
    begun_ = true;
    at = std::max(at, origin_);
    while (at - origin_ >= width_ * static_cast<std::int64_t>(kBins)) halve();
    Bin& bin = bins_[static_cast<std::size_t>((at - origin_) / width_)];
    bin.least = bin.calls == 0 ? total : std::min(bin.least, total);
    bin.last = total;
    ++bin.calls;
  }
  struct Quarters {
    std::array<std::uint64_t, 4> least{};
    std::uint64_t last_half_calls = 0;
  };
  // Until the end of the log, which may be later than the last call.
  Quarters quarters(std::int64_t end) const {
    Quarters quarters;
    const std::size_t last_used = [&] {
      std::size_t last = 0;
      for (std::size_t i = 0; i < kBins; ++i) last = bins_[i].calls > 0 ? i : last;
      return last;
    }();
    const std::int64_t by_time = std::max<std::int64_t>(0, end - origin_) / width_;
    const std::size_t bins =
        std::max(last_used, static_cast<std::size_t>(std::min<std::int64_t>(by_time, kBins * 64))) + 1;
    std::array<bool, 4> any{};
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < bins; ++i) {
      const std::size_t quarter = std::min<std::size_t>(i * 4 / bins, 3);
      const Bin* const bin = i < kBins && bins_[i].calls > 0 ? &bins_[i] : nullptr;
      const std::uint64_t least = bin != nullptr ? std::min(bin->least, i > 0 ? total : bin->least) : total;
      quarters.least[quarter] = any[quarter] ? std::min(quarters.least[quarter], least) : least;
      any[quarter] = true;
      if (bin == nullptr) continue;
      total = bin->last;
      if (i * 2 >= bins) quarters.last_half_calls += bin->calls;
    }
    return quarters;
  }

 private:
  static constexpr std::size_t kBins = 64;
  struct Bin {
    std::uint64_t least = 0, last = 0, calls = 0;
  };
  void halve() {
    for (std::size_t i = 0; i < kBins / 2; ++i) {
      const Bin &a = bins_[2 * i], &b = bins_[2 * i + 1];
      bins_[i] = a.calls == 0 ? b : b.calls == 0 ? a : Bin{std::min(a.least, b.least), b.last, a.calls + b.calls};
    }
    std::fill(bins_.begin() + kBins / 2, bins_.end(), Bin());
    width_ *= 2;
  }
  bool begun_ = false;
  std::int64_t origin_ = 0, width_ = 1024;
  std::array<Bin, kBins> bins_{};
};

bool is_memory_call(const HostCall& call) {
  return (call.kind == CallKind::kAlloc || call.kind == CallKind::kFree) && call.total_bytes.has_value();
}

class MemoryGrowth final : public Rule {
 public:
  explicit MemoryGrowth(const RuleSettings& set)
      : min_bytes_(set["min_mb"] * 1e6), min_share_(set["min_share"]), min_calls_(set.count("min_calls")) {}

  void on_call(const HostCall& call) override {
    if (!is_memory_call(call) || call.allocation == event::AllocationKind::kMapping) return;
    const Key key{call.device, call.allocation, call.pool};
    if (!kinds_.contains(key) && kinds_.size() >= kMostKinds) return;
    Kind& kind = kinds_[key];
    kind.totals.add(call.time_ns, *call.total_bytes);
    if (call.kind == CallKind::kAlloc) kind.evidence.add(call.ref, static_cast<std::int64_t>(call.size));
  }
  void at_end(const LogTotals& totals, std::vector<Finding>& findings) override {
    for (const auto& [key, kind] : kinds_) {
      const auto [least, calls] = kind.totals.quarters(totals.last_call_ns);
      const bool grows = least[0] <= least[1] && least[1] < least[2] && least[2] < least[3];
      const double grown = static_cast<double>(least[3]) - static_cast<double>(least[1]);
      if (!grows || calls < min_calls_ || grown < min_bytes_ || grown < min_share_ * static_cast<double>(least[3]))
        continue;
      Finding f = costed("memory_growth", CostKind::kNone, 0, 0);
      f.severity = Severity::kWarning;
      f.device = std::get<0>(key);
      const char* const name = event::allocation_name(std::get<1>(key));
      f.message =
          "{kind} memory grows and does not return: never below {second} in the second quarter of the recording, "
          "{third} in the third, {fourth} in the last";
      f.cost_how = "it is memory that is lost, and in the end the program";
      f.remedy =
          "look for what is allocated each round and not freed: the biggest allocations are named here, scopes tell "
          "where they are made";
      f.text("kind", name == nullptr ? "unknown" : name).bytes("second", least[1]).bytes("third", least[2]);
      f.bytes("fourth", least[3]);
      kind.evidence.give(f);
      findings.push_back(std::move(f));
    }
  }

 private:
  struct Kind {
    TotalsOverTime totals;
    Evidence evidence;
  };
  const double min_bytes_, min_share_;
  const std::uint64_t min_calls_;
  std::map<Key, Kind> kinds_;
};

class MemoryPeak final : public Rule {
 public:
  explicit MemoryPeak(const RuleSettings& set) : share_(set["share"]) {}

  void on_call(const HostCall& call) override {
    using event::AllocationKind;
    const AllocationKind kind = call.allocation;
    if (!is_memory_call(call)) return;
    if (kind != AllocationKind::kDevice && kind != AllocationKind::kPool && kind != AllocationKind::kVirtual) return;
    const Key key{call.device, kind, call.pool};
    if (!totals_.contains(key) && totals_.size() >= kMostKinds) return;
    Device& device = devices_[call.device];
    std::uint64_t& total = totals_[key];
    device.now += *call.total_bytes - total;
    total = *call.total_bytes;
    if (device.now <= device.peak) return;
    device.peak = device.now;
    device.at = call.ref;
  }
  void at_end(const LogTotals&, std::vector<Finding>& findings) override {
    for (const auto& [number, device] : devices_) {
      const event::DeviceInfo* const info = log().device(number);
      if (info == nullptr || info->global_bytes <= 0) continue;
      const double part = static_cast<double>(device.peak) / static_cast<double>(info->global_bytes);
      if (part < share_) continue;
      Finding f = costed("memory_peak", CostKind::kNone, 0, 0);
      f.severity = Severity::kWarning;
      f.device = number;
      f.message = "at its peak the program had {peak} of the device's {size}, {share}";
      f.cost_how = "the next allocation may fail";
      f.remedy =
          "smaller batches, buffers used again, or memory freed before the peak; the context and its modules need "
          "memory besides";
      f.bytes("peak", device.peak).bytes("size", static_cast<std::uint64_t>(info->global_bytes)).ratio("share", part);
      f.evidence.push_back(device.at);
      f.evidence_total = 1;
      findings.push_back(std::move(f));
    }
  }

 private:
  struct Device {
    std::uint64_t now = 0, peak = 0;
    EventRef at;
  };
  const double share_;
  std::map<Key, std::uint64_t> totals_;
  std::map<std::int32_t, Device> devices_;
};

}  // namespace

std::vector<RuleInfo> memory_rules() {
  return {
      {"memory_growth", "memory that grows over the recording and never returns",
       "gpuflight: the least total of each quarter of the recording, so that a warm-up or a sawtooth is none",
       {{"min_mb", 16, "growth from the second quarter to the last, in MB"},
        {"min_share", 0.1, "growth, as share of the last quarter's least total"},
        {"min_calls", 10, "allocations and frees in the second half; fewer are no pattern"}},
       make_rule<MemoryGrowth>, RuleInfo::Needs::kSamples},
      {"memory_peak", "a peak near what the device has", "gpuflight: memory calls against the device's size",
       {{"share", 0.9, "of the device's memory"}},
       make_rule<MemoryPeak>, RuleInfo::Needs::kSamples},
  };
}

}  // namespace gpuflight::analysis::rules
