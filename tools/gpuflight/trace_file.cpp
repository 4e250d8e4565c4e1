#include "trace_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "failure.h"
#include "report/kernel_name.h"

namespace gpuflight::cli {
namespace {

constexpr int kGzipWindow = 15 + 16;  // the largest window, and a gzip header around it
constexpr int kFast = 3;              // a third of the time of the default; traces shrink to a fifteenth all the same

}  // namespace

struct TraceFile::Zip {
  z_stream stream{};
  std::array<unsigned char, 256 * 1024> out;
  ~Zip() { deflateEnd(&stream); }
};

TraceFile::TraceFile(std::string path) : path_(std::move(path)) {
  file_ = path_ == "-" ? stdout : std::fopen(path_.c_str(), "wbe");
  if (file_ == nullptr) fail(errno);
  if (!path_.ends_with(".gz")) return;
  zip_ = std::make_unique<Zip>();
  if (deflateInit2(&zip_->stream, kFast, Z_DEFLATED, kGzipWindow, 9, Z_DEFAULT_STRATEGY) != Z_OK) fail(ENOMEM);
}

TraceFile::~TraceFile() {
  if (file_ == nullptr || file_ == stdout) return;
  struct stat info{};
  const bool regular = fstat(fileno(file_), &info) == 0 && S_ISREG(info.st_mode);
  std::fclose(file_);
  if (regular) unlink(path_.c_str());
}

void TraceFile::fail(int error) const {
  throw Failure(fmt::format("cannot write '{}': {}", path_ == "-" ? "standard output" : report::printable(path_),
                            std::strerror(error)));
}

void TraceFile::put(const char* bytes, std::size_t size) {
  if (size > 0 && std::fwrite(bytes, 1, size, file_) != size) fail(errno);
}

void TraceFile::deflate_all(std::string_view bytes, int flush) {
  z_stream& stream = zip_->stream;
  stream.next_in = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));  // zlib only reads it
  stream.avail_in = static_cast<unsigned>(bytes.size());
  do {
    stream.next_out = zip_->out.data();
    stream.avail_out = static_cast<unsigned>(zip_->out.size());
    if (deflate(&stream, flush) == Z_STREAM_ERROR) fail(EINVAL);
    put(reinterpret_cast<const char*>(zip_->out.data()), zip_->out.size() - stream.avail_out);
  } while (stream.avail_out == 0);
}

void TraceFile::write(std::string_view bytes) {
  constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;  // zlib counts in 32 bits
  if (!zip_) return put(bytes.data(), bytes.size());
  for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kMostAtOnce))) {
    deflate_all(bytes.substr(0, kMostAtOnce), Z_NO_FLUSH);
  }
}

void TraceFile::close() {
  if (zip_) deflate_all({}, Z_FINISH);
  if (std::fflush(file_) != 0) fail(errno);
  if (file_ == stdout) return;
  std::FILE* const file = file_;
  file_ = nullptr;
  if (std::fclose(file) != 0) fail(errno);
}

}  // namespace gpuflight::cli
