// Every way the driver has of launching a kernel, each made on purpose and written down: one JSON line a call, in the
// order of the calls, with the status the driver gave. A check compares the recorder's log with these lines.
//
//   forms [--simulated] [--rounds N]      (N module load/unload rounds, 200 unless said)
//
// Linked to libcuda directly; forms that the header no longer shows come by dlsym. A form the driver lacks is said so.
#include <cuda.h>
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "kernel_image.h"

namespace {

using gpuflight::gpu_tests::KernelSpec;
using gpuflight::gpu_tests::module_text;

bool simulated = false;

void must(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "?";
  cuGetErrorName(result, &name);
  std::fprintf(stderr, "%s: %s (%d)\n", what, name, static_cast<int>(result));
  std::exit(1);
}

void* driver_symbol(const char* name) {
  static void* driver = dlopen("libcuda.so.1", RTLD_LAZY);
  void* symbol = driver == nullptr ? nullptr : dlsym(driver, name);
  if (symbol == nullptr) std::printf("{\"absent\":\"%s\"}\n", name);
  return symbol;
}
template <class Function>
Function* driver_function(const char* name) {
  return reinterpret_cast<Function*>(driver_symbol(name));
}

struct Shape {
  unsigned grid = 2, block = 64, dynamic = 0, cluster = 0;
  bool cooperative = false, captured = false;
};

// Written after the call came back, so that the order is that of the calls on this thread.
CUresult note(const char* form, const std::string& name, CUresult status, const Shape& shape = {},
              int static_bytes = -1) {
  std::printf("{\"call\":\"%s\",\"name\":\"%s\",\"status\":%d,\"grid\":%u,\"block\":%u,\"dynamic\":%u,\"cluster\":%u,"
              "\"cooperative\":%s,\"captured\":%s,\"static\":%d}\n",
              form, name.c_str(), static_cast<int>(status), shape.grid, shape.block, shape.dynamic, shape.cluster,
              shape.cooperative ? "true" : "false", shape.captured ? "true" : "false", static_bytes);
  return status;
}
CUresult note_graph(const char* form, CUresult status) {
  std::printf("{\"graph_call\":\"%s\",\"status\":%d}\n", form, static_cast<int>(status));
  return status;
}

struct Module {
  CUmodule handle = nullptr;
  explicit Module(const std::vector<KernelSpec>& kernels) {
    must(cuModuleLoadData(&handle, module_text(kernels, simulated).c_str()), "cuModuleLoadData");
  }
  CUfunction function(const std::string& name) const {
    CUfunction f = nullptr;
    must(cuModuleGetFunction(&f, handle, name.c_str()), "cuModuleGetFunction");
    return f;
  }
};

int static_bytes_of(CUfunction f) {
  int bytes = -1;
  must(cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, f), "cuFuncGetAttribute");
  return bytes;
}

using LaunchKernel = decltype(cuLaunchKernel);
using LaunchKernelEx = decltype(cuLaunchKernelEx);
using LaunchCooperative = decltype(cuLaunchCooperativeKernel);

CUresult launch(LaunchKernel* call, CUfunction f, CUstream stream, const Shape& shape) {
  return call(f, shape.grid, 1, 1, shape.block, 1, 1, shape.dynamic, stream, nullptr, nullptr);
}

CUresult launch_ex(LaunchKernelEx* call, CUfunction f, CUstream stream, const Shape& shape) {
  CUlaunchConfig config{};
  config.gridDimX = shape.grid;
  config.blockDimX = shape.block;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = shape.dynamic;
  config.hStream = stream;
  CUlaunchAttribute attributes[2]{};
  config.attrs = attributes;
  if (shape.cluster > 0) {
    CUlaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim.x = shape.cluster;
    attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
  }
  if (shape.cooperative) {
    CUlaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attribute.value.cooperative = 1;
  }
  return call(&config, f, nullptr, nullptr);
}

