#include "hooks/libc_symbols.h"

#include <cstdint>
#include <cstring>
#include <elf.h>
#include <link.h>

namespace gpuflight::hooks {
namespace {

struct Search {
  const char* name;
  void* found;
};

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
  const char* const slash = std::strrchr(path, '/');
  const char* const file = slash != nullptr ? slash + 1 : path;
  return std::strncmp(file, "libc.so.", 8) == 0 || std::strncmp(file, "libdl.so.", 9) == 0 ||
         std::strncmp(file, "libc-2.", 7) == 0 || std::strncmp(file, "libdl-2.", 8) == 0;
}

void* look_up(const dl_phdr_info& object, const ElfW(Dyn)* dynamic, const char* name) noexcept {
  const ElfW(Sym)* symbols = nullptr;
  const char* strings = nullptr;
  const std::uint32_t* hash = nullptr;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    if (dynamic->d_tag == DT_SYMTAB) symbols = at<ElfW(Sym)>(object.dlpi_addr, dynamic->d_un.d_ptr);
    if (dynamic->d_tag == DT_STRTAB) strings = at<char>(object.dlpi_addr, dynamic->d_un.d_ptr);
    if (dynamic->d_tag == DT_GNU_HASH) hash = at<std::uint32_t>(object.dlpi_addr, dynamic->d_un.d_ptr);
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
        ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && std::strcmp(strings + symbol.st_name, name) == 0) {
      return reinterpret_cast<void*>(object.dlpi_addr + symbol.st_value);
    }
    if ((h & 1) != 0) return nullptr;
  }
}

int visit(dl_phdr_info* object, std::size_t, void* user) noexcept {
  auto& search = *static_cast<Search*>(user);
  if (object->dlpi_name == nullptr || !is_libc(object->dlpi_name)) return 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    if (object->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const auto* const dynamic = reinterpret_cast<const ElfW(Dyn)*>(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
    search.found = look_up(*object, dynamic, search.name);
  }
  return search.found != nullptr ? 1 : 0;
}

}  // namespace

void* libc_symbol(const char* name) noexcept {
  Search search{name, nullptr};
  dl_iterate_phdr(&visit, &search);
  return search.found;
}

}  // namespace gpuflight::hooks
