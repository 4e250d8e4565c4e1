// Which key of which type goes where: from one parsed line to its struct. Private to the decoder.
#pragma once

#include <simdjson.h>

#include <string>
#include <string_view>

#include "log/decoder.h"

namespace gpuflight::log {

// kNone: no such type.
LineType line_type(std::string_view name);

struct FieldTrouble {
  std::string_view bad_key;      // a known key with a value of the wrong kind
  std::string_view missing_key;  // one that the type cannot be without
  std::string_view unknown_key;  // the first
  std::uint64_t unknown_keys = 0;
  bool ok() const { return bad_key.empty() && missing_key.empty(); }
};

// Makes `event` the alternative of `type` and fills it.
FieldTrouble read_fields(LineType type, const simdjson::dom::object& object, LogEvent& event);
// Those of activity_fields.cpp and incident_fields.cpp.
FieldTrouble read_activity(LineType type, const simdjson::dom::object& object, LogEvent& event);
FieldTrouble read_incident(LineType type, const simdjson::dom::object& object, LogEvent& event);

}  // namespace gpuflight::log