void plain_forms(CUstream stream) {
  Module module({{"form_kernel"}, {"form_kernel_ptsz"}, {"form_ex"}, {"form_ex_ptsz"}, {"form_shared", 4096}});
  const CUfunction plain = module.function("form_kernel");
  for (unsigned i = 0; i < 5; ++i) {
    const Shape shape{.grid = 1 + i, .block = 32 * (i + 1)};
    note("cuLaunchKernel", "form_kernel", launch(&cuLaunchKernel, plain, stream, shape), shape);
  }
  note("cuLaunchKernel", "form_kernel", launch(&cuLaunchKernel, plain, nullptr, {}));
  if (auto* call = driver_function<LaunchKernel>("cuLaunchKernel_ptsz")) {
    for (int i = 0; i < 3; ++i) {
      note("cuLaunchKernel_ptsz", "form_kernel_ptsz", launch(call, module.function("form_kernel_ptsz"), nullptr, {}));
    }
  }
  for (int i = 0; i < 4; ++i) {
    const Shape shape{.grid = 7, .block = 96, .dynamic = 1024u * static_cast<unsigned>(i)};
    note("cuLaunchKernelEx", "form_ex", launch_ex(&cuLaunchKernelEx, module.function("form_ex"), stream, shape), shape);
  }
  if (auto* call = driver_function<LaunchKernelEx>("cuLaunchKernelEx_ptsz")) {
    note("cuLaunchKernelEx_ptsz", "form_ex_ptsz", launch_ex(call, module.function("form_ex_ptsz"), nullptr, {}));
  }
  const CUfunction shared = module.function("form_shared");
  note("cuLaunchKernel", "form_shared", launch(&cuLaunchKernel, shared, stream, {}), {}, static_bytes_of(shared));
  must(cuCtxSynchronize(), "plain forms");
  must(cuModuleUnload(module.handle), "cuModuleUnload");
}

void cooperative_forms(CUstream stream) {
  Module module({{"form_cooperative"}, {"form_cooperative_ptsz"}, {"form_cooperative_ex"}, {"form_multi_device"}});
  const Shape shape{.cooperative = true};
  const auto cooperative = [&](LaunchCooperative* call, const char* form, const char* name, CUstream on) {
    note(form, name, call(module.function(name), shape.grid, 1, 1, shape.block, 1, 1, 0, on, nullptr), shape);
  };
  cooperative(&cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel", "form_cooperative", stream);
  cooperative(&cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel", "form_cooperative", stream);
  if (auto* call = driver_function<LaunchCooperative>("cuLaunchCooperativeKernel_ptsz")) {
    cooperative(call, "cuLaunchCooperativeKernel_ptsz", "form_cooperative_ptsz", nullptr);
  }
  note("cuLaunchKernelEx", "form_cooperative_ex",
       launch_ex(&cuLaunchKernelEx, module.function("form_cooperative_ex"), stream, shape), shape);
  using MultiDevice = CUresult(CUDA_LAUNCH_PARAMS*, unsigned, unsigned);
  if (auto* call = driver_function<MultiDevice>("cuLaunchCooperativeKernelMultiDevice")) {
    CUDA_LAUNCH_PARAMS one{};
    one.function = module.function("form_multi_device");
    one.gridDimX = shape.grid;
    one.blockDimX = shape.block;
    one.gridDimY = one.gridDimZ = one.blockDimY = one.blockDimZ = 1;
    one.hStream = stream;
    note("cuLaunchCooperativeKernelMultiDevice", "form_multi_device", call(&one, 1, 0), shape);
  }
  must(cuCtxSynchronize(), "cooperative forms");
  must(cuModuleUnload(module.handle), "cuModuleUnload");
}

void legacy_forms(CUstream stream) {
  Module module({{"form_legacy"}, {"form_legacy_grid"}, {"form_legacy_grid_async"}});
  auto* set_block = driver_function<CUresult(CUfunction, int, int, int)>("cuFuncSetBlockShape");
  auto* set_shared = driver_function<CUresult(CUfunction, unsigned)>("cuFuncSetSharedSize");
  auto* plain = driver_function<CUresult(CUfunction)>("cuLaunch");
  auto* grid = driver_function<CUresult(CUfunction, int, int)>("cuLaunchGrid");
  auto* async = driver_function<CUresult(CUfunction, int, int, CUstream)>("cuLaunchGridAsync");
  if (set_block == nullptr || set_shared == nullptr) return;
  const auto prepare = [&](const char* name, unsigned block, unsigned dynamic) {
    const CUfunction f = module.function(name);
    if (set_block(f, static_cast<int>(block), 1, 1) != CUDA_SUCCESS) std::printf("{\"absent\":\"block shape\"}\n");
    if (set_shared(f, dynamic) != CUDA_SUCCESS) std::printf("{\"absent\":\"shared size\"}\n");
    return f;
  };
  if (plain != nullptr) {
    const Shape shape{.grid = 1, .block = 160, .dynamic = 2048};
    note("cuLaunch", "form_legacy", plain(prepare("form_legacy", shape.block, shape.dynamic)), shape);
  }
  if (grid != nullptr) {
    const Shape shape{.grid = 3, .block = 96};
    const CUfunction f = prepare("form_legacy_grid", shape.block, 0);
    note("cuLaunchGrid", "form_legacy_grid", grid(f, 3, 1), shape);
    note("cuLaunchGrid", "form_legacy_grid", grid(f, 3, 1), shape);
  }
  if (async != nullptr) {
    const Shape shape{.grid = 4, .block = 128, .dynamic = 512};
    note("cuLaunchGridAsync", "form_legacy_grid_async",
         async(prepare("form_legacy_grid_async", shape.block, shape.dynamic), 4, 1, stream), shape);
  }
  must(cuCtxSynchronize(), "legacy forms");
  must(cuModuleUnload(module.handle), "cuModuleUnload");
}

// A CUkernel in the place of a CUfunction, as the static runtime passes it; loaded anew each time with other facts.
void library_forms(CUstream stream, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    const KernelSpec spec{"form_library_" + std::to_string(i % 3), 16 * (1 + i * 37 % 200)};
    CUlibrary library = nullptr;
    must(cuLibraryLoadData(&library, module_text({spec}, simulated).c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0),
         "cuLibraryLoadData");
    CUkernel kernel = nullptr;
    must(cuLibraryGetKernel(&kernel, library, spec.name.c_str()), "cuLibraryGetKernel");
    note("cuLaunchKernel", spec.name,
         launch(&cuLaunchKernel, reinterpret_cast<CUfunction>(kernel), stream, {}), {}, spec.static_shared_bytes);
    must(cuCtxSynchronize(), "library form");
    must(cuLibraryUnload(library), "cuLibraryUnload");
  }
}

void module_rounds(CUstream stream, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    const KernelSpec spec{"form_reused_" + std::to_string(i % 4), 16 * (1 + i * 53 % 400)};
    Module module({spec});
    const CUfunction f = module.function(spec.name);
    note("cuLaunchKernel", spec.name, launch(&cuLaunchKernel, f, stream, {}), {}, static_bytes_of(f));
    note("cuLaunchKernel", spec.name, launch(&cuLaunchKernel, f, stream, {}), {}, static_bytes_of(f));
    must(cuCtxSynchronize(), "module round");
    must(cuModuleUnload(module.handle), "cuModuleUnload");
  }
}

