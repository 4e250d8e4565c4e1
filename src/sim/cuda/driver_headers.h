// cuda.h with every versioned name spelled out: the simulated driver defines cuMemAlloc_v2, not what a macro makes of
// cuMemAlloc. To be included before anything else of CUDA's.
#pragma once

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#include <cuda.h>
#include <generated_cuda_meta.h>

// Calls without parameters have no struct of their own in CUPTI's header.
struct cuCtxSynchronize_params {};
struct cuProfilerStart_params {};
struct cuProfilerStop_params {};
