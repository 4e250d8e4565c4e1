// Numbers as a person reads them, the same in every locale.
#pragma once

#include <cstdint>
#include <string>

namespace gpuflight::report {

std::string count_text(std::uint64_t value);          // 12,345
std::string duration_text(double ns);                 // 940 ns, 5.13 us, 71.2 ms, 2.05 s, 3 min 20 s
std::string bytes_text(std::uint64_t bytes);          // 512 B, 48 KiB, 1.5 GiB
std::string rate_text(double bytes_per_second);       // 25.6 GB/s
std::string percent_text(double ratio, int decimals); // 83.3%
std::string utc_text(std::int64_t unix_ns);           // 2026-01-31 12:00:00 UTC

}  // namespace gpuflight::report
