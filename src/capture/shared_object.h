// A library of somebody else's, opened at run time: libcuda, libcupti. Never closed.
//
// Threads: any. May block and allocate (the loader does). Not on the launch path.
#pragma once

#include <string>

namespace gpuflight::capture {

class SharedObject {
 public:
  SharedObject() = default;

  // The copy that is in the process already; false where there is none.
  bool adopt(const char* name) noexcept;
  bool open(const char* name) noexcept;

  void* symbol(const char* name) const noexcept;
  explicit operator bool() const noexcept { return handle_ != nullptr; }
  const std::string& path() const noexcept { return path_; }    // real path of the file, as the loader says
  const std::string& error() const noexcept { return error_; }  // why open() failed

 private:
  void resolve_path() noexcept;

  void* handle_ = nullptr;
  std::string path_;
  std::string error_;
};

}  // namespace gpuflight::capture
