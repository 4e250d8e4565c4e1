// Which kernel events `tail` shows.
#pragma once

#include <cstdint>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "event/kernel_config.h"
#include "log/decoder.h"

namespace gpuflight::cli {

class EventFilter {
 public:
  explicit EventFilter(const char* verb = "tail") : verb_(verb) {}  // whose help a wrong filter points to

  // GLOB, /REGEX/, or a word that may stand anywhere in the name. Several: any of them. Throws UsageError.
  void add_name(const std::string& pattern);
  void add_limiter(const std::string& name);           // throws UsageError
  void set_occupancy_below(const std::string& text);   // 0.5 or 50%; throws UsageError
  void add_stream(std::uint32_t stream) { streams_.push_back(stream); }
  void set_failed_only() { failed_only_ = true; }

  bool empty() const;
  bool passes(const log::KernelEventLine& line);
  bool passes_name(const std::string& mangled);  // by the names alone

 private:
  struct Pattern {
    std::string glob;
    std::string part;
    std::optional<std::regex> regex;
  };
  bool name_passes(const std::string& mangled);
  bool matches(const Pattern& pattern, const std::string& name) const;

  const char* verb_;
  std::vector<Pattern> names_;
  std::unordered_map<std::string, bool> known_names_;
  event::LimiterSet limiters_ = 0;
  std::optional<double> occupancy_below_;
  std::vector<std::uint32_t> streams_;
  bool failed_only_ = false;
};

}  // namespace gpuflight::cli
