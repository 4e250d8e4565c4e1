"""CuPy: elementwise, reduction and raw kernels, cuBLAS, streams, a captured and replayed graph, with output that is
the same on every run: all numbers are small integers."""
import hashlib

import cupy as cp
import numpy as np

SCALE = r"""
extern "C" __global__ void scale_by_rank(float* data, int n, float factor) {
  __shared__ float rank[256];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  rank[threadIdx.x] = threadIdx.x % 5;
  __syncthreads();
  if (i < n) data[i] = data[i] * factor + rank[threadIdx.x];
}
"""


def show(name, array):
    data = cp.asnumpy(array).astype(np.float64)
    print(f"{name} {data.shape} {hashlib.sha256(data.tobytes()).hexdigest()[:16]}", flush=True)


def whole_numbers(seed, *shape):
    return cp.asarray(np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32))


def main():
    a, b = whole_numbers(1, 300, 200), whole_numbers(2, 200, 100)
    show("matmul", a @ b)
    show("elementwise", cp.minimum(a * 3 + 1, 7))
    show("sum", a.sum(axis=0))
    show("sorted", cp.sort(a.ravel()))
    fused = cp.ElementwiseKernel("float32 x, float32 y", "float32 z", "z = x * y - 2", "gpu_check_fused")
    show("fused", fused(a, a))
    peak = cp.ReductionKernel("float32 x", "float32 y", "x * x", "max(a, b)", "y = a", "0", "gpu_check_peak")
    show("peak", peak(a, axis=1))

    kernel = cp.RawKernel(SCALE, "scale_by_rank")
    data = whole_numbers(3, 10000)
    for _ in range(100):
        kernel((40,), (256,), (data, np.int32(10000), np.float32(-1)))
    show("raw", data)

    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(3)]
    parts = [whole_numbers(4 + i, 4096) for i in range(3)]
    cp.cuda.Device().synchronize()
    for stream, part in zip(streams, parts):
        with stream:
            for _ in range(30):
                part += 1
    cp.cuda.Device().synchronize()
    show("streams", cp.concatenate(parts))

    target = cp.zeros(1024, dtype=cp.float32)
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        target += 1  # compiled before the capture
        stream.synchronize()
        stream.begin_capture()
        for _ in range(4):
            target += 1
        graph = stream.end_capture()
        for _ in range(10):
            graph.launch(stream)
        stream.synchronize()
    show("graph", target)


main()
