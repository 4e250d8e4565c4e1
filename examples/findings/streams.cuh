// Streams that wait for one another.
#pragma once

#include "bench.cuh"

namespace findings {

inline void default_stream_barrier(const Bench& b) {
  const unsigned flags = b.bad ? cudaStreamDefault : cudaStreamNonBlocking;
  const cudaStream_t one = new_stream(flags), two = new_stream(flags);
  for (int i = 0; i < 100; ++i) {  // grids that leave room for each other
    b.launch(200, b.wave() / 4, one);
    b.launch<1>(20, b.wave() / 4, nullptr);
    b.launch(200, b.wave() / 4, two);
  }
}

inline void stream_never_concurrent(const Bench& b) {
  std::vector<cudaStream_t> streams(4);
  for (cudaStream_t& s : streams) s = new_stream();
  for (int i = 0; i < 200; ++i) b.launch(b.bad ? 50 : 200, b.bad ? 4 * b.wave() : b.wave() / 8, streams[i % 4]);
}

// Bad: the urgent kernel is made to wait for an event of the other stream.
inline void priority_inversion(const Bench& b) {
  int least = 0, greatest = 0;
  CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  const cudaStream_t low = new_stream(cudaStreamNonBlocking, least),
                     urgent = new_stream(cudaStreamNonBlocking, greatest);
  cudaEvent_t done;
  CUDA_CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
  for (int i = 0; i < 20; ++i) {
    for (int k = 0; k < 6; ++k) b.launch(20, 10 * b.wave(), low);
    if (b.bad) {
      CUDA_CHECK(cudaEventRecord(done, low));
      CUDA_CHECK(cudaStreamWaitEvent(urgent, done, 0));
    }
    b.launch<1>(20, b.wave() / 8, urgent);
    usleep(1000);
  }
}

}  // namespace findings
