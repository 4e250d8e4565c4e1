#include "verbs.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include <fmt/format.h>

namespace gpuflight::cli {
namespace {

constexpr std::array kVerbs = {
    Verb{"run", "Record", "run a program and record its kernel launches", run_verb},
    Verb{"tail", "Look", "follow a log while it grows, one line per kernel", tail_verb},
    Verb{"report", "Look", "table of the kernels of one or more logs", report_verb},
#ifdef GPUFLIGHT_HAS_OCCUPANCY  // built with cuda_occupancy.h
    Verb{"explain", "Look", "what limits each kernel, what to change, what it would bring", explain_verb},
    Verb{"occupancy", "Look", "occupancy on any architecture, by numbers or as recorded", occupancy_verb},
#endif
    Verb{"diff", "Look", "which kernels changed between two sides of recordings, and whether they got slower", diff_verb},
    Verb{"check", "Look", "logs held against a budget of times, occupancy, launches, idle time", check_verb},
    Verb{"analyze", "Look", "what in the timeline costs time, and what to do about it", analyze_verb},
    Verb{"export", "Look", "a recording as a trace for Perfetto, chrome://tracing and HTA", export_verb},
    Verb{"recover", "Look", "what a crash kept from the log, and how the program ended", recover_verb},
    Verb{"dump", "Command", "make a black box write its last events into its log", dump_verb},
    Verb{"pause", "Command", "stop recording a running process", pause_verb},
    Verb{"resume", "Command", "go on recording it", resume_verb},
    Verb{"timing", "Command", "GPU times of a running process on or off", timing_verb},
    Verb{"doctor", "Set up", "find out what would keep a recording from working here", doctor_verb},
    Verb{"version", "Set up", "versions of tool, library and formats", version_verb},
    Verb{"doctor-probe", nullptr, "looks at CUDA from inside a preloaded process; doctor starts it", doctor_probe_verb},
};

// Insertions, deletions, changes and swaps of neighbours.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = a[i - 1] == b[j - 1];
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (same ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::span<const Verb> verbs() { return kVerbs; }

const Verb* find_verb(std::string_view name) {
  const auto* found = std::find_if(kVerbs.begin(), kVerbs.end(), [&](const Verb& v) { return name == v.name; });
  return found == kVerbs.end() ? nullptr : &*found;
}

std::string short_help() {
  std::string text =
      "gpuflight: flight recorder for CUDA programs\n\n"
      "  gpuflight run -- ./my_program --its --arguments\n"
      "  gpuflight report gpuflight/my_program.1234.ndjson\n";
  const char* use = "";
  for (const Verb& verb : kVerbs) {
    if (verb.use == nullptr) continue;
    if (std::strcmp(use, verb.use) != 0) text += fmt::format("\n{}\n", use = verb.use);
    text += fmt::format("  {:<9} {}\n", verb.name, verb.summary);
  }
  text += "\n'gpuflight VERB --help' tells a verb's options and shows examples.\n";
  return text;
}

std::string nearest_word(std::string_view word, std::span<const std::string> known) {
  std::string best;
  if (word.size() > 64) return best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const bool begins = word.size() >= 2 && candidate.starts_with(word);
    const std::size_t distance = begins ? 1 : edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace gpuflight::cli
