// NVTX: how a program that knows nothing of us tells where it is. Its header-only NVTX loads the library that
// NVTX_INJECTION64_PATH names, once for each binary that uses it, and lets it put its own functions into a table.
//
// Another tool's path in that variable is left alone, and nothing is handed on: of two tools that fill one table the
// later wins, so taking part beside another cannot work. In particular libcupti's own NVTX entry is not called; whoever
// wants NVTX activity records from CUPTI points the variable there.
//
// Threads: attach on the thread of the program's first NVTX call, inside it; the functions put in are called by any.
#pragma once

namespace gpuflight::capture {

class LaunchRecorder;

// `get_export_table`: NvtxGetExportTableFunc_t. False: a table that is not understood.
bool attach_nvtx(void* get_export_table) noexcept;

// Where scopes go from now on; before, they are kept by thread (early_scopes.h). Null: nowhere.
void send_nvtx_to(LaunchRecorder* launches) noexcept;

}  // namespace gpuflight::capture
