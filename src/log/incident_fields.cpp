// The keys of calls that wait, errors, hangs, forks, changes of level and the end of a process.
#include "log/field_table.h"

namespace gpuflight::log {
namespace {

using namespace fields;

constexpr std::array<const char*, 2> kHangPhaseNames = {"begin", "end"};

#define F(key, required, expression) GPUFLIGHT_FIELD(T, key, required, expression)
template <class T>
constexpr auto api_fields() {
  return std::array{
      F("call", true, read(v, e.name)),
      F("stream", false, read_or_null(v, e.call.stream)),
      F("scope", false, read(v, e.scope)),
      F("thread", false, read_or_null(v, e.call.thread)),
      F("seq", false, read(v, e.call.seq)),
      F("time_ns", true, read(v, e.call.time_ns)),
      F("call_ns", false, read(v, e.call.call_ns)),
      F("status", false, read(v, e.call.status)),
      F("late", false, read(v, e.call.late)),
  };
}
#undef F

#define F(key, required, expression) GPUFLIGHT_FIELD(event::SuspectLaunch, key, required, expression)
constexpr std::array kLaunchFields = {
    F("event", true, read(v, e.seq)),
    F("name", false, read_or_null(v, e.name)),
    F("config", false, read_or_null(v, e.config)),
    F("grid", false, v.is_null() || read_dim(v, e.grid)),
    F("block", false, v.is_null() || read_dim(v, e.block)),
    F("dyn_shared_bytes", false, read_or_null(v, e.dyn_shared_bytes)),
    F("graph", false, read_or_null(v, e.graph)),
    F("launch_ns", true, read(v, e.launch_ns)),
    F("status", false, read(v, e.status)),
};
#undef F

// One value that is an object of its own; keys of a later minor version are skipped in it.
template <class T, std::size_t N>
bool read_object(const Value& v, const std::array<Field<T>, N>& table, T& to) {
  simdjson::dom::object object;
  return v.get(object) == simdjson::SUCCESS && fill(table, object, to).ok();
}

template <class T, std::size_t N>
bool read_objects(const Value& v, const std::array<Field<T>, N>& table, std::vector<T>& to) {
  simdjson::dom::array array;
  if (v.get(array) != simdjson::SUCCESS) return false;
  for (const Value one : array) {
    if (!read_object(one, table, to.emplace_back())) return false;
  }
  return true;
}

bool read_culprit(const Value& v, std::optional<event::SuspectLaunch>& to) {
  return v.is_null() || read_object(v, kLaunchFields, to.emplace());
}

#define F(key, required, expression) GPUFLIGHT_FIELD(event::StreamInFlight, key, required, expression)
constexpr std::array kInFlightFields = {
    F("stream", true, read(v, e.stream)),
    F("count", true, read(v, e.count)),
    F("finished_ns", false, read_or_null(v, e.finished_ns)),
    F("launches", false, read_objects(v, kLaunchFields, e.launches)),
};
#undef F

#define F(key, required, expression) GPUFLIGHT_FIELD(event::ErrorEvent, key, required, expression)
constexpr std::array kErrorFields = {
    F("seq", false, read(v, e.seq)),
    F("time_ns", true, read(v, e.time_ns)),
    F("code", true, read(v, e.code)),
    F("name", false, read_or_null(v, e.name)),
    F("call", false, read_or_null(v, e.call)),
    F("thread", false, read_or_null(v, e.thread)),
    F("context", false, read_or_null(v, e.context)),
    F("confidence", false, read(v, e.confidence)),
    F("culprit", false, read_culprit(v, e.culprit)),
    F("in_flight", false, read_objects(v, kInFlightFields, e.in_flight)),
};
#undef F

#define F(key, required, expression) GPUFLIGHT_FIELD(event::BlockedCall, key, required, expression)
constexpr std::array kBlockedFields = {
    F("thread", true, read(v, e.thread)),
    F("call", true, read(v, e.call)),
    F("since_ns", true, read(v, e.since_ns)),
    F("for_ns", false, ignore(v)),
};
#undef F

#define F(key, required, expression) GPUFLIGHT_FIELD(event::HangEvent, key, required, expression)
constexpr std::array kHangFields = {
    F("seq", false, read(v, e.seq)),
    F("phase", true, read_name(v, e.phase, kHangPhaseNames)),
    F("time_ns", true, read(v, e.time_ns)),
    F("since_ns", true, read(v, e.since_ns)),
    F("hung_ns", false, ignore(v)),
    F("stream", true, read(v, e.stream.stream)),
    F("count", false, read(v, e.stream.count)),
    F("launches", false, read_objects(v, kLaunchFields, e.stream.launches)),
    F("blocked", false, read_objects(v, kBlockedFields, e.blocked)),
};
#undef F

#define F(key, required, expression) GPUFLIGHT_FIELD(event::ForkEvent, key, required, expression)
constexpr std::array kForkFields = {
    F("seq", false, read(v, e.seq)),
    F("time_ns", true, read(v, e.time_ns)),
    F("child_pid", true, read(v, e.child_pid)),
};
#undef F

#define F(key, required, expression) GPUFLIGHT_FIELD(event::ExitEvent, key, required, expression)
constexpr std::array kExitFields = {
    F("seq", false, read(v, e.seq)),
    F("time_ns", true, read(v, e.time_ns)),
    F("pid", true, read(v, e.pid)),
    F("exit_code", false, read(v, e.exit_code)),
    F("signal", false, read(v, e.signal)),
    F("signal_name", false, read_or_null(v, e.signal_name)),
    F("core_dumped", false, read(v, e.core_dumped)),
    F("oom_kill", false, read(v, e.oom_kill)),
    F("signal_from", false, read_or_null(v, e.signal_from)),
};
#undef F

#define F(key, required, expression) GPUFLIGHT_FIELD(event::LevelEvent, key, required, expression)
constexpr std::array kLevelFields = {
    F("seq", false, read(v, e.seq)),
    F("time_ns", true, read(v, e.time_ns)),
    F("from", true, read_name(v, e.from, event::kRecordLevelNames)),
    F("to", true, read_name(v, e.to, event::kRecordLevelNames)),
    F("reason", true, read_name(v, e.reason, event::kLevelReasonNames)),
    F("budget_percent", false, read(v, e.budget_percent)),
    F("share_percent", false, ignore(v)),
    F("app_percent", false, read(v, e.app_percent)),
    F("recorder_percent", false, read(v, e.recorder_percent)),
    F("floor_percent", false, read(v, e.floor_percent)),
};
#undef F

template <class T>
FieldTrouble read_call(const simdjson::dom::object& object, LogEvent& event) {
  T& line = fresh<T>(event);
  const FieldTrouble trouble = fill(api_fields<T>(), object, line);
  line.call.call = call_number(line.name);  // one that this version does not know keeps its name
  return trouble;
}

}  // namespace

FieldTrouble read_incident(LineType type, const simdjson::dom::object& object, LogEvent& event) {
  switch (type) {
    case LineType::kSync: return read_call<SyncLine>(object, event);
    case LineType::kApi: return read_call<ApiLine>(object, event);
    case LineType::kError: return fill(kErrorFields, object, fresh<event::ErrorEvent>(event));
    case LineType::kHang: return fill(kHangFields, object, fresh<event::HangEvent>(event));
    case LineType::kFork: return fill(kForkFields, object, fresh<event::ForkEvent>(event));
    case LineType::kExit: return fill(kExitFields, object, fresh<event::ExitEvent>(event));
    case LineType::kLevel: return fill(kLevelFields, object, fresh<event::LevelEvent>(event));
    default: return {};
  }
}

}  // namespace gpuflight::log
