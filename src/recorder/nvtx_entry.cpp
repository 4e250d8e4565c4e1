#include "recorder/nvtx_entry.h"

#include <unistd.h>

#include "capture/nvtx_attach.h"
#include "config/option_table.h"
#include "config/program_filter.h"
#include "recorder/session.h"

namespace gpuflight::recorder {

bool attach_nvtx(void* get_export_table) noexcept {
  try {
    config::Options options;
    config::Problems ignored;  // the recorder will say them
    config::parse_environment(environ, options, ignored);
    if (!options.enabled || !options.nvtx) return false;
    if (!config::program_selected(options, read_process_facts().program_name)) return false;
  } catch (...) {
    return false;
  }
  return capture::attach_nvtx(get_export_table);
}

}  // namespace gpuflight::recorder
