// A fuzz target without libFuzzer, for every compiler: its corpus, each file of it cut at every byte (large ones at
// some), with every byte changed, with counts and offsets blown up, and with random changes of a fixed seed.
//
//   replay CORPUS [RANDOM_CHANGES_PER_FILE [PLACES_PER_FILE]]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "fuzz_target.h"

namespace {

using Bytes = std::vector<std::uint8_t>;

std::uint64_t g_runs = 0;

void run(const Bytes& bytes) {
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  ++g_runs;
}

void replay(const Bytes& seed, std::size_t random_changes, std::size_t places) {
  run(seed);
  const std::size_t step = seed.size() / places + 1;
  for (std::size_t size = 0; size < seed.size(); size += step) {
    run({seed.begin(), seed.begin() + static_cast<long>(size)});
  }
  std::mt19937_64 random(4711);
  for (std::size_t at = 0; at < seed.size(); at += step) {
    Bytes changed = seed;
    changed[at] ^= static_cast<std::uint8_t>(1u << (random() % 8));
    run(changed);
  }
  for (std::size_t at = 0; at + 4 <= seed.size(); at += 4 * step) {
    for (const std::uint32_t count : {0xFFFFFFFFu, 0x7FFFFFFFu, 0x01000000u}) {
      Bytes changed = seed;
      std::memcpy(changed.data() + at, &count, sizeof count);
      run(changed);
    }
  }
  for (std::size_t i = 0; i < random_changes; ++i) {
    Bytes changed = seed;
    for (std::uint64_t n = random() % 8 + 1; n > 0 && !changed.empty(); --n) {
      const std::size_t at = random() % changed.size();
      const std::size_t length = std::min<std::size_t>(random() % 16 + 1, changed.size() - at);
      const auto begin = changed.begin() + static_cast<long>(at);
      switch (random() % 4) {
        case 0: std::generate_n(begin, length, [&] { return static_cast<std::uint8_t>(random()); }); break;
        case 1: changed.erase(begin, begin + static_cast<long>(length)); break;
        case 2: changed.insert(begin, length, static_cast<std::uint8_t>(random())); break;
        default: {
          const Bytes piece(begin, begin + static_cast<long>(length));
          const std::size_t to = random() % (changed.size() - length + 1);
          std::copy(piece.begin(), piece.end(), changed.begin() + static_cast<long>(to));
        }
      }
    }
    run(changed);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const auto number = [&](int i, std::size_t otherwise) {
    return argc > i ? static_cast<std::size_t>(std::strtoull(argv[i], nullptr, 10)) : otherwise;
  };
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(in), {});
    replay({text.begin(), text.end()}, number(2, 2000), std::max<std::size_t>(1, number(3, 6000)));
  }
  std::printf("%zu files, %llu runs\n", files.size(), static_cast<unsigned long long>(g_runs));
  return files.empty() ? 1 : 0;
}
