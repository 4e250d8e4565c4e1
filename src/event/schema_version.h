// Versions of the two formats. docs/FORMAT.md holds the table of what changed when.
#pragma once

#include <cstdint>

namespace gpuflight::event {

// Of library and tools alike; include/gpuflight/gpuflight.h has the same numbers as macros (a test compares them).
inline constexpr const char* kLibraryVersion = "0.1.0";

// The log: "schema" in session_start. Minor: new keys or types. Major: a key changed its meaning or type.
inline constexpr std::uint32_t kLogSchemaMajor = 1;
inline constexpr std::uint32_t kLogSchemaMinor = 2;

// The flight file: header words. A reader refuses another major and reads any minor.
inline constexpr std::uint32_t kFlightMajor = 1;
inline constexpr std::uint32_t kFlightMinor = 0;

}  // namespace gpuflight::event
