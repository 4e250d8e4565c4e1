// The recorder used through its API: options, scopes that nest, a mark, a stretch that is not recorded, and the
// counters it keeps of itself.
//
// Look at: `scope` of the kernel events ("step/forward", "step/backward"), the mark "step done", and that there is no
// event of kernel not_recorded. UNRECORDED counts its launches.
#include <gpuflight/gpuflight.hpp>

#include "example.cuh"

constexpr int kBlock = 256;

__global__ void forward(const float* in, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] * 2.0f;
}
__global__ void backward(float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] += 1.0f;
}
__global__ void not_recorded(float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] -= 1.0f;
}

static bool expect(bool condition, const char* what) {
  if (!condition) std::printf("not so: %s\n", what);
  return condition;
}

static bool expect_ok(gpuflight::Status status, const char* what) {
  if (status != GPUFLIGHT_OK) std::printf("%s: %s\n", what, gpuflight::toString(status));
  return status == GPUFLIGHT_OK;
}

int main(int argc, char** argv) {
  const example::Options command_line = example::parse_options(argc, argv);
  const int n = 1 << 20, steps = command_line.quick ? 3 : 100, grid = n / kBlock;

  // Before the first CUDA call, so that every launch is recorded.
  gpuflight::Options options;
  options.enableKernelDetails = true;
  options.logPath = "api_scope.%p.ndjson";
  const gpuflight::Status started = gpuflight::init(options);
  // Preloaded with CUDA already up, the recording has begun with the environment's options: no fault.
  bool ok = started == GPUFLIGHT_ERROR_ALREADY_STARTED || expect_ok(started, "init");

  const std::vector<float> input = example::random_floats(n);
  example::DeviceArray<float> in(input), out(n);
  example::LaunchCount unrecorded;

  for (int step = 0; step < steps; ++step) {
    const gpuflight::Scope step_scope("step");
    {
      const gpuflight::Scope scope("forward");
      forward<<<grid, kBlock>>>(in.get(), out.get(), n);
      example::launched(forward);
    }
    {
      const gpuflight::Scope scope("backward");
      backward<<<grid, kBlock>>>(out.get(), n);
      example::launched(backward);
    }
    gpuflight::mark("step done");
  }

  ok &= expect_ok(gpuflight::pause(), "pause");
  not_recorded<<<grid, kBlock>>>(out.get(), n);
  CUDA_CHECK(cudaGetLastError());
  unrecorded.add(not_recorded);
  ok &= expect_ok(gpuflight::resume(), "resume");

  std::vector<float> expected(input);
  for (float& value : expected) value = value * 2.0f + 1.0f - 1.0f;
  ok &= example::check_equal("api_scope", out.to_host(), expected);

  ok &= expect_ok(gpuflight::flush(), "flush");
  const gpuflight_stats stats = gpuflight::stats();
  ok &= expect(stats.seen >= static_cast<std::uint64_t>(2 * steps), "every launch was seen");
  ok &= expect(stats.lost == 0, "nothing was lost");

  std::printf("gpuflight %s: seen %llu, written %llu, lost %llu; log %s\n", gpuflight::version(),
              static_cast<unsigned long long>(stats.seen), static_cast<unsigned long long>(stats.written),
              static_cast<unsigned long long>(stats.lost), gpuflight::logPath().c_str());
  std::printf("look at: scope of the kernel events in that log\n");
  CUDA_CHECK(cudaDeviceSynchronize());
  ok &= expect_ok(gpuflight::shutdown(), "shutdown");
  unrecorded.print("UNRECORDED");
  return example::finish(ok);
}
