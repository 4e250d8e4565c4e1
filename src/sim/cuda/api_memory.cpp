// Memory: "device" memory is host memory mapped on demand, so that copies really copy and a program can check results.
#include "sim/cuda/trace.h"

#include <sys/mman.h>

#include <cstring>

using namespace gpuflight::sim;

namespace {

CUresult release(std::uintptr_t address, bool host) {
  if (address == 0) return CUDA_SUCCESS;
  Context* context = nullptr;
  if (const CUresult error = current_context(&context)) return error;
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  const auto found = d.allocations.find(address);
  if (found == d.allocations.end() || (found->second.type == CU_MEMORYTYPE_HOST) != host) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  free_allocation(d, found->first, found->second);
  d.allocations.erase(found);
  return CUDA_SUCCESS;
}

CUresult find_allocation(std::uintptr_t address, std::uintptr_t* base, Allocation* out) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  auto it = d.allocations.upper_bound(address);
  if (it == d.allocations.begin()) return CUDA_ERROR_INVALID_VALUE;
  --it;
  if (address >= it->first + it->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  *base = it->first;
  *out = it->second;
  return CUDA_SUCCESS;
}

// Must lie inside one allocation where it claims to be device memory.
CUresult check_range(CUdeviceptr address, std::size_t bytes) {
  std::uintptr_t base = 0;
  Allocation a;
  if (const CUresult error = find_allocation(address, &base, &a)) return error;
  return address + bytes <= base + a.bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

constexpr std::int64_t kCallNs = 1500;
std::int64_t transfer_ns(std::size_t bytes, std::int64_t bytes_per_us) {
  return kCallNs + static_cast<std::int64_t>(bytes) * 1000 / bytes_per_us;
}
constexpr std::int64_t kPcieBytesPerUs = 25'000;
constexpr std::int64_t kDeviceBytesPerUs = 1'000'000;

// How a copy or a fill was called.
struct Call {
  CUstream stream = nullptr;
  bool per_thread = false;
  bool async = false;
  bool wait = false;  // until it is done: copies from and to the host
  std::uint32_t correlation = 0;
};

// One copy or fill: queues its time, does the work at once (nothing but the clock runs later), waits if asked.
template <class Work>
CUresult transfer(const Call& call, CUgraphNodeType type, std::int64_t duration_ns, Transfer what, Work&& work) {
  Context* context = nullptr;
  if (const CUresult error = current_context(&context)) return error;
  Stream* stream = nullptr;
  if (const CUresult error = find_stream(*context, call.stream, call.per_thread, &stream)) return error;
  if (call.wait) {
    if (const CUresult error = check_unsafe_call()) return error;
  }
  what.async = call.async;
  const bool captured = stream->capturing.load(std::memory_order_acquire);
  if (const CUresult error = run_work(*stream, type, duration_ns, what, call.correlation)) return error;
  if (!captured) work();
  if (!call.wait) return CUDA_SUCCESS;
  wait_until(*stream->context, stream->end_ns.load(std::memory_order_relaxed));
  return sticky_error(*stream->context);
}

void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

// Host or device on each side; between two devices it is a peer copy.
CUpti_ActivityMemcpyKind copy_kind(const MemoryAt& to, const MemoryAt& from) {
  if (to.device < 0) return from.device < 0 ? CUPTI_ACTIVITY_MEMCPY_KIND_HTOH : CUPTI_ACTIVITY_MEMCPY_KIND_DTOH;
  if (from.device < 0) return CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
  return to.device == from.device ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOD : CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
}

CUresult copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, bool check_to, bool check_from, const Call& call) {
  if (check_to) {
    if (const CUresult error = check_range(to, bytes)) return error;
  }
  if (check_from) {
    if (const CUresult error = check_range(from, bytes)) return error;
  }
  const MemoryAt at_to = memory_at(to), at_from = memory_at(from);
  Transfer what;
  what.kind = copy_kind(at_to, at_from);
  what.source = at_from.kind;
  what.destination = at_to.kind;
  what.bytes = bytes;
  what.source_device = static_cast<std::uint32_t>(std::max(at_from.device, 0));
  what.destination_device = static_cast<std::uint32_t>(std::max(at_to.device, 0));
  const bool inside = what.kind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOD;
  return transfer(call, CU_GRAPH_NODE_TYPE_MEMCPY,
                  transfer_ns(bytes, inside ? kDeviceBytesPerUs : kPcieBytesPerUs), what,
                  [&] { std::memmove(pointer(to), pointer(from), bytes); });
}

CUdeviceptr address(const void* host) { return reinterpret_cast<CUdeviceptr>(host); }

template <class Unit>
CUresult fill(CUdeviceptr to, Unit value, std::size_t count, const Call& call) {
  const std::size_t bytes = count * sizeof(Unit);
  if (const CUresult error = check_range(to, bytes)) return error;
  Transfer what;
  what.destination = memory_at(to).kind;
  what.bytes = bytes;
  what.value = value;
  return transfer(call, CU_GRAPH_NODE_TYPE_MEMSET, transfer_ns(bytes, kDeviceBytesPerUs), what,
                  [&] { std::fill_n(static_cast<Unit*>(pointer(to)), count, value); });
}

// Unified addressing: what kind each side is, decides.
CUresult copy_any(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, const Call& call) {
  return copy(to, from, bytes, check_range(to, 1) == CUDA_SUCCESS, check_range(from, 1) == CUDA_SUCCESS, call);
}

// The driver checks the contexts, not that the memory is theirs.
CUresult copy_between(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                      std::size_t bytes, const Call& call) {
  Driver& d = driver();
  if (d.contexts.find(to_context) == nullptr || d.contexts.find(from_context) == nullptr) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  return copy(to, from, bytes, true, true, call);
}

CUresult allocate_on_stream(CUdeviceptr* out, std::size_t bytes, CUstream handle, bool per_thread) {
  Context* context = nullptr;
  if (const CUresult error = current_context(&context)) return error;
  Stream* stream = nullptr;
  if (const CUresult error = find_stream(*context, handle, per_thread, &stream)) return error;
  std::uintptr_t storage = 0;
  if (const CUresult error = allocate(&storage, bytes, Place::kDevice)) return error;
  *out = storage;
  return CUDA_SUCCESS;
}

CUresult ask_pointer(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  std::uintptr_t base = 0;
  Allocation a;
  if (const CUresult error = find_allocation(ptr, &base, &a)) return error;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: *static_cast<CUcontext*>(data) = reinterpret_cast<CUcontext>(a.context); break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *static_cast<unsigned*>(data) = a.type; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *static_cast<CUdeviceptr*>(data) = ptr; break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (a.type != CU_MEMORYTYPE_HOST && !a.managed) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<void**>(data) = pointer(ptr);
      break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *static_cast<unsigned*>(data) = a.managed; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *static_cast<int*>(data) = a.context->device; break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *static_cast<CUdeviceptr*>(data) = base; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *static_cast<size_t*>(data) = a.bytes; break;
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

}  // namespace

namespace gpuflight::sim {

CUresult allocate(std::uintptr_t* out, std::size_t bytes, Place place) {
  Context* context = nullptr;
  if (const CUresult error = current_context(&context)) return error;
  if (const CUresult error = check_unsafe_call()) return error;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  const bool on_device = place != Place::kHost;
  std::int64_t& used = d.used_bytes[static_cast<std::size_t>(context->device)];
  if (on_device && used + static_cast<std::int64_t>(bytes) > sim_config().board.global_bytes) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  void* storage = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (storage == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  Allocation a;
  a.bytes = bytes;
  a.type = on_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  a.managed = place == Place::kManaged;
  a.context = context;
  *out = reinterpret_cast<std::uintptr_t>(storage);
  d.allocations.emplace(*out, a);
  if (on_device) used += static_cast<std::int64_t>(bytes);
  return CUDA_SUCCESS;
}

MemoryAt memory_at(std::uintptr_t address) {
  std::uintptr_t base = 0;
  Allocation a;
  if (find_allocation(address, &base, &a) != CUDA_SUCCESS) return {};
  if (a.type == CU_MEMORYTYPE_HOST) return {CUPTI_ACTIVITY_MEMORY_KIND_PINNED, -1};
  return {a.managed ? CUPTI_ACTIVITY_MEMORY_KIND_MANAGED : CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, a.context->device};
}

void free_allocation(Driver& d, std::uintptr_t address, const Allocation& a) {
  if (a.type == CU_MEMORYTYPE_DEVICE) {
    d.used_bytes[static_cast<std::size_t>(a.context->device)] -= static_cast<std::int64_t>(a.bytes);
  }
  munmap(reinterpret_cast<void*>(address), a.bytes);
}

}  // namespace gpuflight::sim

// Synchronous copies have _ptds forms, asynchronous ones _ptsz: SYNC and ASYNC are those suffixes.
#define SIM_WAITING(PER_THREAD) (Call{nullptr, PER_THREAD, false, true, call.correlation})
#define SIM_RETURNING(PER_THREAD) (Call{nullptr, PER_THREAD, false, false, call.correlation})
#define SIM_ASYNC(PER_THREAD) (Call{hStream, PER_THREAD, true, false, call.correlation})
#define SIM_MEMORY_FORMS(SYNC, ASYNC, PER_THREAD)                                                                     \
  CUresult CUDAAPI cuMemcpyHtoD_v2##SYNC(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {              \
    SIM_TRACED(cuMemcpyHtoD_v2##SYNC, (dstDevice, srcHost, ByteCount),                                                \
               { return copy(dstDevice, address(srcHost), ByteCount, true, false, SIM_WAITING(PER_THREAD)); });       \
  }                                                                                                                   \
  CUresult CUDAAPI cuMemcpyDtoH_v2##SYNC(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {                    \
    SIM_TRACED(cuMemcpyDtoH_v2##SYNC, (dstHost, srcDevice, ByteCount),                                                \
               { return copy(address(dstHost), srcDevice, ByteCount, false, true, SIM_WAITING(PER_THREAD)); });       \
  }                                                                                                                   \
  CUresult CUDAAPI cuMemcpyDtoD_v2##SYNC(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {            \
    SIM_TRACED(cuMemcpyDtoD_v2##SYNC, (dstDevice, srcDevice, ByteCount),                                              \
               { return copy(dstDevice, srcDevice, ByteCount, true, true, SIM_RETURNING(PER_THREAD)); });             \
  }                                                                                                                   \
  CUresult CUDAAPI cuMemcpy##SYNC(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {                               \
    SIM_TRACED(cuMemcpy##SYNC, (dst, src, ByteCount),                                                                 \
               { return copy_any(dst, src, ByteCount, SIM_WAITING(PER_THREAD)); });                                   \
  }                                                                                                                   \
  CUresult CUDAAPI cuMemsetD8_v2##SYNC(CUdeviceptr dstDevice, unsigned char uc, size_t N) {                           \
    SIM_TRACED(cuMemsetD8_v2##SYNC, (dstDevice, uc, N),                                                               \
               { return fill(dstDevice, uc, N, SIM_RETURNING(PER_THREAD)); });                                        \
  }                                                                                                                   \
  CUresult CUDAAPI cuMemsetD16_v2##SYNC(CUdeviceptr dstDevice, unsigned short us, size_t N) {                         \
    SIM_TRACED(cuMemsetD16_v2##SYNC, (dstDevice, us, N),                                                              \
               { return fill(dstDevice, us, N, SIM_RETURNING(PER_THREAD)); });                                        \
  }                                                                                                                   \
  CUresult CUDAAPI cuMemsetD32_v2##SYNC(CUdeviceptr dstDevice, unsigned int ui, size_t N) {                           \
    SIM_TRACED(cuMemsetD32_v2##SYNC, (dstDevice, ui, N),                                                              \
               { return fill(dstDevice, ui, N, SIM_RETURNING(PER_THREAD)); });                                        \
  }                                                                                                                   \
  CUresult CUDAAPI cuMemcpyHtoDAsync_v2##ASYNC(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,          \
                                               CUstream hStream) {                                                    \
    SIM_TRACED(cuMemcpyHtoDAsync_v2##ASYNC, (dstDevice, srcHost, ByteCount, hStream),                                 \
               { return copy(dstDevice, address(srcHost), ByteCount, true, false, SIM_ASYNC(PER_THREAD)); });         \
  }                                                                                                                   \
  CUresult CUDAAPI cuMemcpyDtoHAsync_v2##ASYNC(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount,                \
                                               CUstream hStream) {                                                    \
    SIM_TRACED(cuMemcpyDtoHAsync_v2##ASYNC, (dstHost, srcDevice, ByteCount, hStream),                                 \
               { return copy(address(dstHost), srcDevice, ByteCount, false, true, SIM_ASYNC(PER_THREAD)); });         \
  }                                                                                                                   \
  CUresult CUDAAPI cuMemcpyDtoDAsync_v2##ASYNC(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,        \
                                               CUstream hStream) {                                                    \
    SIM_TRACED(cuMemcpyDtoDAsync_v2##ASYNC, (dstDevice, srcDevice, ByteCount, hStream),                               \
               { return copy(dstDevice, srcDevice, ByteCount, true, true, SIM_ASYNC(PER_THREAD)); });                 \
  }                                                                                                                   \
  CUresult CUDAAPI cuMemcpyAsync##ASYNC(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {       \
    SIM_TRACED(cuMemcpyAsync##ASYNC, (dst, src, ByteCount, hStream),                                                  \
               { return copy_any(dst, src, ByteCount, SIM_ASYNC(PER_THREAD)); });                                     \
  }                                                                                                                   \
  CUresult CUDAAPI cuMemsetD8Async##ASYNC(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {      \
    SIM_TRACED(cuMemsetD8Async##ASYNC, (dstDevice, uc, N, hStream),                                                   \
               { return fill(dstDevice, uc, N, SIM_ASYNC(PER_THREAD)); });                                            \
  }                                                                                                                   \
  CUresult CUDAAPI cuMemsetD16Async##ASYNC(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream) {    \
    SIM_TRACED(cuMemsetD16Async##ASYNC, (dstDevice, us, N, hStream),                                                  \
               { return fill(dstDevice, us, N, SIM_ASYNC(PER_THREAD)); });                                            \
  }                                                                                                                   \
  CUresult CUDAAPI cuMemsetD32Async##ASYNC(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream) {      \
    SIM_TRACED(cuMemsetD32Async##ASYNC, (dstDevice, ui, N, hStream),                                                  \
               { return fill(dstDevice, ui, N, SIM_ASYNC(PER_THREAD)); });                                            \
  }                                                                                                                   \
  CUresult CUDAAPI cuMemcpyPeer##SYNC(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,             \
                                      CUcontext srcContext, size_t ByteCount) {                                       \
    SIM_TRACED(cuMemcpyPeer##SYNC, (dstDevice, dstContext, srcDevice, srcContext, ByteCount), {                       \
      return copy_between(dstDevice, dstContext, srcDevice, srcContext, ByteCount, SIM_RETURNING(PER_THREAD));        \
    });                                                                                                               \
  }                                                                                                                   \
  CUresult CUDAAPI cuMemcpyPeerAsync##ASYNC(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,       \
                                            CUcontext srcContext, size_t ByteCount, CUstream hStream) {               \
    SIM_TRACED(cuMemcpyPeerAsync##ASYNC, (dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream), {        \
      return copy_between(dstDevice, dstContext, srcDevice, srcContext, ByteCount, SIM_ASYNC(PER_THREAD));            \
    });                                                                                                               \
  }                                                                                                                   \
  CUresult CUDAAPI cuMemAllocAsync##ASYNC(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {                     \
    SIM_TRACED(cuMemAllocAsync##ASYNC, (dptr, bytesize, hStream),                                                     \
               { return allocate_on_stream(dptr, bytesize, hStream, PER_THREAD); });                                  \
  }                                                                                                                   \
  CUresult CUDAAPI cuMemFreeAsync##ASYNC(CUdeviceptr dptr, CUstream hStream) {                                        \
    SIM_TRACED(cuMemFreeAsync##ASYNC, (dptr, hStream), { return release(dptr, false); });                             \
  }

