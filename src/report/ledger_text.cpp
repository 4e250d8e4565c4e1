#include "report/ledger_text.h"

#include <fmt/format.h>

#include "report/quantity.h"

namespace gpuflight::report {

std::string loss_text(const event::Ledger& ledger) {
  std::string out;
  for (int i = 0; i < event::kLossCauseCount; ++i) {
    if (ledger.lost[i] == 0) continue;
    if (!out.empty()) out += ", ";
    out += fmt::format("{} {}", event::kLossCauseNames[i], count_text(ledger.lost[i]));
  }
  return out;
}

std::string ledger_line(const event::Ledger& ledger) {
  const bool whole = ledger.lost_total() == 0 && ledger.pending == 0 && ledger.rotated_away == 0 &&
                     ledger.null_time == 0 && ledger.table_full == 0 && ledger.balanced();
  return whole ? std::string() : ledger_sum(ledger);
}

std::string ledger_sum(const event::Ledger& ledger) {
  std::string text = fmt::format("events seen {} = written {} + summarised {} + pending {} + lost {}",
                                 count_text(ledger.seen), count_text(ledger.written), count_text(ledger.summarised),
                                 count_text(ledger.pending), count_text(ledger.lost_total()));
  if (ledger.lost_total() > 0) text += " (" + loss_text(ledger) + ")";
  const auto beside = [&](const char* what, std::uint64_t n) {
    if (n > 0) text += fmt::format("; {} {}", what, count_text(n));
  };
  beside("rotated away", ledger.rotated_away);
  beside("without a GPU time", ledger.null_time);
  beside("without a row in the tables", ledger.table_full);
  if (!ledger.balanced()) text += "; THE LEDGER DOES NOT BALANCE";
  return text;
}

event::Ledger as_ledger(const analysis::RecoveryLedger& from) {
  event::Ledger ledger;
  ledger.seen = from.seen;
  ledger.written = from.in_log + from.recovered + from.rotated_away;
  ledger.summarised = from.summarised;
  ledger.pending = from.in_motion;
  ledger.rotated_away = from.rotated_away;
  ledger.lost = from.lost;
  ledger.lost[static_cast<std::size_t>(event::LossCause::kShutdown)] += from.unfinished + from.unexplained;
  return ledger;
}

}  // namespace gpuflight::report
