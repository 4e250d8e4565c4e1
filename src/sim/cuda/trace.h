// The callback points of the simulated driver. An API that nobody traces costs one relaxed load.
#pragma once

#include "sim/cuda/driver.h"

#include <utility>

#include "sim/sim_hooks.h"

namespace gpuflight::sim {

SimHooks& hooks();

// Id of the driver call under way on this thread; 0 where nobody traces it.
struct TracedCall {
  std::uint32_t correlation = 0;
};

inline std::uint32_t new_correlation() {
  return hooks().next_correlation.fetch_add(1, std::memory_order_relaxed);
}

void fire_api(CUpti_CallbackId cbid, const CUpti_CallbackData& data);

void fill_context(CUpti_CallbackData& data);

// Mangled name of what a launch was given; nullptr: no kernel.
const char* symbol_of(CUfunction f);

template <class MakeSymbol, class MakeParams, class Body>
[[gnu::noinline]] CUresult call_with_callbacks(CUpti_driver_api_trace_cbid cbid, const char* name,
                                               MakeSymbol&& make_symbol, MakeParams&& make_params, Body&& body) {
  const auto params = make_params();
  CUresult result = CUDA_SUCCESS;
  std::uint64_t correlation_data = 0;
  CUpti_CallbackData data{};
  data.functionName = name;
  data.functionParams = &params;
  data.functionReturnValue = &result;
  data.symbolName = make_symbol();
  data.correlationData = &correlation_data;
  data.correlationId = new_correlation();
  data.callbackSite = CUPTI_API_ENTER;
  fill_context(data);
  fire_api(cbid, data);
  result = body(TracedCall{data.correlationId});
  data.callbackSite = CUPTI_API_EXIT;
  fill_context(data);
  fire_api(cbid, data);
  return result;
}

template <class MakeSymbol, class MakeParams, class Body>
inline CUresult traced(CUpti_driver_api_trace_cbid cbid, const char* name, MakeSymbol&& make_symbol,
                       MakeParams&& make_params, Body&& body) {
  SimHooks& h = hooks();
  if (h.driver_enabled[cbid].load(std::memory_order_relaxed)) [[unlikely]] {
    return call_with_callbacks(cbid, name, make_symbol, make_params, body);
  }
  // Activity records need ids also where no callback is on.
  if (h.activity.load(std::memory_order_relaxed)) [[unlikely]] return body(TracedCall{new_correlation()});
  return body(TracedCall{});
}

// Resource and synchronise domains.
void fire_resource(CUpti_CallbackIdResource cbid, Context* context, CUstream stream, void* descriptor);
void fire_synchronize(CUpti_CallbackIdSync cbid, Context* context, CUstream stream);
void fire_graph(CUpti_CallbackIdResource cbid, const CUpti_GraphData& graph);

inline bool resource_wanted(CUpti_CallbackIdResource cbid) {
  return hooks().resource_enabled[cbid].load(std::memory_order_relaxed) != 0;
}

}  // namespace gpuflight::sim

#define SIM_UNPACK(...) __VA_ARGS__
#define SIM_TRACED_AS(NAME, SYMBOL, ARGS, ...)                                                         \
  return ::gpuflight::sim::traced(                                                                     \
      CUPTI_DRIVER_TRACE_CBID_##NAME, #NAME, [&]() -> const char* { return SYMBOL; },                  \
      [&] { return NAME##_params{SIM_UNPACK ARGS}; },                                                  \
      [&]([[maybe_unused]] const ::gpuflight::sim::TracedCall call) -> CUresult __VA_ARGS__)
// SIM_TRACED(cuStreamQuery, (hStream), { return ...; }): the body, seen by CUPTI as a call of that name.
#define SIM_TRACED(NAME, ARGS, ...) SIM_TRACED_AS(NAME, nullptr, ARGS, __VA_ARGS__)
// The same for a launch of kernel F.
#define SIM_TRACED_LAUNCH(NAME, F, ARGS, ...) SIM_TRACED_AS(NAME, ::gpuflight::sim::symbol_of(F), ARGS, __VA_ARGS__)
