// What the recorder cost under a budget, and at which levels it recorded: for people and for programs.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "analysis/log_facts.h"
#include "event/level.h"

namespace gpuflight::report {

// "1.25 % of a budget of 1 %: from events to sampled" and the like, for the line of a change.
std::string level_text(const event::LevelEvent& level);

// "1 %: 3 changes, 42.0 s at events, 18.0 s at sampled; cost 0.8 % ..."; empty: there was no budget.
std::string budget_text(const analysis::LogFacts& log);

// Keys in docs/CLI.md; null: there was no budget.
nlohmann::ordered_json budget_json(const analysis::LogFacts& log);

}  // namespace gpuflight::report
