// Whether this process's NVTX calls are wanted, by its environment, and if so the way for them.
//
// Threads: any, inside the program's first NVTX call. Starts nothing: that is left to the first CUDA call.
#pragma once

namespace gpuflight::recorder {

// `get_export_table`: of NVTX. False: nothing is put in, and its calls stay the no-ops they are without a tool.
bool attach_nvtx(void* get_export_table) noexcept;

}  // namespace gpuflight::recorder
