// Says when a stream has work and nothing of it gets done, and says so again when it goes on. It looks at marks and at
// calls that have not come back, never at the host's streams.
//
// Threads: the recorder thread, once a round. Allocates when it has something to say.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "event/incidents.h"
#include "recorder/stream_progress.h"

namespace gpuflight::recorder {

class Watchdog {
 public:
  explicit Watchdog(std::int64_t hang_after_ns) : hang_after_ns_(hang_after_ns) {}

  // `blocked`: calls that host threads are in now. What began or ended to hang since the last call; the launches of
  // each are indices into progress (the caller names them).
  struct Finding {
    event::HangEvent::Phase phase;
    std::uint32_t stream;
    std::int64_t since_ns;
  };
  std::vector<Finding> look(StreamProgress& progress, const std::vector<event::BlockedCall>& blocked,
                            std::int64_t now_ns);

 private:
  const std::int64_t hang_after_ns_;  // 0: off
};

}  // namespace gpuflight::recorder
