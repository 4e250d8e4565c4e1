// A file that is written from beginning to end: plain, or gzip where its name ends in .gz; "-": standard output.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace gpuflight::cli {

class TraceFile {
 public:
  // Throws Failure, as do the others.
  explicit TraceFile(std::string path);
  ~TraceFile();  // what was not closed is no whole file, and is removed
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  void write(std::string_view bytes);
  void close();

 private:
  struct Zip;
  [[noreturn]] void fail(int error) const;
  void put(const char* bytes, std::size_t size);
  void deflate_all(std::string_view bytes, int flush);

  const std::string path_;
  std::FILE* file_ = nullptr;
  std::unique_ptr<Zip> zip_;
};

}  // namespace gpuflight::cli
