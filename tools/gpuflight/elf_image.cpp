#include "elf_image.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <system_error>

namespace gpuflight::cli {
namespace {

class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) throw std::system_error(errno, std::generic_category(), path);
    struct stat info {};
    if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
      size_ = static_cast<std::size_t>(info.st_size);
      void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
      data_ = mapped == MAP_FAILED ? nullptr : static_cast<const char*>(mapped);
    }
    ::close(fd);
  }
  ~MappedFile() {
    if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::span<const char> bytes() const { return {data_, data_ == nullptr ? 0 : size_}; }

 private:
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

template <class T>
std::optional<T> read_at(std::span<const char> bytes, std::uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

std::string string_at(std::span<const char> bytes, std::uint64_t offset) {
  if (offset >= bytes.size()) return {};
  const char* begin = bytes.data() + offset;
  return {begin, ::strnlen(begin, std::min<std::size_t>(bytes.size() - offset, 4096))};
}

struct Elf64 {
  using Header = Elf64_Ehdr;
  using Segment = Elf64_Phdr;
  using Section = Elf64_Shdr;
  using Dynamic = Elf64_Dyn;
  using Symbol = Elf64_Sym;
};
struct Elf32 {
  using Header = Elf32_Ehdr;
  using Segment = Elf32_Phdr;
  using Section = Elf32_Shdr;
  using Dynamic = Elf32_Dyn;
  using Symbol = Elf32_Sym;
};

template <class Elf>
class Reader {
 public:
  explicit Reader(std::span<const char> bytes) : bytes_(bytes) {}

  void read(ElfImage& image) {
    const auto header = read_at<typename Elf::Header>(bytes_, 0);
    if (!header) return;
    image.machine = header->e_machine;
    for (std::uint64_t i = 0; i < header->e_phnum; ++i) {
      const auto segment = read_at<typename Elf::Segment>(bytes_, header->e_phoff + i * header->e_phentsize);
      if (!segment) break;
      if (segment->p_type == PT_INTERP) image.interpreter = string_at(bytes_, segment->p_offset);
      if (segment->p_type == PT_LOAD) loads_.push_back(*segment);
      if (segment->p_type == PT_DYNAMIC) dynamic_ = *segment;
    }
    if (dynamic_) read_needed(image);
    image.asan = std::any_of(image.needed.begin(), image.needed.end(), [](const std::string& name) {
      return name.starts_with("libasan.so") || name.starts_with("libclang_rt.asan");
    });
    if (!image.asan) image.asan = has_symbol(*header, "__asan_init");
  }

 private:
  std::uint64_t file_offset(std::uint64_t address) const {
    for (const auto& load : loads_) {
      if (address >= load.p_vaddr && address - load.p_vaddr < load.p_filesz) {
        return load.p_offset + (address - load.p_vaddr);
      }
    }
    return bytes_.size();
  }

  void read_needed(ElfImage& image) const {
    std::vector<std::uint64_t> names;
    std::uint64_t strings = bytes_.size();
    const std::uint64_t count = dynamic_->p_filesz / sizeof(typename Elf::Dynamic);
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto entry =
          read_at<typename Elf::Dynamic>(bytes_, dynamic_->p_offset + i * sizeof(typename Elf::Dynamic));
      if (!entry || entry->d_tag == DT_NULL) break;
      if (entry->d_tag == DT_NEEDED) names.push_back(entry->d_un.d_val);
      if (entry->d_tag == DT_STRTAB) strings = file_offset(entry->d_un.d_ptr);
    }
    for (const std::uint64_t name : names) image.needed.push_back(string_at(bytes_, strings + name));
  }

  // A runtime linked into the program shows in its symbol tables only.
  bool has_symbol(const typename Elf::Header& header, const char* wanted) const {
    const std::size_t length = std::strlen(wanted) + 1;
    for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
      const auto table = section(header, i);
      if (!table || (table->sh_type != SHT_DYNSYM && table->sh_type != SHT_SYMTAB)) continue;
      const auto strings = section(header, table->sh_link);
      if (!strings) continue;
      const std::uint64_t count = table->sh_size / sizeof(typename Elf::Symbol);
      for (std::uint64_t s = 0; s < count; ++s) {
        const auto symbol =
            read_at<typename Elf::Symbol>(bytes_, table->sh_offset + s * sizeof(typename Elf::Symbol));
        if (!symbol) break;
        const std::uint64_t offset = strings->sh_offset + symbol->st_name;
        if (offset < bytes_.size() && bytes_.size() - offset >= length &&
            std::memcmp(bytes_.data() + offset, wanted, length) == 0) {
          return true;
        }
      }
    }
    return false;
  }

  std::optional<typename Elf::Section> section(const typename Elf::Header& header, std::uint64_t index) const {
    return read_at<typename Elf::Section>(bytes_, header.e_shoff + index * header.e_shentsize);
  }

  std::span<const char> bytes_;
  std::vector<typename Elf::Segment> loads_;
  std::optional<typename Elf::Segment> dynamic_;
};

bool is_elevated(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return false;
  if ((info.st_mode & S_ISUID) != 0 && info.st_uid != ::getuid()) return true;
  if ((info.st_mode & S_ISGID) != 0 && (info.st_mode & S_IXGRP) != 0 && info.st_gid != ::getgid()) return true;
  return ::getxattr(path.c_str(), "security.capability", nullptr, 0) > 0 && ::getuid() != 0;
}

// "#!/usr/bin/env -S python3 -u" starts env, which looks like any other program to us: the path before a blank.
std::string shebang(const std::string& path) {
  char line[256] = {};
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return {};
  const ssize_t got = ::read(fd, line, sizeof(line) - 1);
  ::close(fd);
  if (got < 3 || line[0] != '#' || line[1] != '!') return {};
  const std::string text(line + 2);
  const auto begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_first_of(" \t\r\n", begin) - begin);
}

}  // namespace

ElfImage inspect_elf(const std::string& path) {
  const MappedFile file(path);
  const std::span<const char> bytes = file.bytes();
  ElfImage image;
  if (bytes.size() < EI_NIDENT || std::memcmp(bytes.data(), ELFMAG, SELFMAG) != 0) return image;
  image.is_elf = true;
  if (bytes[EI_CLASS] == ELFCLASS64) {
    image.bits = 64;
    Reader<Elf64>(bytes).read(image);
  } else if (bytes[EI_CLASS] == ELFCLASS32) {
    image.bits = 32;
    Reader<Elf32>(bytes).read(image);
  }
  return image;
}

ProgramImage inspect_program(const std::string& path) {
  ProgramImage program;
  program.path = path;
  program.elevated = is_elevated(path);
  for (int depth = 0; depth < 4; ++depth) {  // the kernel follows as many interpreters
    const std::string interpreter = shebang(program.path);
    if (interpreter.empty()) break;
    program.script = true;
    program.path = interpreter;
    program.elevated = is_elevated(interpreter);
  }
  try {
    program.elf = inspect_elf(program.path);
  } catch (const std::system_error&) {
    // Executable but not readable is legal: nothing known then, nothing claimed.
  }
  return program;
}

}  // namespace gpuflight::cli
