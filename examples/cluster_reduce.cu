// Thread block clusters (sm_90 and newer): four blocks sum up together through distributed shared memory. Where the
// device has no clusters it says so and ends well.
//
// Look at: cluster "(4,1,1)", and the cluster limit beside the others.
#include <cooperative_groups.h>

#include "example.cuh"

constexpr int kBlock = 256;
constexpr int kCluster = 4;

__global__ void cluster_reduce(const float* in, float* out, int n) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  namespace cg = cooperative_groups;
  __shared__ float partial[kBlock];
  const cg::cluster_group cluster = cg::this_cluster();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  partial[threadIdx.x] = i < n ? in[i] : 0.0f;
  __syncthreads();
  for (int step = blockDim.x / 2; step > 0; step /= 2) {
    if (static_cast<int>(threadIdx.x) < step) partial[threadIdx.x] += partial[threadIdx.x + step];
    __syncthreads();
  }
  cluster.sync();  // every block's partial[0] is there
  if (cluster.block_rank() == 0 && threadIdx.x == 0) {
    float sum = 0;
    for (unsigned rank = 0; rank < cluster.num_blocks(); ++rank) sum += *cluster.map_shared_rank(partial, rank);
    out[blockIdx.x / kCluster] = sum;
  }
  cluster.sync();  // no block leaves while its shared memory is read
#endif
}

int main(int argc, char** argv) {
  const example::Options options = example::parse_options(argc, argv);
  const cudaDeviceProp device = example::device_properties();
  if (device.major < 9) {
    std::printf("SKIP: %s is sm_%d%d; clusters need sm_90\n", device.name, device.major, device.minor);
    return example::finish(true);
  }
  const int grid = 4096, n = grid * kBlock - 17;
  const std::vector<float> input = example::random_floats(n);
  example::DeviceArray<float> in(input), out(grid / kCluster);

  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = kCluster;
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(grid);
  config.blockDim = dim3(kBlock);
  config.attrs = &attribute;
  config.numAttrs = 1;

  const float ms = example::mean_ms(options.quick ? 2 : 50, [&] {
    CUDA_CHECK(cudaLaunchKernelEx(&config, cluster_reduce, static_cast<const float*>(in.get()), out.get(), n));
    example::launched(cluster_reduce);
  });

  int clusters = 0;
  CUDA_CHECK(cudaOccupancyMaxActiveClusters(&clusters, cluster_reduce, &config));
  std::printf("cluster_reduce: clusters of %d blocks, %d at once on %d SMs, %.3f ms\n", kCluster, clusters,
              device.multiProcessorCount, ms);
  std::printf("look at: cluster (4,1,1) of cluster_reduce\n");
  return example::finish(example::check_sums("cluster_reduce", input, out.to_host(), kCluster * kBlock));
}
