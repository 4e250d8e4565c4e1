// Launches: too many, too slow, too far ahead, worth a graph.
#pragma once

#include "bench.cuh"

namespace findings {

// Kernels of many shapes, none like its neighbour, in no order.
inline void launch_bound(const Bench& b) {
  const cudaStream_t s = new_stream();
  unsigned dice = 7;
  for (int i = 0; i < 3000; ++i) {
    dice = dice * 1664525u + 1013904223u;
    const int waves = 1 + static_cast<int>(dice >> 24) % 32;
    b.launch((b.bad ? 0.5 : 30.0) / waves, waves * b.wave() / (b.bad ? 32 : 1), s);
    if (!b.bad && i % 500 == 499) CUDA_CHECK(cudaStreamSynchronize(s));  // before the queue is full
  }
}

inline void queue_full(const Bench& b) {
  const cudaStream_t s = new_stream();
  for (int i = 0; i < 4000; ++i) {
    b.launch(60, b.wave(), s);
    if (!b.bad && i % 500 == 499) CUDA_CHECK(cudaStreamSynchronize(s));
  }
}

inline void twenty_layers(const Bench& b, cudaStream_t s) {
  for (int i = 0; i < 20; ++i) b.launch(0.5, (1 + i) * b.wave() / 32, s);
}

inline void graph_candidate(const Bench& b) {
  const cudaStream_t s = new_stream();
  cudaGraph_t graph;
  cudaGraphExec_t replay;
  CUDA_CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  twenty_layers(b, s);
  CUDA_CHECK(cudaStreamEndCapture(s, &graph));
  CUDA_CHECK(cudaGraphInstantiate(&replay, graph, 0));
  for (int i = 0; i < 150; ++i) {
    if (b.bad) {
      twenty_layers(b, s);
    } else {
      CUDA_CHECK(cudaGraphLaunch(replay, s));
    }
  }
}

inline void tiny_kernels(const Bench& b) {
  const cudaStream_t s = new_stream();
  for (int i = 0; i < (b.bad ? 3000 : 300); ++i) b.launch(b.bad ? 0.5 : 20, b.wave(), s);
}

}  // namespace findings
