// Modules, libraries, functions, kernels: loading images, settable attributes, and the two kinds of launchable handle.
#include "sim/cuda/trace.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

using namespace gpuflight::sim;

namespace {

CUresult load(CUmodule* out, const void* image) {
  Context* context = nullptr;
  if (const CUresult error = current_context(&context)) return error;
  if (const CUresult error = check_unsafe_call()) return error;
  if (out == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto parsed = read_image(image);
  if (!parsed) return CUDA_ERROR_INVALID_IMAGE;
  Module* module = load_module(*context, *parsed, image, make_kernel_states(*parsed));
  if (module == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = reinterpret_cast<CUmodule>(module);
  return CUDA_SUCCESS;
}

bool read_file(const char* path, std::string* text) {
  std::ifstream in(path, std::ios::binary);
  text->assign(std::istreambuf_iterator<char>(in), {});
  return in.good() || in.eof();
}

CUresult find_function(CUfunction* out, CUmodule handle, const char* name) {
  const Module* module = driver().modules.find(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto found = std::find_if(module->functions.begin(), module->functions.end(),
                                  [&](const Function* f) { return f->state->image.name == name; });
  if (found == module->functions.end()) return CUDA_ERROR_NOT_FOUND;
  *out = reinterpret_cast<CUfunction>(*found);
  return CUDA_SUCCESS;
}

CUresult load_library(CUlibrary* out, const void* code) {
  Driver& d = driver();
  if (!d.initialized.load(std::memory_order_acquire)) return CUDA_ERROR_NOT_INITIALIZED;
  const auto parsed = read_image(code);
  if (!parsed) return CUDA_ERROR_INVALID_IMAGE;
  Library* library = d.libraries.create();
  if (library == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  library->image = static_cast<const char*>(code);
  for (auto& state : make_kernel_states(*parsed)) {
    Kernel* kernel = d.kernels.create();
    if (kernel == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    kernel->state = std::move(state);
    kernel->library = library;
    library->kernels.push_back(kernel);
  }
  *out = reinterpret_cast<CUlibrary>(library);
  return CUDA_SUCCESS;
}

CUresult unload_library(CUlibrary handle) {
  Driver& d = driver();
  Library* library = d.libraries.find(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (const auto& [context_uid, module] : library->modules) {
    // Its context may be gone and the slot somebody else's by now.
    const Module* live = d.modules.find(module);
    if (live != nullptr && live->context->uid == context_uid) unload_module(module);
  }
  for (auto it = library->kernels.rbegin(); it != library->kernels.rend(); ++it) d.kernels.destroy(*it);
  d.libraries.destroy(library);
  return CUDA_SUCCESS;
}

// The module that carries a library's code into one context; made when the first of its kernels is wanted there.
Module* module_in(Library& library, Context& context) {
  const std::lock_guard lock(library.mutex);
  Module*& module = library.modules[context.uid];
  if (module == nullptr) {
    ModuleImage image;
    std::vector<std::shared_ptr<KernelState>> states;
    for (const Kernel* kernel : library.kernels) {
      image.kernels.push_back(kernel->state->image);
      states.push_back(kernel->state);
    }
    module = load_module(context, image, library.image.c_str(), states);
  }
  return module;
}

CUresult function_of(CUfunction* out, CUkernel handle) {
  Kernel* kernel = driver().kernels.find(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;  // a real CUfunction, among others
  Context* context = nullptr;
  if (const CUresult error = current_context(&context)) return error;
  const Module* module = module_in(*kernel->library, *context);
  if (module == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  for (Function* function : module->functions) {
    if (function->state == kernel->state) {
      *out = reinterpret_cast<CUfunction>(function);
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_NOT_FOUND;
}

CUresult get_attribute(int* out, CUfunction_attribute attribute, const KernelState& state) {
  const KernelImage& image = state.image;
  const gpuflight::event::DeviceInfo& board = sim_config().board;
  const int arch = board.compute_major * 10 + board.compute_minor;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *out = image.max_threads; break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *out = image.static_shared_bytes; break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: *out = image.const_bytes; break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *out = image.local_bytes; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *out = image.registers; break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION: *out = image.ptx_version != 0 ? image.ptx_version : arch; break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *out = image.binary_version != 0 ? image.binary_version : arch; break;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA: *out = 0; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *out = state.max_dynamic_shared_bytes.load(); break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: *out = state.carveout.load(); break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET: *out = 0; break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH: *out = image.required_cluster[0]; break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT: *out = image.required_cluster[1]; break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH: *out = image.required_cluster[2]; break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: *out = state.non_portable_cluster.load(); break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE: *out = 0; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult set_attribute(KernelState& state, CUfunction_attribute attribute, int value) {
  const gpuflight::event::DeviceInfo& board = sim_config().board;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      if (value < 0 || value > board.shared_bytes_per_block_optin - state.image.static_shared_bytes) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      state.max_dynamic_shared_bytes.store(value);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
      state.carveout.store(value);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      state.non_portable_cluster.store(value);
      return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

KernelState* state_of(CUkernel handle) {
  Kernel* kernel = driver().kernels.find(handle);
  return kernel != nullptr ? kernel->state.get() : nullptr;
}

KernelState* state_of(CUfunction handle) {
  Function* function = driver().functions.find(handle);
  return function != nullptr ? function->state.get() : nullptr;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
  SIM_TRACED(cuModuleLoadData, (module, image), { return load(module, image); });
}

CUresult CUDAAPI cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                                    CUjit_option* options, void** optionValues) {
  SIM_TRACED(cuModuleLoadDataEx, (module, image, numOptions, options, optionValues), { return load(module, image); });
}

CUresult CUDAAPI cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  SIM_TRACED(cuModuleLoadFatBinary, (module, fatCubin), { return load(module, fatCubin); });
}

CUresult CUDAAPI cuModuleLoad(CUmodule* module, const char* fname) {
  SIM_TRACED(cuModuleLoad, (module, fname), {
    std::string text;
    if (!read_file(fname, &text)) return CUDA_ERROR_FILE_NOT_FOUND;
    return load(module, text.c_str());
  });
}

CUresult CUDAAPI cuModuleUnload(CUmodule hmod) {
  SIM_TRACED(cuModuleUnload, (hmod), {
    Module* module = driver().modules.find(hmod);
    if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    unload_module(module);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  SIM_TRACED(cuModuleGetFunction, (hfunc, hmod, name), { return find_function(hfunc, hmod, name); });
}

CUresult CUDAAPI cuModuleGetFunctionCount(unsigned int* count, CUmodule mod) {
  SIM_TRACED(cuModuleGetFunctionCount, (count, mod), {
    const Module* module = driver().modules.find(mod);
    if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *count = static_cast<unsigned>(module->functions.size());
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                                   void** jitOptionsValues, unsigned int numJitOptions,
                                   CUlibraryOption* libraryOptions, void** libraryOptionValues,
                                   unsigned int numLibraryOptions) {
  SIM_TRACED(cuLibraryLoadData,
             (library, code, jitOptions, jitOptionsValues, numJitOptions, libraryOptions, libraryOptionValues,
              numLibraryOptions),
             { return load_library(library, code); });
}

CUresult CUDAAPI cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option* jitOptions,
                                       void** jitOptionsValues, unsigned int numJitOptions,
                                       CUlibraryOption* libraryOptions, void** libraryOptionValues,
                                       unsigned int numLibraryOptions) {
  SIM_TRACED(cuLibraryLoadFromFile,
             (library, fileName, jitOptions, jitOptionsValues, numJitOptions, libraryOptions, libraryOptionValues,
              numLibraryOptions),
             {
               std::string text;
               if (!read_file(fileName, &text)) return CUDA_ERROR_FILE_NOT_FOUND;
               return load_library(library, text.c_str());
             });
}

CUresult CUDAAPI cuLibraryUnload(CUlibrary library) {
  SIM_TRACED(cuLibraryUnload, (library), { return unload_library(library); });
}

CUresult CUDAAPI cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
  SIM_TRACED(cuLibraryGetKernel, (pKernel, library, name), {
    const Library* found = driver().libraries.find(library);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    for (Kernel* kernel : found->kernels) {
      if (kernel->state->image.name != name) continue;
      *pKernel = reinterpret_cast<CUkernel>(kernel);
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
  });
}

CUresult CUDAAPI cuLibraryGetModule(CUmodule* pMod, CUlibrary library) {
  SIM_TRACED(cuLibraryGetModule, (pMod, library), {
    Library* found = driver().libraries.find(library);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    Context* context = nullptr;
    if (const CUresult error = current_context(&context)) return error;
    *pMod = reinterpret_cast<CUmodule>(module_in(*found, *context));
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  SIM_TRACED(cuKernelGetFunction, (pFunc, kernel), { return function_of(pFunc, kernel); });
}

CUresult CUDAAPI cuKernelGetLibrary(CUlibrary* pLib, CUkernel kernel) {
  SIM_TRACED(cuKernelGetLibrary, (pLib, kernel), {
    const Kernel* found = driver().kernels.find(kernel);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *pLib = reinterpret_cast<CUlibrary>(found->library);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuKernelGetName(const char** name, CUkernel hfunc) {
  SIM_TRACED(cuKernelGetName, (name, hfunc), {
    const KernelState* state = state_of(hfunc);
    if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *name = state->name;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev) {
  SIM_TRACED(cuKernelGetAttribute, (pi, attrib, kernel, dev), {
    const KernelState* state = state_of(kernel);
    return state != nullptr ? get_attribute(pi, attrib, *state) : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult CUDAAPI cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
  SIM_TRACED(cuKernelSetAttribute, (attrib, val, kernel, dev), {
    KernelState* state = state_of(kernel);
    return state != nullptr ? set_attribute(*state, attrib, val) : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult CUDAAPI cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev) {
  SIM_TRACED(cuKernelSetCacheConfig, (kernel, config, dev),
             { return state_of(kernel) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; });
}

CUresult CUDAAPI cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  SIM_TRACED(cuFuncGetAttribute, (pi, attrib, hfunc), {
    const KernelState* state = state_of(hfunc);  // a CUkernel is refused with 400, as measured
    return state != nullptr ? get_attribute(pi, attrib, *state) : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult CUDAAPI cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  SIM_TRACED(cuFuncSetAttribute, (hfunc, attrib, value), {
    KernelState* state = state_of(hfunc);
    return state != nullptr ? set_attribute(*state, attrib, value) : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult CUDAAPI cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
  SIM_TRACED(cuFuncSetCacheConfig, (hfunc, config),
             { return state_of(hfunc) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; });
}

CUresult CUDAAPI cuFuncGetName(const char** name, CUfunction hfunc) {
  SIM_TRACED(cuFuncGetName, (name, hfunc), {
    const KernelState* state = state_of(hfunc);
    if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *name = state->name;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  SIM_TRACED(cuFuncGetModule, (hmod, hfunc), {
    const Function* function = driver().functions.find(hfunc);
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *hmod = reinterpret_cast<CUmodule>(function->module);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  SIM_TRACED(cuFuncIsLoaded, (state, function), {
    if (state_of(function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuFuncLoad(CUfunction function) {
  SIM_TRACED(cuFuncLoad, (function),
             { return state_of(function) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; });
}

}  // extern "C"
