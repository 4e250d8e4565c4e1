// What an ELF file says about how it will be loaded: enough to know before the start whether a preload can work.
// Reads untrusted files: every offset is checked, a broken file gives is_elf with what could be read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpuflight::cli {

struct ElfImage {
  bool is_elf = false;
  int bits = 0;               // 32 or 64
  std::uint16_t machine = 0;  // EM_X86_64 ...
  std::string interpreter;    // PT_INTERP; empty: nobody loads shared libraries into it
  std::vector<std::string> needed;
  bool asan = false;          // AddressSanitizer's runtime, shared or linked in

  bool takes_preload() const { return !interpreter.empty(); }
  bool musl() const { return interpreter.find("ld-musl") != std::string::npos; }
};

// Throws std::system_error when the file cannot be read at all.
ElfImage inspect_elf(const std::string& path);

// What exec would start: the program itself, or the interpreter behind "#!".
struct ProgramImage {
  std::string path;         // the file that is loaded in the end
  bool script = false;
  bool elevated = false;    // set-user-id, set-group-id or file capabilities: ld.so then ignores LD_PRELOAD
  ElfImage elf;
};
ProgramImage inspect_program(const std::string& path);

}  // namespace gpuflight::cli
