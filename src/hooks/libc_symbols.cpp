#include "hooks/libc_symbols.h"

#include <cstdint>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include "hooks/byte_text.h"

namespace gpuflight::hooks {
namespace {

// glibc writes addresses into the dynamic section where it may, else offsets are left there.
template <class T>
const T* at(ElfW(Addr) base, ElfW(Addr) value) noexcept {
  return reinterpret_cast<const T*>(value < base ? base + value : value);
}

std::uint32_t gnu_hash(const char* name) noexcept {
  std::uint32_t h = 5381;
  for (; *name != 0; ++name) h = h * 33 + static_cast<unsigned char>(*name);
  return h;
}

bool is_libc(const char* path) noexcept {
  const char* const file = file_of(path);
  return begins_with(file, "libc.so.") || begins_with(file, "libdl.so.") || begins_with(file, "libc-2.") ||
         begins_with(file, "libdl-2.");
}

void* look_up(const link_map& object, const char* name) noexcept {
  const ElfW(Sym)* symbols = nullptr;
  const char* strings = nullptr;
  const std::uint32_t* hash = nullptr;
  for (const ElfW(Dyn)* dynamic = object.l_ld; dynamic->d_tag != DT_NULL; ++dynamic) {
    if (dynamic->d_tag == DT_SYMTAB) symbols = at<ElfW(Sym)>(object.l_addr, dynamic->d_un.d_ptr);
    if (dynamic->d_tag == DT_STRTAB) strings = at<char>(object.l_addr, dynamic->d_un.d_ptr);
    if (dynamic->d_tag == DT_GNU_HASH) hash = at<std::uint32_t>(object.l_addr, dynamic->d_un.d_ptr);
  }
  if (symbols == nullptr || strings == nullptr || hash == nullptr || hash[0] == 0) return nullptr;
  // Four words, the bloom filter, the buckets, and a chain of hashes that is parallel to the symbols from hash[1] on.
  const std::uint32_t* const buckets = hash + 4 + hash[2] * (sizeof(ElfW(Addr)) / 4);
  const std::uint32_t* const chain = buckets + hash[0];
  const std::uint32_t wanted = gnu_hash(name);
  std::uint32_t i = buckets[wanted % hash[0]];
  if (i < hash[1]) return nullptr;
  for (;; ++i) {
    const std::uint32_t h = chain[i - hash[1]];
    const ElfW(Sym)& symbol = symbols[i];
    if ((h | 1) == (wanted | 1) && symbol.st_shndx != SHN_UNDEF && symbol.st_value != 0 &&
        ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && equal(strings + symbol.st_name, name)) {
      return reinterpret_cast<void*>(object.l_addr + symbol.st_value);
    }
    if ((h & 1) != 0) return nullptr;
  }
}

}  // namespace

// Along the list of objects, from ourselves: dl_iterate_phdr is a function that ThreadSanitizer stands before, and not
// ready when it asks us. libc is among the objects that the process began with, which come first and stay.
void* libc_symbol(const char* name) noexcept {
  Dl_info info{};
  link_map* object = nullptr;
  if (dladdr1(reinterpret_cast<const void*>(&libc_symbol), &info, reinterpret_cast<void**>(&object),
              RTLD_DL_LINKMAP) == 0) {
    return nullptr;
  }
  for (; object != nullptr; object = object->l_next) {
    if (object->l_name == nullptr || !is_libc(object->l_name)) continue;
    if (void* const found = look_up(*object, name)) return found;
  }
  return nullptr;
}

}  // namespace gpuflight::hooks
