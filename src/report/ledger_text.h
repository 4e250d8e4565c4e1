// The ledger as the last line of every report.
#pragma once

#include <string>

#include "analysis/recovery.h"
#include "event/events.h"

namespace gpuflight::report {

// "events seen 1,000 = written 980 + summarised 0 + pending 5 + lost 15 (pool_empty 12, write_failed 3); rotated away
// 40"; empty: every event has its line, and none is missing.
std::string ledger_line(const event::Ledger& ledger);

// The same, never empty.
std::string ledger_sum(const event::Ledger& ledger);

// "pool_empty 12, write_failed 3"
std::string loss_text(const event::Ledger& ledger);

// What was recovered counts as written; what nothing explains as lost at the end (shutdown).
event::Ledger as_ledger(const analysis::RecoveryLedger& ledger);

}  // namespace gpuflight::report
