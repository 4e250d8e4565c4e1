// Memory of other kinds: with a pitch, of pools, virtual; fills of rows; prefetches.
#include "sim/cuda/trace.h"

#include <sys/mman.h>

#include <cstring>

using namespace gpuflight::sim;

namespace {

constexpr std::size_t kPitch = 512, kPage = 2 << 20;  // an H200's
constexpr std::int64_t kFillNs = 1500;

struct Pool {
  int device = 0;
};
struct Physical {
  std::size_t bytes = 0;
  bool released = false;
  int mappings = 0;
};
struct Mapping {
  std::size_t bytes = 0;
  std::uint64_t handle = 0;
};

// Beside what driver.h holds; guarded by the driver's mutex.
struct Kinds {
  std::set<Pool*> pools;
  std::array<Pool, kMaxDevices> default_pools{};
  std::map<std::uint64_t, Physical> physical;
  std::map<std::uintptr_t, Mapping> mappings;
  std::map<std::uintptr_t, std::size_t> reserved;
  std::uint64_t next_handle = 0x7f0000001000;
};
Kinds& kinds() {
  static Kinds* const one = new Kinds;
  return *one;
}

CUresult allocate_rows(CUdeviceptr* out, std::size_t* pitch, std::size_t width, std::size_t height) {
  if (out == nullptr || pitch == nullptr || width == 0 || height == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t row = (width + kPitch - 1) / kPitch * kPitch;
  std::uintptr_t storage = 0;
  if (const CUresult error = allocate(&storage, row * height, Place::kDevice)) return error;
  *out = storage;
  *pitch = row;
  return CUDA_SUCCESS;
}

Pool* find_pool_locked(CUmemoryPool handle) {
  auto* const pool = reinterpret_cast<Pool*>(handle);
  Kinds& k = kinds();
  const bool is_default = pool >= k.default_pools.data() && pool < k.default_pools.data() + k.default_pools.size();
  return is_default || k.pools.count(pool) != 0 ? pool : nullptr;
}

CUresult allocate_from(CUdeviceptr* out, std::size_t bytes, CUmemoryPool pool, CUstream handle, bool per_thread) {
  Context* context = nullptr;
  if (const CUresult error = current_context(&context)) return error;
  Stream* stream = nullptr;
  if (const CUresult error = find_stream(*context, handle, per_thread, &stream)) return error;
  {
    const std::lock_guard lock(driver().mutex);
    if (find_pool_locked(pool) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  }
  std::uintptr_t storage = 0;
  if (const CUresult error = allocate(&storage, bytes, Place::kDevice)) return error;
  *out = storage;
  return CUDA_SUCCESS;
}

void forget_physical_locked(std::map<std::uint64_t, Physical>::iterator at) {
  if (at->second.released && at->second.mappings == 0) kinds().physical.erase(at);
}

CUresult map_physical(std::uintptr_t address, std::size_t bytes, std::uint64_t handle) {
  Context* context = nullptr;
  if (const CUresult error = current_context(&context)) return error;
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  Kinds& k = kinds();
  const auto physical = k.physical.find(handle);
  if (physical == k.physical.end() || physical->second.released || physical->second.bytes != bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto reserved = k.reserved.upper_bound(address);
  if (reserved == k.reserved.begin()) return CUDA_ERROR_INVALID_VALUE;
  --reserved;
  if (address + bytes > reserved->first + reserved->second || k.mappings.count(address) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (mprotect(reinterpret_cast<void*>(address), bytes, PROT_READ | PROT_WRITE) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  k.mappings[address] = {bytes, handle};
  ++physical->second.mappings;
  Allocation a;
  a.bytes = bytes;
  a.context = context;
  d.allocations.emplace(address, a);
  d.used_bytes[static_cast<std::size_t>(context->device)] += static_cast<std::int64_t>(bytes);
  return CUDA_SUCCESS;
}

// Whole mappings, one or more.
CUresult unmap(std::uintptr_t address, std::size_t bytes) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  Kinds& k = kinds();
  std::uintptr_t at = address;
  for (auto it = k.mappings.find(address); it != k.mappings.end() && it->first == at; ++it) at += it->second.bytes;
  if (at < address + bytes || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  for (auto it = k.mappings.find(address); it != k.mappings.end() && it->first < address + bytes;) {
    d.used_bytes[static_cast<std::size_t>(d.allocations[it->first].context->device)] -=
        static_cast<std::int64_t>(it->second.bytes);
    d.allocations.erase(it->first);
    mprotect(reinterpret_cast<void*>(it->first), it->second.bytes, PROT_NONE);
    const auto physical = k.physical.find(it->second.handle);
    --physical->second.mappings;
    forget_physical_locked(physical);
    it = k.mappings.erase(it);
  }
  return CUDA_SUCCESS;
}

template <class Unit>
CUresult fill_rows(CUdeviceptr to, std::size_t pitch, Unit value, std::size_t width, std::size_t height,
                   CUstream handle, bool per_thread, bool async, std::uint32_t correlation) {
  Context* context = nullptr;
  if (const CUresult error = current_context(&context)) return error;
  Stream* stream = nullptr;
  if (const CUresult error = find_stream(*context, handle, per_thread, &stream)) return error;
  if (memory_at(to).device < 0 || width * sizeof(Unit) > pitch) return CUDA_ERROR_INVALID_VALUE;
  Transfer what;
  what.destination = memory_at(to).kind;
  what.bytes = width * height * sizeof(Unit);
  what.value = value;
  what.async = async;
  const bool captured = stream->capturing.load(std::memory_order_acquire);
  if (const CUresult error = run_work(*stream, CU_GRAPH_NODE_TYPE_MEMSET, kFillNs, what, correlation)) return error;
  for (std::size_t row = 0; row < height && !captured; ++row) {
    std::fill_n(reinterpret_cast<Unit*>(to + row * pitch), width, value);
  }
  return CUDA_SUCCESS;
}

CUresult prefetch(CUdeviceptr address, CUstream handle, bool per_thread) {
  Context* context = nullptr;
  if (const CUresult error = current_context(&context)) return error;
  Stream* stream = nullptr;
  if (const CUresult error = find_stream(*context, handle, per_thread, &stream)) return error;
  return memory_at(address).kind == CUPTI_ACTIVITY_MEMORY_KIND_MANAGED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

#define SIM_FILL_ROWS(BITS, TYPE, SYNC, ASYNC, PER_THREAD)                                                            \
  CUresult CUDAAPI cuMemsetD2D##BITS##_v2##SYNC(CUdeviceptr dstDevice, size_t dstPitch, TYPE value, size_t Width,     \
                                                size_t Height) {                                                      \
    SIM_TRACED(cuMemsetD2D##BITS##_v2##SYNC, (dstDevice, dstPitch, value, Width, Height), {                           \
      return fill_rows(dstDevice, dstPitch, value, Width, Height, nullptr, PER_THREAD, false, call.correlation);      \
    });                                                                                                               \
  }                                                                                                                   \
  CUresult CUDAAPI cuMemsetD2D##BITS##Async##ASYNC(CUdeviceptr dstDevice, size_t dstPitch, TYPE value, size_t Width,  \
                                                   size_t Height, CUstream hStream) {                                 \
    SIM_TRACED(cuMemsetD2D##BITS##Async##ASYNC, (dstDevice, dstPitch, value, Width, Height, hStream), {               \
      return fill_rows(dstDevice, dstPitch, value, Width, Height, hStream, PER_THREAD, true, call.correlation);       \
    });                                                                                                               \
  }
#define SIM_KINDS_FORMS(SYNC, ASYNC, PER_THREAD)                                                                      \
  SIM_FILL_ROWS(8, unsigned char, SYNC, ASYNC, PER_THREAD)                                                            \
  SIM_FILL_ROWS(16, unsigned short, SYNC, ASYNC, PER_THREAD)                                                          \
  SIM_FILL_ROWS(32, unsigned int, SYNC, ASYNC, PER_THREAD)                                                            \
  CUresult CUDAAPI cuMemAllocFromPoolAsync##ASYNC(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,              \
                                                  CUstream hStream) {                                                 \
    SIM_TRACED(cuMemAllocFromPoolAsync##ASYNC, (dptr, bytesize, pool, hStream),                                       \
               { return allocate_from(dptr, bytesize, pool, hStream, PER_THREAD); });                                 \
  }                                                                                                                   \
  CUresult CUDAAPI cuMemPrefetchAsync_v2##ASYNC(CUdeviceptr devPtr, size_t count, CUmemLocation location,             \
                                                unsigned int flags, CUstream hStream) {                               \
    SIM_TRACED(cuMemPrefetchAsync_v2##ASYNC, (devPtr, count, location, flags, hStream),                               \
               { return prefetch(devPtr, hStream, PER_THREAD); });                                                    \
  }

extern "C" {

CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                                    unsigned int ElementSizeBytes) {
  SIM_TRACED(cuMemAllocPitch_v2, (dptr, pPitch, WidthInBytes, Height, ElementSizeBytes),
             { return allocate_rows(dptr, pPitch, WidthInBytes, Height); });
}

CUresult CUDAAPI cuDeviceGetDefaultMemPool(CUmemoryPool* pool_out, CUdevice dev) {
  SIM_TRACED(cuDeviceGetDefaultMemPool, (pool_out, dev), {
    if (pool_out == nullptr || dev < 0 || dev >= kMaxDevices) return CUDA_ERROR_INVALID_VALUE;
    *pool_out = reinterpret_cast<CUmemoryPool>(&kinds().default_pools[static_cast<std::size_t>(dev)]);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  SIM_TRACED(cuMemPoolCreate, (pool, poolProps), {
    if (pool == nullptr || poolProps == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto* const made = new Pool{poolProps->location.id};
    const std::lock_guard lock(driver().mutex);
    kinds().pools.insert(made);
    *pool = reinterpret_cast<CUmemoryPool>(made);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool pool) {
  SIM_TRACED(cuMemPoolDestroy, (pool), {
    const std::lock_guard lock(driver().mutex);
    auto* const old = reinterpret_cast<Pool*>(pool);
    if (kinds().pools.erase(old) == 0) return CUDA_ERROR_INVALID_VALUE;
    delete old;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                               CUmemAllocationGranularity_flags option) {
  SIM_TRACED(cuMemGetAllocationGranularity, (granularity, prop, option), {
    if (granularity == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *granularity = kPage;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr,
                                     unsigned long long flags) {
  SIM_TRACED(cuMemAddressReserve, (ptr, size, alignment, addr, flags), {
    if (ptr == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
    void* const place = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    *ptr = reinterpret_cast<std::uintptr_t>(place);
    const std::lock_guard lock(driver().mutex);
    kinds().reserved[*ptr] = size;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  SIM_TRACED(cuMemAddressFree, (ptr, size), {
    const std::lock_guard lock(driver().mutex);
    if (kinds().reserved.erase(ptr) == 0) return CUDA_ERROR_INVALID_VALUE;
    munmap(reinterpret_cast<void*>(ptr), size);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* prop,
                             unsigned long long flags) {
  SIM_TRACED(cuMemCreate, (handle, size, prop, flags), {
    if (handle == nullptr || prop == nullptr || size == 0 || size % kPage != 0) return CUDA_ERROR_INVALID_VALUE;
    const std::lock_guard lock(driver().mutex);
    Kinds& k = kinds();
    *handle = k.next_handle;
    k.next_handle += 0x100;
    k.physical[*handle] = {size};
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
  SIM_TRACED(cuMemRelease, (handle), {
    const std::lock_guard lock(driver().mutex);
    const auto found = kinds().physical.find(handle);
    if (found == kinds().physical.end() || found->second.released) return CUDA_ERROR_INVALID_VALUE;
    found->second.released = true;
    forget_physical_locked(found);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags) {
  SIM_TRACED(cuMemMap, (ptr, size, offset, handle, flags), { return map_physical(ptr, size, handle); });
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr ptr, size_t size) {
  SIM_TRACED(cuMemUnmap, (ptr, size), { return unmap(ptr, size); });
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
  SIM_TRACED(cuMemSetAccess, (ptr, size, desc, count),
             { return desc != nullptr && count > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; });
}

SIM_KINDS_FORMS(, , false)
SIM_KINDS_FORMS(_ptds, _ptsz, true)

}  // extern "C"
