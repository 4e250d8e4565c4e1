// Copy in, compute, copy out in chunks, each stage in a stream of its own, so that chunks overlap; and from when to
// when each piece of work ran, as events around it say.
//
//   overlap_host [--chunks N] [--megabytes N] [--kernel-us N] [--simulated]
//
// A stage has a stream of its own, and the device one copy engine for each direction: so what an event marks as begun
// has begun, and does not wait for the engine. Result: one JSON line.
#include "driver_host.h"

namespace {

using namespace gpuflight::gpu_tests;

struct Span {
  double begin_ms, end_ms;
};

class Stage {
 public:
  // Work between two events in the stage's stream, after `before` has finished.
  template <class Work>
  CUevent run(CUevent before, Work&& work) {
    const CUevent begin = new_event(), end = new_event();
    if (before != nullptr) must(cuStreamWaitEvent(stream, before, 0), "cuStreamWaitEvent");
    must(cuEventRecord(begin, stream), "cuEventRecord");
    work(stream);
    must(cuEventRecord(end, stream), "cuEventRecord");
    events_.emplace_back(begin, end);
    return end;
  }
  std::vector<Span> spans(CUevent base) const {
    const auto since = [base](CUevent event) {
      float ms = 0;
      must(cuEventElapsedTime(&ms, base, event), "cuEventElapsedTime");
      return static_cast<double>(ms);
    };
    std::vector<Span> all;
    for (const auto& [begin, end] : events_) all.push_back({since(begin), since(end)});
    return all;
  }

  const CUstream stream = new_stream();

 private:
  std::vector<std::pair<CUevent, CUevent>> events_;
};

void print_spans(const char* name, const std::vector<Span>& spans, const char* end) {
  std::printf("\"%s\":[", name);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    std::printf("%s[%.6f,%.6f]", i > 0 ? "," : "", spans[i].begin_ms, spans[i].end_ms);
  }
  std::printf("]%s", end);
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments(argc, argv, {{"chunks", 12}, {"megabytes", 192}, {"kernel-us", 4000}});
  const std::size_t bytes = static_cast<std::size_t>(arguments["megabytes"]) << 20;
  const Device device;
  const std::uint64_t kernel_ns = static_cast<std::uint64_t>(arguments["kernel-us"]) * 1000;
  const Module module({{"overlap_warm_up"}, {"overlap_compute", 0, kernel_ns}}, arguments.simulated);
  const CUfunction kernel = module.function("overlap_compute");
  CUdeviceptr in = 0, out = 0;
  must(cuMemAlloc(&in, bytes), "cuMemAlloc");
  must(cuMemAlloc(&out, bytes), "cuMemAlloc");
  void *host_in = nullptr, *host_out = nullptr;
  must(cuMemAllocHost(&host_in, bytes), "cuMemAllocHost");
  must(cuMemAllocHost(&host_out, bytes), "cuMemAllocHost");
  Stage copy_in, compute, copy_out;
  launch(module.function("overlap_warm_up"), compute.stream);  // one by one: no overlap comes of it
  must(cuCtxSynchronize(), "warm up");
  must(cuMemcpyHtoDAsync(in, host_in, 4096, copy_in.stream), "warm up");
  must(cuCtxSynchronize(), "warm up");
  must(cuMemcpyDtoHAsync(host_out, out, 4096, copy_out.stream), "warm up");
  must(cuCtxSynchronize(), "warm up");

  const CUevent base = new_event();
  must(cuEventRecord(base, copy_in.stream), "cuEventRecord");
  for (long i = 0; i < arguments["chunks"]; ++i) {
    const CUevent copied = copy_in.run(nullptr, [&](CUstream s) {
      must(cuMemcpyHtoDAsync(in, host_in, bytes, s), "cuMemcpyHtoDAsync");
    });
    const CUevent computed = compute.run(copied, [&](CUstream s) { launch(kernel, s); });
    copy_out.run(computed, [&](CUstream s) { must(cuMemcpyDtoHAsync(host_out, out, bytes, s), "cuMemcpyDtoHAsync"); });
  }
  must(cuCtxSynchronize(), "cuCtxSynchronize");

  std::printf("{\"chunks\":%ld,\"copy_bytes\":%zu,", arguments["chunks"], bytes);
  print_spans("copies_in_ms", copy_in.spans(base), ",");
  print_spans("kernels_ms", compute.spans(base), ",");
  print_spans("copies_out_ms", copy_out.spans(base), "}\n");
  return 0;
}
