// A program that knows the driver API only: PTX in a string, modules loaded and unloaded, the three ways to launch. No
// CUDA runtime, no nvcc. libcuda is opened at run time or, in driver_api_linked, linked.
//
// Look at: launches through cuLaunchKernel, cuLaunchKernelEx (64 KB of dynamic shared memory, above the default limit:
// still more than 0 blocks) and cuLaunchCooperativeKernel (cooperative true); the kernel of the reloaded module.
#include <cuda.h>
#include <dlfcn.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace {

const char kPtx[] = R"ptx(
.version 6.3
.target sm_75
.address_size 64

.extern .shared .align 4 .b8 staging[];

// y[i] += a * x[i]
.visible .entry scaled_add(.param .u64 x, .param .u64 y, .param .f32 a, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .u32 %r<6>;
  .reg .u64 %rd<8>;
  .reg .f32 %f<5>;
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %ctaid.x;
  mad.lo.u32 %r4, %r3, %r2, %r1;
  ld.param.u32 %r5, [n];
  setp.ge.u32 %p1, %r4, %r5;
  @%p1 bra DONE;
  ld.param.u64 %rd1, [x];
  ld.param.u64 %rd2, [y];
  ld.param.f32 %f1, [a];
  cvta.to.global.u64 %rd3, %rd1;
  cvta.to.global.u64 %rd4, %rd2;
  mul.wide.u32 %rd5, %r4, 4;
  add.u64 %rd6, %rd3, %rd5;
  add.u64 %rd7, %rd4, %rd5;
  ld.global.f32 %f2, [%rd6];
  ld.global.f32 %f3, [%rd7];
  fma.rn.f32 %f4, %f1, %f2, %f3;
  st.global.f32 [%rd7], %f4;
DONE:
  ret;
}

// Each block turns its stretch of x round, by way of dynamic shared memory.
.visible .entry reverse_blocks(.param .u64 x)
{
  .reg .u32 %r<10>;
  .reg .u64 %rd<5>;
  .reg .f32 %f<3>;
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %ctaid.x;
  mad.lo.u32 %r4, %r3, %r2, %r1;
  ld.param.u64 %rd1, [x];
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.u32 %rd3, %r4, 4;
  add.u64 %rd4, %rd2, %rd3;
  ld.global.f32 %f1, [%rd4];
  mov.u32 %r5, staging;
  shl.b32 %r6, %r1, 2;
  add.u32 %r6, %r5, %r6;
  st.shared.f32 [%r6], %f1;
  bar.sync 0;
  sub.u32 %r7, %r2, %r1;
  sub.u32 %r7, %r7, 1;
  shl.b32 %r8, %r7, 2;
  add.u32 %r8, %r5, %r8;
  ld.shared.f32 %f2, [%r8];
  st.global.f32 [%rd4], %f2;
  ret;
}
)ptx";

// The names that the driver exports; cuda.h maps the plain ones onto newer versions of the same call.
#define DRIVER_CALLS(X)                                                                                          \
  X(cuInit) X(cuDeviceGet) X(cuDeviceGetName) X(cuDeviceGetAttribute) X(cuDevicePrimaryCtxRetain)                \
  X(cuDevicePrimaryCtxRelease_v2) X(cuCtxSetCurrent) X(cuCtxSynchronize) X(cuModuleLoadData) X(cuModuleUnload)   \
  X(cuModuleGetFunction) X(cuFuncSetAttribute) X(cuMemAlloc_v2) X(cuMemFree_v2) X(cuMemcpyHtoD_v2)               \
  X(cuMemcpyDtoH_v2) X(cuLaunchKernel) X(cuLaunchKernelEx) X(cuLaunchCooperativeKernel) X(cuGetErrorName)        \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor)

struct Driver {
#define DECLARE(name) decltype(&::name) name = nullptr;
  DRIVER_CALLS(DECLARE)
#undef DECLARE

  Driver() {
#ifdef DRIVER_API_LINKED
#define TAKE(name) name = &::name;
#else
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
      std::fprintf(stderr, "driver_api: %s\n", dlerror());
      std::exit(1);
    }
#define TAKE(name)                                                         \
  name = reinterpret_cast<decltype(&::name)>(dlsym(library, #name));       \
  if (!name) {                                                             \
    std::fprintf(stderr, "driver_api: libcuda.so.1 has no %s\n", #name);   \
    std::exit(1);                                                          \
  }
#endif
    DRIVER_CALLS(TAKE)
#undef TAKE
  }
};

const Driver& driver() {
  static const Driver instance;
  return instance;
}

void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "unknown error";
  driver().cuGetErrorName(result, &name);
  std::fprintf(stderr, "driver_api: %s: %s\n", call, name);
  std::exit(1);
}
#define CALL(function, ...) check(driver().function(__VA_ARGS__), #function)

constexpr unsigned kBlock = 256;
constexpr unsigned kElements = 1u << 18;
constexpr unsigned kBigSharedBytes = 64 * 1024;

std::map<std::string, long>& launches() {
  static std::map<std::string, long> counts;
  return counts;
}

class Program {
 public:
  Program() : host_x_(kElements), host_y_(kElements) {
    CALL(cuInit, 0);
    CALL(cuDeviceGet, &device_, 0);
    CALL(cuDevicePrimaryCtxRetain, &context_, device_);
    CALL(cuCtxSetCurrent, context_);
    CALL(cuMemAlloc_v2, &x_, kElements * sizeof(float));
    CALL(cuMemAlloc_v2, &y_, kElements * sizeof(float));
    std::mt19937 generator(1);
    for (float& value : host_x_) value = static_cast<float>(generator() >> 8) * (1.0f / 16777216.0f);
    for (float& value : host_y_) value = static_cast<float>(generator() >> 8) * (1.0f / 16777216.0f);
    CALL(cuMemcpyHtoD_v2, x_, host_x_.data(), kElements * sizeof(float));
    CALL(cuMemcpyHtoD_v2, y_, host_y_.data(), kElements * sizeof(float));
  }