extern "C" {

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  SIM_TRACED(cuMemAlloc_v2, (dptr, bytesize), {
    std::uintptr_t storage = 0;
    if (const CUresult error = allocate(&storage, bytesize, Place::kDevice)) return error;
    *dptr = storage;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  SIM_TRACED(cuMemAllocManaged, (dptr, bytesize, flags), {
    std::uintptr_t storage = 0;
    if (const CUresult error = allocate(&storage, bytesize, Place::kManaged)) return error;
    *dptr = storage;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemFree_v2(CUdeviceptr dptr) {
  SIM_TRACED(cuMemFree_v2, (dptr), { return release(dptr, false); });
}

CUresult CUDAAPI cuMemAllocHost_v2(void** pp, size_t bytesize) {
  SIM_TRACED(cuMemAllocHost_v2, (pp, bytesize), {
    std::uintptr_t storage = 0;
    if (const CUresult error = allocate(&storage, bytesize, Place::kHost)) return error;
    *pp = reinterpret_cast<void*>(storage);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  SIM_TRACED(cuMemHostAlloc, (pp, bytesize, Flags), {
    std::uintptr_t storage = 0;
    if (const CUresult error = allocate(&storage, bytesize, Place::kHost)) return error;
    *pp = reinterpret_cast<void*>(storage);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemFreeHost(void* p) {
  SIM_TRACED(cuMemFreeHost, (p), { return release(reinterpret_cast<std::uintptr_t>(p), true); });
}

CUresult CUDAAPI cuMemGetInfo_v2(size_t* free, size_t* total) {
  SIM_TRACED(cuMemGetInfo_v2, (free, total), {
    Context* context = nullptr;
    if (const CUresult error = current_context(&context)) return error;
    Driver& d = driver();
    const std::lock_guard lock(d.mutex);
    *total = static_cast<size_t>(sim_config().board.global_bytes);
    *free = *total - static_cast<size_t>(d.used_bytes[static_cast<std::size_t>(context->device)]);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  SIM_TRACED(cuMemGetAddressRange_v2, (pbase, psize, dptr), {
    std::uintptr_t base = 0;
    Allocation a;
    if (const CUresult error = find_allocation(dptr, &base, &a)) return error;
    if (pbase != nullptr) *pbase = base;
    if (psize != nullptr) *psize = a.bytes;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  SIM_TRACED(cuPointerGetAttribute, (data, attribute, ptr), { return ask_pointer(data, attribute, ptr); });
}

CUresult CUDAAPI cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes, void** data,
                                        CUdeviceptr ptr) {
  SIM_TRACED(cuPointerGetAttributes, (numAttributes, attributes, data, ptr), {
    for (unsigned i = 0; i < numAttributes; ++i) ask_pointer(data[i], attributes[i], ptr);
    return CUDA_SUCCESS;  // as documented: what does not apply is left alone
  });
}

SIM_MEMORY_FORMS(, , false)
SIM_MEMORY_FORMS(_ptds, _ptsz, true)

}  // extern "C"
