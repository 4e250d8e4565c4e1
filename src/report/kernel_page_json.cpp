#include "report/kernel_page_json.h"

#include <nlohmann/json.hpp>

#include "report/advice_json.h"
#include "report/kernel_name.h"

namespace gpuflight::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostNameColumns = 110;

Json curves_json(const analysis::Explanation& kernel) {
  Json out = Json::array();
  if (!kernel.advice) return out;
  for (const auto over :
       {occupancy::CurveOver::kBlock, occupancy::CurveOver::kRegisters, occupancy::CurveOver::kShared}) {
    out.push_back(curve_json(occupancy::occupancy_curve(kernel.scenario, over)));
  }
  return out;
}

}  // namespace

std::string kernel_page_json(const ExplainedKernels& explained, const analysis::LogSummary& logs) {
  Json out = Json::parse(explain_json(explained, logs));
  KernelNames names(kMostNameColumns);
  for (std::size_t i = 0; i < explained.kernels.size(); ++i) {
    const analysis::Explanation& kernel = explained.kernels[i];
    Json& row = out["kernels"][i];
    row["short_name"] = names.of(kernel.config.kernel.name);
    row["curves"] = curves_json(kernel);
    KernelWords words = kernel_words(kernel, explained.by_gpu_time);
    row["words"] = Json{{"numbers", std::move(words.numbers)},     {"launch", std::move(words.launch)},
                        {"occupancy", std::move(words.occupancy)}, {"best", std::move(words.best)},
                        {"findings", std::move(words.findings)},   {"advice_heading", std::move(words.advice_heading)},
                        {"advice", std::move(words.advice)}};
  }
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace gpuflight::report