  ~Program() {
    driver().cuMemFree_v2(x_);
    driver().cuMemFree_v2(y_);
    driver().cuDevicePrimaryCtxRelease_v2(device_);
  }

  void print_device() const {
    char name[256] = "";
    CALL(cuDeviceGetName, name, sizeof(name), device_);
    std::printf("%s\n", name);
  }

  void load() {
    CALL(cuModuleLoadData, &module_, kPtx);
    CALL(cuModuleGetFunction, &scaled_add_, module_, "scaled_add");
    CALL(cuModuleGetFunction, &reverse_blocks_, module_, "reverse_blocks");
    CALL(cuFuncSetAttribute, reverse_blocks_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kBigSharedBytes);
  }
  void unload() {
    CALL(cuCtxSynchronize);
    CALL(cuModuleUnload, module_);
  }

  void scaled_add(float a) {
    unsigned n = kElements;
    void* arguments[] = {&x_, &y_, &a, &n};
    CALL(cuLaunchKernel, scaled_add_, kElements / kBlock, 1, 1, kBlock, 1, 1, 0, nullptr, arguments, nullptr);
    expect_scaled_add(a, kElements);
  }

  // All blocks of a cooperative launch must fit the device at once: fewer elements.
  void scaled_add_cooperative(float a) {
    unsigned n = 8 * kBlock;
    void* arguments[] = {&x_, &y_, &a, &n};
    CALL(cuLaunchCooperativeKernel, scaled_add_, 8, 1, 1, kBlock, 1, 1, 0, nullptr, arguments);
    expect_scaled_add(a, n);
  }

  void reverse_blocks() {
    CUlaunchConfig config;
    std::memset(&config, 0, sizeof(config));
    config.gridDimX = kElements / kBlock;
    config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = kBlock;
    config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = kBigSharedBytes;
    void* arguments[] = {&x_};
    CALL(cuLaunchKernelEx, &config, reverse_blocks_, arguments, nullptr);
    ++launches()["reverse_blocks"];
    for (unsigned block = 0; block < kElements; block += kBlock) {
      for (unsigned i = 0; i < kBlock / 2; ++i) std::swap(host_x_[block + i], host_x_[block + kBlock - 1 - i]);
    }
  }

  int reverse_blocks_per_sm() const {
    int blocks = 0;
    CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, reverse_blocks_, kBlock, kBigSharedBytes);
    return blocks;
  }

  bool verify() const {
    std::vector<float> x(kElements), y(kElements);
    CALL(cuCtxSynchronize);
    CALL(cuMemcpyDtoH_v2, x.data(), x_, kElements * sizeof(float));
    CALL(cuMemcpyDtoH_v2, y.data(), y_, kElements * sizeof(float));
    for (unsigned i = 0; i < kElements; ++i) {
      if (x[i] != host_x_[i] || y[i] != host_y_[i]) {
        std::printf("element %u is wrong: %g %g, expected %g %g\n", i, static_cast<double>(x[i]),
                    static_cast<double>(y[i]), static_cast<double>(host_x_[i]), static_cast<double>(host_y_[i]));
        return false;
      }
    }
    return true;
  }

 private:
  void expect_scaled_add(float a, unsigned n) {
    ++launches()["scaled_add"];
    for (unsigned i = 0; i < n; ++i) host_y_[i] = std::fma(a, host_x_[i], host_y_[i]);
  }

  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction scaled_add_ = nullptr, reverse_blocks_ = nullptr;
  CUdeviceptr x_ = 0, y_ = 0;
  std::vector<float> host_x_, host_y_;  // what the device should hold
};

}  // namespace

int main(int argc, char** argv) {
  bool quick = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) {
      quick = true;
    } else {
      std::fprintf(stderr, "usage: %s [--quick]\n", argv[0]);
      return std::strcmp(argv[i], "--help") == 0 ? 0 : 2;
    }
  }

  Program program;
  program.print_device();
  const auto begin = std::chrono::steady_clock::now();
  program.load();
  for (int i = 0; i < (quick ? 3 : 50); ++i) program.scaled_add(0.5f);
  program.reverse_blocks();
  program.scaled_add_cooperative(0.25f);
  const int blocks = program.reverse_blocks_per_sm();
  bool ok = program.verify();

  program.unload();
  program.load();  // its functions may get the handles of the old ones
  program.reverse_blocks();
  program.scaled_add(2.0f);
  ok &= program.verify();
  program.unload();
  const double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();

  if (blocks < 1) {
    std::printf("reverse_blocks: %d blocks per SM\n", blocks);
    ok = false;
  }
  std::printf("%.1f ms with loading and checking; reverse_blocks: %d blocks per SM with 64 KB dynamic shared memory\n",
              ms, blocks);
  std::printf("look at: max_active_blocks %d of reverse_blocks, cooperative of scaled_add\n", blocks);
  std::printf("%s\nLAUNCHES {", ok ? "PASS" : "FAIL");
  const char* separator = "";
  for (const auto& [name, count] : launches()) {
    std::printf("%s\"%s\": %ld", separator, name.c_str(), count);
    separator = ", ";
  }
  std::printf("}\n");
  return ok ? 0 : 1;
}
