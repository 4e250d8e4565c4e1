// Reads a flight file: of a dead process, of one that is being recorded right now, truncated, damaged or hostile.
// Trusts nothing in it: every offset, count, row number and state is checked against the file's real size. It is read,
// never mapped, since a mapped file that shrinks is a SIGBUS. Memory is bounded by ReadLimits and the file's size.
//
// For tools. Threads: one owner. Blocks on the file. Throws FlightError, std::bad_alloc.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "flight/flight_contents.h"
#include "flight/layout.h"

namespace gpuflight::flight {

// Not a flight file that this version can read; one line.
class FlightError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct ReadLimits {
  std::uint64_t record_bytes = std::uint64_t{1} << 30;
  std::uint64_t string_bytes = std::uint64_t{256} << 20;
  std::uint32_t table_rows = 1u << 20;
};

class FlightReader {
 public:
  explicit FlightReader(std::string path);
  FlightReader(int fd, std::string name);  // takes the descriptor over
  ~FlightReader();
  FlightReader(const FlightReader&) = delete;
  FlightReader& operator=(const FlightReader&) = delete;

  // The file as it is now; may be called again. Of a live process: complete up to the counters of the slots at the
  // call's beginning, but for chunks that went back into use meanwhile, whose lines are in the log by then.
  FlightContents read(const ReadLimits& limits = {});

  // Whether a file begins like a flight file of any version. False also where it cannot be read.
  static bool looks_like_one(const std::string& path);

 private:
  struct Sections;
  [[noreturn]] void fail(const std::string& what) const;
  void check_regular();
  std::uint64_t pread_some(void* to, std::uint64_t bytes, std::uint64_t offset) const;
  Sections read_header(FlightContents& contents);
  void read_slots(const Sections& sections, FlightContents& contents);
  void read_ledger(const Sections& sections, FlightContents& contents);
  template <class Row>
  void read_table(std::uint64_t offset, std::uint32_t capacity, std::uint32_t most, std::vector<Copied<Row>>& rows,
                  FlightContents& contents);
  void read_strings(const Sections& sections, std::uint64_t most, FlightContents& contents);
  void read_chunks(const Sections& sections, std::uint64_t most_records, FlightContents& contents);
  void read_chunk(const Sections& sections, std::uint32_t index, std::uint64_t most_records, FlightContents& contents);
  std::uint32_t next_with_data(const Sections& sections, std::uint32_t index) const;

  std::string path_;
  int fd_ = -1;
  std::uint64_t size_ = 0;  // at the last read()
};

}  // namespace gpuflight::flight
