#include "report/recorder_cost.h"

#include <array>

#include <fmt/format.h>

#include "report/quantity.h"

namespace gpuflight::report {
namespace {

using Json = nlohmann::ordered_json;
using event::LevelEvent;

const char* name_of(event::RecordLevel level) { return event::kRecordLevelNames[static_cast<std::size_t>(level)]; }

// Two digits that say something, whatever its size.
std::string short_percent(double percent) { return fmt::format("{:.{}g} %", percent, percent >= 100 ? 3 : 2); }

Json share_json(const LevelEvent& level) {
  return Json{{"share_percent", level.share_percent()},
              {"app_percent", level.app_percent},
              {"recorder_percent", level.recorder_percent},
              {"floor_percent", level.floor_percent}};
}

}  // namespace

std::string level_text(const LevelEvent& level) {
  const std::string cost =
      fmt::format("cost {} (program's threads {}, recorder's {}), budget {:g} %", short_percent(level.share_percent()),
                  short_percent(level.app_percent), short_percent(level.recorder_percent), level.budget_percent);
  if (level.reason == LevelEvent::Reason::kEnd) return fmt::format("{} over all, {}", name_of(level.to), cost);
  return fmt::format("{} to {}: {}, {}", name_of(level.from), name_of(level.to),
                     level.reason == LevelEvent::Reason::kFits ? "fits again" : "over budget", cost);
}

std::string budget_text(const analysis::LogFacts& log) {
  const std::string_view budget = log.budget();
  if (budget.empty() && !log.last_level) return {};
  std::string text(budget.substr(0, budget.find('%')));
  if (text.empty()) text = fmt::format("{:g}", log.last_level->budget_percent);
  text += fmt::format(" %: {} change{}", count_text(log.level_changes), log.level_changes == 1 ? "" : "s");
  const auto spent = log.time_at_levels();
  for (std::size_t i = 0; i < spent.size(); ++i) {
    if (spent[i] <= 0) continue;
    text += fmt::format(", {} at {}", duration_text(static_cast<double>(spent[i])), event::kRecordLevelNames[i]);
  }
  if (!log.level_end) return text;
  return text + fmt::format("; cost {} over all (program's threads {}, recorder's {})",
                            short_percent(log.level_end->share_percent()), short_percent(log.level_end->app_percent),
                            short_percent(log.level_end->recorder_percent));
}

Json budget_json(const analysis::LogFacts& log) {
  if (log.budget().empty() && !log.last_level) return nullptr;
  Json levels = Json::object(), events = Json::array();
  const auto spent = log.time_at_levels();
  for (std::size_t i = 0; i < spent.size(); ++i) levels[event::kRecordLevelNames[i]] = spent[i];
  for (const LevelEvent& level : log.levels) {
    Json json{{"time_ns", level.time_ns},
              {"from", name_of(level.from)},
              {"to", name_of(level.to)},
              {"reason", event::kLevelReasonNames[static_cast<std::size_t>(level.reason)]}};
    json.update(share_json(level));
    events.push_back(std::move(json));
  }
  return Json{{"option", std::string(log.budget())},
              {"budget_percent", log.last_level ? Json(log.last_level->budget_percent) : Json(nullptr)},
              {"changes", log.level_changes},
              {"level", log.last_level ? name_of(log.last_level->to) : name_of(event::RecordLevel::kEvents)},
              {"time_ns", std::move(levels)},
              {"mean", log.level_end ? share_json(*log.level_end) : Json(nullptr)},
              {"events", std::move(events)}};
}

}  // namespace gpuflight::report
