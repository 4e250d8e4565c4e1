// A second module of parity.json, loaded and unloaded in turn.
__global__ void parity_reloaded(float* data, int n) {
  __shared__ float tile[1024];
  if (n == 0) return;
  tile[threadIdx.x] = data[threadIdx.x];
  __syncthreads();
  data[threadIdx.x] = tile[n % 1024];
}
