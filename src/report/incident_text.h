// Errors, hangs and ends as a person reads them, one line each without its end.
#pragma once

#include <string>

#include "event/incidents.h"
#include "report/kernel_name.h"

namespace gpuflight::report {

// "CUDA_ERROR_ILLEGAL_ADDRESS (700, illegal memory access) returned by cuStreamSynchronize in thread 4242; ..."
std::string error_text(const event::ErrorEvent& error, KernelNames& names);

// "stream 2 hangs: nothing of its work was done for 30 s; ..." or, at its end, "stream 2 goes on after 35 s"
std::string hang_text(const event::HangEvent& hang, KernelNames& names);

// "ended by signal 9 (SIGKILL: Killed), the kernel's OOM killer" or "exited with code 3"
std::string exit_text(const event::ExitEvent& exit);

// "reduce (16384,1,1) x (256,1,1)" or "graph 5"
std::string suspect_text(const event::SuspectLaunch& launch, KernelNames& names);

}  // namespace gpuflight::report
