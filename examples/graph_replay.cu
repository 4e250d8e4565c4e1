// A chain of twenty small kernels launched one by one, and the same chain captured once and replayed as a CUDA graph.
//
// Look at: launches under capture are marked captured and run nothing by themselves; each replay is one
// graph_launch_event. The program counts all three kinds apart: CAPTURED, GRAPH_LAUNCHES, GRAPH_NODE_LAUNCHES;
// LAUNCHES are those that ran directly.
#include "example.cuh"

constexpr int kPairs = 10;
constexpr int kBlock = 256;

__global__ void scale(float* data, int n, float factor) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] *= factor;
}

__global__ void shift(float* data, int n, float offset) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] += offset;
}

// `counted` is told of every launch: those under capture must not end up in LAUNCHES.
template <class Counted>
static void enqueue_chain(float* data, int n, cudaStream_t stream, Counted&& counted) {
  for (int i = 0; i < kPairs; ++i) {
    scale<<<(n + kBlock - 1) / kBlock, kBlock, 0, stream>>>(data, n, 0.5f);
    counted(scale);
    shift<<<(n + kBlock - 1) / kBlock, kBlock, 0, stream>>>(data, n, 1.0f);
    counted(shift);
  }
}

int main(int argc, char** argv) {
  const example::Options options = example::parse_options(argc, argv);
  const int n = 1 << 14, replays = options.quick ? 5 : 500;
  const std::vector<float> input = example::random_floats(n);
  example::DeviceArray<float> data(input);
  cudaStream_t stream;
  CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  // The copies above were made in another stream.
  CUDA_CHECK(cudaDeviceSynchronize());

  const auto count_direct = [](auto* kernel) { example::launched(kernel); };
  const float direct_ms =
      example::mean_ms(replays, [&] { enqueue_chain(data.get(), n, stream, count_direct); }, stream);

  example::LaunchCount captured, nodes;
  CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  enqueue_chain(data.get(), n, stream, [&](auto* kernel) {
    CUDA_CHECK(cudaGetLastError());
    captured.add(kernel);
  });
  cudaGraph_t graph;
  CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec;
  CUDA_CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0));

  long graph_launches = 0;
  CUDA_CHECK(cudaStreamSynchronize(stream));
  data.set(input);
  CUDA_CHECK(cudaDeviceSynchronize());
  const auto replay = [&] {
    CUDA_CHECK(cudaGraphLaunch(exec, stream));
    ++graph_launches;
    nodes.add(scale, kPairs);
    nodes.add(shift, kPairs);
  };
  replay();
  CUDA_CHECK(cudaStreamSynchronize(stream));
  std::vector<float> expected = input;
  for (float& value : expected) {
    for (int i = 0; i < kPairs; ++i) value = value * 0.5f + 1.0f;
  }
  const std::vector<float> result = data.to_host();
  bool ok = true;
  for (int i = 0; i < n && ok; ++i) ok = example::close(result[i], expected[i], 1e-5);
  if (!ok) std::printf("graph replay: wrong result\n");
  const float graph_ms = example::mean_ms(replays, replay, stream);

  std::printf("%d kernels, direct: %.1f us, as a graph: %.1f us\n", 2 * kPairs, direct_ms * 1e3, graph_ms * 1e3);
  std::printf("look at: captured launches, graph_launch_event\n");
  captured.print("CAPTURED");
  std::printf("GRAPH_LAUNCHES %ld\n", graph_launches);
  nodes.print("GRAPH_NODE_LAUNCHES");
  const int code = example::finish(ok);
  CUDA_CHECK(cudaGraphExecDestroy(exec));
  CUDA_CHECK(cudaGraphDestroy(graph));
  CUDA_CHECK(cudaStreamDestroy(stream));
  return code;
}
