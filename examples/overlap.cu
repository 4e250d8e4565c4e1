// Copy in, compute, copy out: one after the other in one stream, and in chunks over four streams, so that copies and
// kernels of different chunks overlap. With pinned memory it works; with pageable memory the "async" copies wait for a
// staging buffer, and little is gained.
//
// Look at: the same kernel with many launches on four streams; memcpy events by kind of memory, where recorded. The
// bound printed is (H + K + D) / N + (N - 1) / N * max(H, K, D) for N chunks.
#include "example.cuh"

constexpr int kBlock = 256;
constexpr int kStreams = 4;
constexpr int kChunks = 8;

// The logistic map: every round is the same two roundings on GPU and CPU, and what comes out depends on every bit that
// went in, so that a chunk copied too early or twice cannot go unnoticed.
__host__ __device__ inline float logistic(float x, int rounds) {
  for (int i = 0; i < rounds; ++i) x = 3.9f * fmaf(-x, x, x);
  return x;
}

__global__ void compute(float* data, int n, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] = logistic(data[i], rounds);
}

struct Work {
  float* host;
  float* device;
  int n;
  int rounds;
};

struct Parts {
  float copy_in_ms, compute_ms, copy_out_ms;
  float total() const { return copy_in_ms + compute_ms + copy_out_ms; }
  float bound(int chunks) const {
    return total() / chunks + (chunks - 1.0f) / chunks * std::max({copy_in_ms, compute_ms, copy_out_ms});
  }
};

static Parts one_stream(const Work& work, cudaStream_t stream) {
  const std::size_t bytes = work.n * sizeof(float);
  example::Event begin, copied, computed, end;
  begin.record(stream);
  CUDA_CHECK(cudaMemcpyAsync(work.device, work.host, bytes, cudaMemcpyHostToDevice, stream));
  copied.record(stream);
  compute<<<(work.n + kBlock - 1) / kBlock, kBlock, 0, stream>>>(work.device, work.n, work.rounds);
  example::launched(compute);
  computed.record(stream);
  CUDA_CHECK(cudaMemcpyAsync(work.host, work.device, bytes, cudaMemcpyDeviceToHost, stream));
  end.record(stream);
  return {example::Event::ms_between(begin, copied), example::Event::ms_between(copied, computed),
          example::Event::ms_between(computed, end)};
}

static float chunked(const Work& work, const std::vector<cudaStream_t>& streams) {
  example::Event begin, end;
  begin.record(streams[0]);
  for (std::size_t i = 1; i < streams.size(); ++i) CUDA_CHECK(cudaStreamWaitEvent(streams[i], begin.get(), 0));
  const int chunk = work.n / kChunks;
  for (int i = 0; i < kChunks; ++i) {
    const cudaStream_t stream = streams[i % streams.size()];
    float* host = work.host + i * chunk;
    float* device = work.device + i * chunk;
    CUDA_CHECK(cudaMemcpyAsync(device, host, chunk * sizeof(float), cudaMemcpyHostToDevice, stream));
    compute<<<(chunk + kBlock - 1) / kBlock, kBlock, 0, stream>>>(device, chunk, work.rounds);
    example::launched(compute);
    CUDA_CHECK(cudaMemcpyAsync(host, device, chunk * sizeof(float), cudaMemcpyDeviceToHost, stream));
  }
  std::vector<example::Event> done(streams.size());
  for (std::size_t i = 1; i < streams.size(); ++i) {
    done[i].record(streams[i]);
    CUDA_CHECK(cudaStreamWaitEvent(streams[0], done[i].get(), 0));
  }
  end.record(streams[0]);
  return example::Event::ms_between(begin, end);
}

static bool check_result(const char* what, const float* got, const std::vector<float>& input, int rounds) {
  const auto right = [&](std::size_t i) {
    if (got[i] == logistic(input[i], rounds)) return true;
    std::printf("%s: element %zu is wrong\n", what, i);
    return false;
  };
  // A sample, and both ends of every chunk.
  for (std::size_t i = 0; i < input.size(); i += 1009) {
    if (!right(i)) return false;
  }
  const std::size_t chunk = input.size() / kChunks;
  for (std::size_t i = 0; i < input.size(); i += chunk) {
    if (!right(i) || !right(i + chunk - 1)) return false;
  }
  return true;
}

static bool measure(const char* memory, float* host, const std::vector<float>& input, float* device, int rounds,
                    const std::vector<cudaStream_t>& streams) {
  const Work work{host, device, static_cast<int>(input.size()), rounds};
  std::copy(input.begin(), input.end(), host);
  one_stream(work, streams[0]);  // warm up
  std::copy(input.begin(), input.end(), host);
  const Parts parts = one_stream(work, streams[0]);
  bool ok = check_result("one stream", host, input, rounds);
  std::copy(input.begin(), input.end(), host);
  const float chunked_ms = chunked(work, streams);
  ok &= check_result("chunked", host, input, rounds);

  std::printf("%s, one stream: H %.3f + K %.3f + D %.3f = %.3f ms\n", memory, parts.copy_in_ms, parts.compute_ms,
              parts.copy_out_ms, parts.total());
  std::printf("%s, %d chunks on %d streams: %.3f ms, bound %.3f ms\n", memory, kChunks, kStreams, chunked_ms,
              parts.bound(kChunks));
  return ok;
}

int main(int argc, char** argv) {
  const example::Options options = example::parse_options(argc, argv);
  const int n = options.quick ? 1 << 20 : 1 << 24;
  const int rounds = 1024;  // on a big GPU about as long as copying the data one way
  const std::vector<float> input = example::random_floats(n);
  example::DeviceArray<float> device(n);
  std::vector<cudaStream_t> streams(kStreams);
  for (cudaStream_t& stream : streams) CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

  float* pinned = nullptr;
  CUDA_CHECK(cudaMallocHost(&pinned, n * sizeof(float)));
  bool ok = measure("pinned", pinned, input, device.get(), rounds, streams);
  CUDA_CHECK(cudaFreeHost(pinned));

  std::vector<float> pageable(n);
  ok &= measure("pageable", pageable.data(), input, device.get(), rounds, streams);

  std::printf("look at: streams of the kernel compute; with pinned memory its launches overlap copies\n");
  const int code = example::finish(ok);
  for (cudaStream_t stream : streams) CUDA_CHECK(cudaStreamDestroy(stream));
  return code;
}
