// libc's own dlsym and dlvsym, found by reading its symbol table: every name by which they could be asked for leads to
// this library's or to another interposer's.
//
// Threads: any, also before constructors; takes the loader's lock as dlsym does. Allocates nothing.
#pragma once

namespace gpuflight::hooks {

// A function of libc's (or, before glibc 2.34, libdl's); null: not found.
void* libc_symbol(const char* name) noexcept;

}  // namespace gpuflight::hooks
