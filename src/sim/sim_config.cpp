#include "sim/sim_config.h"

#include <array>
#include <charconv>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "event/board.h"

namespace gpuflight::sim {
namespace {

using nlohmann::json;

template <class Int>
Int number(std::string_view text) {
  Int value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) throw std::invalid_argument("not a number");
  return value;
}

bool truth(std::string_view text) { return number<int>(text) != 0; }

NthFault nth_fault(std::string_view text) {
  const auto colon = text.find(':');
  if (colon == std::string_view::npos) throw std::invalid_argument("want N:CODE");
  return {number<std::uint64_t>(text.substr(0, colon)), number<int>(text.substr(colon + 1))};
}

std::vector<NthFault> nth_faults(std::string_view text) {
  std::vector<NthFault> out;
  while (!text.empty()) {
    const auto comma = std::min(text.find(','), text.size());
    out.push_back(nth_fault(text.substr(0, comma)));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return out;
}

// "12.8" or "130001": releases before 13.0 counted their API versions one by one. As the libraries answer that pip
// packages carry (12.0 says 18, not the 19 of cupti_version.h; 12.9 is its update 1).
std::uint32_t cupti_version(std::string_view text) {
  const auto dot = text.find('.');
  if (dot == std::string_view::npos) return number<std::uint32_t>(text);
  const int major = number<int>(text.substr(0, dot));
  const int minor = number<int>(text.substr(dot + 1));
  if (major >= 13) return static_cast<std::uint32_t>(major * 10000 + minor * 100);
  constexpr std::array<std::uint32_t, 10> kCuda12 = {18, 18, 20, 21, 22, 23, 24, 24, 26, 28};
  if (major == 12 && minor >= 0 && minor < 10) return kCuda12[static_cast<std::size_t>(minor)];
  throw std::invalid_argument("no such CUPTI");
}

event::DeviceInfo board_named(std::string_view name) {
  const event::DeviceInfo* board = event::find_board(name);
  if (board == nullptr) throw std::invalid_argument("no such board");
  return *board;
}

struct Setting {
  std::string_view key;  // in the plan; the variable is GPUFLIGHT_SIM_ and the key in capitals
  std::function<void(SimConfig&, std::string_view)> apply;
};

const std::vector<Setting>& settings() {
  static const std::vector<Setting> table = {
      {"device", [](SimConfig& c, std::string_view v) { c.board = board_named(v); }},
      {"device_count", [](SimConfig& c, std::string_view v) { c.device_count = number<int>(v); }},
      {"driver_version", [](SimConfig& c, std::string_view v) { c.driver_version = number<int>(v); }},
      {"cupti_version", [](SimConfig& c, std::string_view v) { c.cupti_version = cupti_version(v); }},
      {"init_error", [](SimConfig& c, std::string_view v) { c.init_error = number<int>(v); }},
      {"occupancy_error", [](SimConfig& c, std::string_view v) { c.occupancy_error = number<int>(v); }},
      {"launch_error", [](SimConfig& c, std::string_view v) { c.launch_errors = nth_faults(v); }},
      {"sticky", [](SimConfig& c, std::string_view v) { c.sticky = nth_fault(v); }},
      {"subscriber_taken", [](SimConfig& c, std::string_view v) { c.subscriber_taken = truth(v); }},
      {"cupti_too_new", [](SimConfig& c, std::string_view v) { c.cupti_too_new = truth(v); }},
      {"activity_error", [](SimConfig& c, std::string_view v) { c.activity_error = number<int>(v); }},
      {"timestamp_error", [](SimConfig& c, std::string_view v) { c.timestamp_error = number<int>(v); }},
      {"buffers_late_ms", [](SimConfig& c, std::string_view v) { c.buffers_late_ms = number<std::int64_t>(v); }},
      {"drop_every", [](SimConfig& c, std::string_view v) { c.drop_every = number<std::uint64_t>(v); }},
      {"zero_times_every", [](SimConfig& c, std::string_view v) { c.zero_times_every = number<std::uint64_t>(v); }},
      {"body_kernel", [](SimConfig& c, std::string_view v) { c.body_kernel = v; }},
      {"buffers_on_app_threads", [](SimConfig& c, std::string_view v) { c.buffers_on_app_threads = truth(v); }},
  };
  return table;
}

std::string variable_of(std::string_view key) {
  std::string name = "GPUFLIGHT_SIM_";
  for (const char c : key) name += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

std::string as_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  return value.dump();
}

void apply(SimConfig& config, const Setting& setting, const std::string& source, const std::string& value) {
  try {
    setting.apply(config, value);
  } catch (const std::exception& e) {
    if (config.complaint.empty()) config.complaint = source + "=" + value + ": " + e.what();
  }
}

void apply_plan(SimConfig& config, const char* path) {
  try {
    const json plan = json::parse(std::ifstream(path));
    if (!plan.contains("device")) return;
    const json& device = plan.at("device");
    for (const Setting& s : settings()) {
      // In the plan the board is "board": its section is already called "device".
      const std::string key = s.key == "device" ? "board" : std::string(s.key);
      if (device.contains(key)) apply(config, s, key, as_text(device.at(key)));
    }
  } catch (const std::exception& e) {
    config.complaint = std::string(path) + ": " + e.what();
  }
}

SimConfig read_config() {
  SimConfig config;
  config.board = board_named("sm_90");
  if (const char* path = std::getenv("GPUFLIGHT_SIM_PLAN")) apply_plan(config, path);
  for (const Setting& s : settings()) {
    const std::string variable = variable_of(s.key);
    if (const char* value = std::getenv(variable.c_str())) apply(config, s, variable, value);
  }
  return config;
}

}  // namespace

const SimConfig& sim_config() {
  // Never destroyed: threads of the host may still call in while the process exits.
  static const SimConfig& config = *new SimConfig(read_config());
  return config;
}

}  // namespace gpuflight::sim
