// Where launches come from: CUPTI callbacks now, interposed driver entry points later. A source turns what it sees into
// calls of LaunchRecorder; everything behind that is the same for all sources.
#pragma once

#include <string>

namespace gpuflight::capture {

enum class SourceStatus {
  kOk,
  kNoLibrary,    // nothing usable was found
  kSlotTaken,    // another client holds the one subscriber slot
  kTooNew,       // the library is newer than the driver
  kRefused,      // any other error
};

class LaunchSource {
 public:
  virtual ~LaunchSource() = default;

  virtual const char* name() const noexcept = 0;

  // Begins to see launches. `problem` says in one line what went wrong and what helps.
  virtual SourceStatus start(std::string& problem) noexcept = 0;

  // Sees nothing any more. With `release` it also gives up what other clients need.
  virtual void stop(bool release) noexcept = 0;
};

}  // namespace gpuflight::capture
