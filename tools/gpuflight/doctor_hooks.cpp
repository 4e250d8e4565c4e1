#include "doctor_hooks.h"

#include <fmt/format.h>

#include "report/kernel_name.h"

namespace gpuflight::cli {
namespace {

using Json = nlohmann::ordered_json;

void add_interposers(Findings& findings, const Json& loader) {
  if (!loader.is_object() || !loader.contains("interposers")) return;
  for (const Json& one : loader["interposers"]) {
    const std::string path = report::printable(one.value("path", ""));
    if (one.value("dlsym", false)) {
      findings.push_back({"interposer", Health::kNote, fmt::format("{} stands before dlsym as well", path),
                          "launches go through both; if one of the two sees none, change their order in LD_PRELOAD"});
    }
    if (one.value("malloc", false)) {
      findings.push_back({"allocator", Health::kNote, fmt::format("{} replaces malloc; it works with the hooks", path),
                          ""});
    }
  }
}

Finding hooks_finding(const std::string& hooks, const HooksProbe& probe) {
  if (!probe.facts.is_object()) {
    return {"hooks", Health::kWarning,
            fmt::format("a process with {} preloaded failed: {}", hooks, report::printable(probe.failure)),
            "record through CUPTI: gpuflight run --capture cupti"};
  }
  const Json& loader = probe.facts["loader"];
  if (!loader.is_object() || loader["hooks"].is_null()) {
    return {"hooks", Health::kWarning, fmt::format("{} was not taken by the dynamic loader", hooks),
            "it was built for another machine or a newer C library, or preloads are ignored here"};
  }
  if (probe.capture != "interpose") {
    const std::string why = !probe.problem.empty()  ? probe.problem
                            : !probe.reason.empty() ? probe.reason
                                                    : "the recorder did not say why";
    return {"hooks", Health::kWarning,
            fmt::format("{} is preloaded, yet launches are not seen by it: {}", hooks, report::printable(why)),
            "record through CUPTI, or see why the driver is reached past the hooks (docs/ARCHITECTURE.md)"};
  }
  return {"hooks", Health::kFine,
          fmt::format("{}: launches can be seen without CUPTI (capture_reason: {})", hooks, probe.reason), ""};
}

}  // namespace

Findings check_hooks(const std::string& library, const std::string& hooks, bool cuda_works,
                     const std::function<HooksProbe()>& probe, Json& facts) {
  facts = Json{{"path", nullptr}, {"capture", nullptr}, {"capture_reason", nullptr}};
  if (!hooks.empty()) facts["path"] = hooks;
  if (hooks.empty()) {
    return {{"hooks", Health::kWarning, fmt::format("no libgpuflight_hooks.so beside {}", library),
             "without it launches are seen through CUPTI only: install it beside the library"}};
  }
  if (!cuda_works) return {{"hooks", Health::kFine, hooks, ""}};
  const HooksProbe seen = probe();
  Findings findings{hooks_finding(hooks, seen)};
  if (seen.facts.is_object()) {
    facts["capture"] = seen.capture.empty() ? Json(nullptr) : Json(seen.capture);
    facts["capture_reason"] = seen.reason.empty() ? Json(nullptr) : Json(seen.reason);
    facts["loader"] = seen.facts.value("loader", Json());
    add_interposers(findings, facts["loader"]);
  }
  return findings;
}

}  // namespace gpuflight::cli
