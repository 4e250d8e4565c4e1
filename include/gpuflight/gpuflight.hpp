// gpuflight: flight recorder for CUDA. C++ API: a header over the C API, so that no C++ type crosses the library's
// border. Thread-safety and errors as in gpuflight.h. None of it throws but for std::bad_alloc from your own strings.
#ifndef GPUFLIGHT_GPUFLIGHT_HPP
#define GPUFLIGHT_GPUFLIGHT_HPP

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gpuflight/gpuflight.h"

namespace gpuflight {

// Options of a recording. What is left at its default is not passed on; environment variables win over all of them.
struct Options {
  bool enableKernelDetails = true;  // occupancy and its breakdown; off: that part is absent, and its cost too
  std::string logPath;              // pattern: %p pid, %h host, %e program, %r rank, %q{VAR}; empty: the default
  std::string flightPath;           // pattern of the flight file; empty: beside the log
  std::string mode;                 // "stream" (default) or "blackbox"
  std::string cuptiPath;            // the libcupti to use; empty: searched

  // Any other option of docs/OPTIONS.md by its name: set("log_max", "512M").
  Options& set(std::string name, std::string value) {
    more_.emplace_back(std::move(name), std::move(value));
    return *this;
  }

  std::vector<std::pair<std::string, std::string>> toList() const {
    std::vector<std::pair<std::string, std::string>> list;
    if (!enableKernelDetails) list.emplace_back("details", "off");
    if (!logPath.empty()) list.emplace_back("log", logPath);
    if (!flightPath.empty()) list.emplace_back("flight", flightPath);
    if (!mode.empty()) list.emplace_back("mode", mode);
    if (!cuptiPath.empty()) list.emplace_back("cupti", cuptiPath);
    list.insert(list.end(), more_.begin(), more_.end());
    return list;
  }

 private:
  std::vector<std::pair<std::string, std::string>> more_;
};

using Status = gpuflight_status;

inline Status init(const Options& options = {}) {
  const auto list = options.toList();
  std::vector<gpuflight_option> raw;
  raw.reserve(list.size());
  for (const auto& [name, value] : list) raw.push_back({name.c_str(), value.c_str()});
  return gpuflight_init(raw.data(), raw.size());
}

inline void mark(const char* name) { gpuflight_mark(name); }
inline void mark(const std::string& name) { gpuflight_mark(name.c_str()); }

inline Status flush(std::chrono::milliseconds timeout = std::chrono::milliseconds(1000)) {
  return gpuflight_flush(static_cast<std::uint32_t>(timeout.count()));
}
inline Status pause(bool release = false) {
  return gpuflight_pause(release ? GPUFLIGHT_PAUSE_RELEASE : GPUFLIGHT_PAUSE_KEEP);
}
inline Status resume() { return gpuflight_resume(); }
inline Status setTiming(bool on) { return gpuflight_set_timing(on ? 1 : 0); }
inline Status dump() { return gpuflight_dump(); }
inline Status shutdown(std::chrono::milliseconds timeout = std::chrono::milliseconds(2000)) {
  return gpuflight_shutdown(static_cast<std::uint32_t>(timeout.count()));
}

inline gpuflight_stats stats() {
  gpuflight_stats out{};
  out.size = sizeof(out);
  gpuflight_get_stats(&out);
  return out;
}

inline std::string logPath() { return gpuflight_log_path(); }
inline const char* version() { return gpuflight_version(); }
inline const char* toString(Status status) { return gpuflight_status_string(status); }

// A named stretch of this thread's work: launches inside carry its path ("step/forward") as `scope`.
// Must end on the thread it began on.
class Scope {
 public:
  explicit Scope(const char* name) { gpuflight_push_scope(name); }
  explicit Scope(const std::string& name) : Scope(name.c_str()) {}
  ~Scope() { gpuflight_pop_scope(); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

}  // namespace gpuflight

#endif