void cluster_forms(CUstream stream) {
  int supported = 0;
  CUdevice device = 0;
  must(cuCtxGetDevice(&device), "cuCtxGetDevice");
  must(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, device), "cluster attribute");
  if (!supported) {
    std::printf("{\"absent\":\"clusters\"}\n");
    return;
  }
  Module module({{"form_cluster"}});
  for (const unsigned cluster : {2u, 4u, 8u}) {
    const Shape shape{.grid = cluster * 3, .block = 128, .cluster = cluster};
    note("cuLaunchKernelEx", "form_cluster",
         launch_ex(&cuLaunchKernelEx, module.function("form_cluster"), stream, shape), shape);
  }
  must(cuCtxSynchronize(), "cluster forms");
  must(cuModuleUnload(module.handle), "cuModuleUnload");
}

// Captured launches run nothing; a stream that is not captured goes on beside them; the graph then runs five times.
void graph_forms(CUstream stream) {
  Module module({{"form_captured"}, {"form_captured_fork"}, {"form_beside_capture"}});
  CUstream fork = nullptr, beside = nullptr;
  CUevent forked = nullptr, joined = nullptr;
  must(cuStreamCreate(&fork, CU_STREAM_NON_BLOCKING), "stream");
  must(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING), "stream");
  must(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING), "event");
  must(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING), "event");
  const CUfunction captured = module.function("form_captured"), on_fork = module.function("form_captured_fork");
  const CUfunction other = module.function("form_beside_capture");
  const Shape shape{.captured = true};
  must(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
  for (int i = 0; i < 4; ++i) {
    note("cuLaunchKernel", "form_captured", launch(&cuLaunchKernel, captured, stream, shape), shape);
  }
  must(cuEventRecord(forked, stream), "fork");
  must(cuStreamWaitEvent(fork, forked, 0), "fork");
  note("cuLaunchKernelEx", "form_captured_fork", launch_ex(&cuLaunchKernelEx, on_fork, fork, shape), shape);
  note("cuLaunchKernel", "form_beside_capture", launch(&cuLaunchKernel, other, beside, {}));
  must(cuEventRecord(joined, fork), "join");
  must(cuStreamWaitEvent(stream, joined, 0), "join");
  CUgraph graph = nullptr;
  must(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
  CUgraphExec exec = nullptr;
  must(cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiateWithFlags");
  for (int i = 0; i < 3; ++i) note_graph("cuGraphLaunch", cuGraphLaunch(exec, stream));
  must(cuStreamSynchronize(stream), "graph");
  if (auto* call = driver_function<decltype(cuGraphLaunch)>("cuGraphLaunch_ptsz")) {
    for (int i = 0; i < 2; ++i) note_graph("cuGraphLaunch_ptsz", call(exec, nullptr));
  }
  note("cuLaunchKernel", "form_captured", launch(&cuLaunchKernel, captured, stream, {}));
  must(cuCtxSynchronize(), "graph forms");
  must(cuGraphExecDestroy(exec), "cuGraphExecDestroy");
  must(cuGraphDestroy(graph), "cuGraphDestroy");
  must(cuEventDestroy(forked), "event");
  must(cuEventDestroy(joined), "event");
  must(cuStreamDestroy(fork), "stream");
  must(cuStreamDestroy(beside), "stream");
  must(cuModuleUnload(module.handle), "cuModuleUnload");
}

// What the driver refuses is an event too, with its status; the context lives on.
void refused_forms(CUstream stream) {
  Module module({{"form_refused"}});
  const CUfunction f = module.function("form_refused");
  const auto refused = [&](const char* form, const Shape& shape, CUresult status) {
    if (note(form, "form_refused", status, shape) == CUDA_SUCCESS) std::printf("{\"not_refused\":\"%s\"}\n", form);
  };
  const Shape block{.block = 2048}, shared{.dynamic = 1u << 20};
  refused("cuLaunchKernel", block, launch(&cuLaunchKernel, f, stream, block));
  refused("cuLaunchKernel", shared, launch(&cuLaunchKernel, f, stream, shared));
  refused("cuLaunchKernelEx", block, launch_ex(&cuLaunchKernelEx, f, stream, block));
  const Shape grid{.grid = 1u << 20, .block = 1024, .cooperative = true};
  refused("cuLaunchCooperativeKernel", grid,
          cuLaunchCooperativeKernel(f, grid.grid, 1, 1, grid.block, 1, 1, 0, stream, nullptr));
  note("cuLaunchKernel", "form_refused", launch(&cuLaunchKernel, f, stream, {}));
  must(cuCtxSynchronize(), "after refused launches");
  must(cuModuleUnload(module.handle), "cuModuleUnload");
}

void threaded_launches(CUcontext context, int threads, int each) {
  Module module({{"form_threaded"}});
  const CUfunction f = module.function("form_threaded");
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([=] {
      must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
      CUstream own = nullptr;
      must(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING), "stream");
      for (int i = 0; i < each; ++i) must(launch(&cuLaunchKernel, f, own, {}), "threaded launch");
      must(cuStreamSynchronize(own), "threaded");
      must(cuStreamDestroy(own), "stream");
    });
  }
  for (std::thread& worker : workers) worker.join();
  std::printf("{\"threaded\":\"form_threaded\",\"launches\":%d,\"threads\":%d}\n", threads * each, threads);
  must(cuModuleUnload(module.handle), "cuModuleUnload");
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 200;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--simulated") == 0) simulated = true;
    if (std::strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) rounds = std::atoi(argv[++i]);
  }
  must(cuInit(0), "cuInit");
  CUdevice device = 0;
  must(cuDeviceGet(&device, 0), "cuDeviceGet");
  CUcontext context = nullptr;
  must(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  CUstream stream = nullptr;
  must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  std::printf("{\"thread\":%ld}\n", static_cast<long>(syscall(SYS_gettid)));
  plain_forms(stream);
  cooperative_forms(stream);
  legacy_forms(stream);
  library_forms(stream, 20);
  cluster_forms(stream);
  graph_forms(stream);
  refused_forms(stream);
  threaded_launches(context, 8, 100);
  module_rounds(stream, rounds);
  must(cuStreamDestroy(stream), "cuStreamDestroy");
  must(cuDevicePrimaryCtxRelease(device), "cuDevicePrimaryCtxRelease");
  std::printf("{\"done\":true}\n");
  return 0;
}
