#include "report/incident_text.h"

#include <csignal>
#include <cstring>

#include <fmt/format.h>

#include "event/driver_status.h"
#include "report/quantity.h"

namespace gpuflight::report {
namespace {

std::string dim_text(event::Dim3 d) { return fmt::format("({},{},{})", d.x, d.y, d.z); }

std::string launches_text(std::uint64_t count) {
  return fmt::format("{} launch{}", count_text(count), count == 1 ? "" : "es");
}

}  // namespace

std::string suspect_text(const event::SuspectLaunch& launch, KernelNames& names) {
  if (launch.graph) return fmt::format("graph {}", launch.graph.value);
  if (launch.name.empty()) return "(unknown kernel) " + dim_text(launch.grid);
  std::string text = names.of(launch.name) + " " + dim_text(launch.grid) + " x " + dim_text(launch.block);
  if (launch.dyn_shared_bytes > 0) text += " + " + bytes_text(launch.dyn_shared_bytes);
  return text;
}

std::string error_text(const event::ErrorEvent& error, KernelNames& names) {
  const event::StickyStatus* const known = event::sticky_status(error.code);
  std::string text = error.name.empty() ? known != nullptr ? known->name : "CUDA error" : printable(error.name);
  text += known != nullptr ? fmt::format(" ({}, {})", error.code, known->words) : fmt::format(" ({})", error.code);
  if (!error.call.empty()) text += " returned by " + printable(error.call);
  if (error.thread != 0) text += fmt::format(" in thread {}", error.thread);
  if (!error.culprit) return text;
  text += "; likely cause: " + suspect_text(*error.culprit, names);
  return text + (error.confidence == "exact" ? ", the only launch it can be"
                                             : ", the oldest of those not known to have finished");
}

std::string exit_text(const event::ExitEvent& exit) {
  if (!exit.signal) return fmt::format("exited with code {}", exit.exit_code.value_or(0));
  const char* const words = strsignal(*exit.signal);
  std::string text = fmt::format("ended by signal {} ({}{}{})", *exit.signal, printable(exit.signal_name),
                                 exit.signal_name.empty() ? "" : ": ", words == nullptr ? "?" : words);
  if (exit.core_dumped) text += ", core dumped";
  if (exit.signal_from == "terminal") return text + ", from the terminal";
  if (exit.signal_from == "run") return text + ", which had been sent to gpuflight run";
  if (*exit.signal != SIGKILL) return text;
  if (!exit.oom_kill) return text + ", perhaps the kernel's OOM killer: it has ended something on this machine meanwhile";
  return text + (*exit.oom_kill ? ", the kernel's OOM killer: the memory was used up" : ", not the kernel's OOM killer");
}

std::string hang_text(const event::HangEvent& hang, KernelNames& names) {
  const std::string hung = duration_text(static_cast<double>(hang.time_ns) - static_cast<double>(hang.since_ns));
  const std::uint32_t stream = hang.stream.stream.value;
  if (hang.phase == event::HangEvent::Phase::kEnd) return fmt::format("stream {} goes on after {}", stream, hung);
  std::string text = fmt::format("stream {} hangs: nothing of its work was done for {}; {} not known to have finished",
                                 stream, hung, launches_text(hang.stream.count));
  if (!hang.stream.launches.empty()) text += ", first " + suspect_text(hang.stream.launches.front(), names);
  constexpr std::size_t kMostThreads = 4;
  for (std::size_t i = 0; i < hang.blocked.size() && i < kMostThreads; ++i) {
    text += fmt::format("; thread {} waits in {}", hang.blocked[i].thread, printable(hang.blocked[i].call));
  }
  if (hang.blocked.size() > kMostThreads) text += fmt::format("; and {} more", hang.blocked.size() - kMostThreads);
  return text;
}

}  // namespace gpuflight::report
