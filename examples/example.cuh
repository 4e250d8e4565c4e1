// What the examples share: checked CUDA calls, times by CUDA events, random data, and a count of launches that the
// program keeps itself, so that a recorder's count can be held against it.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace example {

inline void check(cudaError_t error, const char* call, const char* file, int line) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s:%d: %s: %s (%s)\n", file, line, call, cudaGetErrorName(error), cudaGetErrorString(error));
  std::exit(1);
}
#define CUDA_CHECK(call) example::check((call), #call, __FILE__, __LINE__)

struct Options {
  bool quick = false;  // small sizes and few repeats: for tests
};

inline Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) {
      options.quick = true;
    } else {
      std::fprintf(stderr, "usage: %s [--quick]\n", argv[0]);
      std::exit(std::strcmp(argv[i], "--help") == 0 ? 0 : 2);
    }
  }
  return options;
}

inline cudaDeviceProp device_properties() {
  int device = 0;
  cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  return properties;
}

// By mangled name, as the recorder writes it.
class LaunchCount {
 public:
  template <class... Params>
  void add(void (*kernel)(Params...), long times = 1) {
    const char* name = nullptr;
    CUDA_CHECK(cudaFuncGetName(&name, reinterpret_cast<const void*>(kernel)));
    counts_[name] += times;
  }
  // One line: TITLE {"name": count, ...}
  void print(const char* title) const {
    std::printf("%s {", title);
    const char* separator = "";
    for (const auto& [name, count] : counts_) {
      std::printf("%s\"%s\": %ld", separator, name.c_str(), count);
      separator = ", ";
    }
    std::printf("}\n");
  }

 private:
  std::map<std::string, long> counts_;
};

inline LaunchCount& launches() {
  static LaunchCount count;
  return count;
}

// Right after each <<<>>>: the launch was accepted, and is counted.
template <class... Params>
void launched(void (*kernel)(Params...)) {
  CUDA_CHECK(cudaGetLastError());
  launches().add(kernel);
}

class Event {
 public:
  Event() { CUDA_CHECK(cudaEventCreate(&event_)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream = nullptr) { CUDA_CHECK(cudaEventRecord(event_, stream)); }
  cudaEvent_t get() const { return event_; }
  // Both must have been recorded; waits for `end`.
  static float ms_between(const Event& begin, const Event& end) {
    float ms = 0;
    CUDA_CHECK(cudaEventSynchronize(end.event_));
    CUDA_CHECK(cudaEventElapsedTime(&ms, begin.event_, end.event_));
    return ms;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// Mean GPU time of `work` in milliseconds; once more beforehand, to warm up.
template <class Work>
float mean_ms(int repeats, Work&& work, cudaStream_t stream = nullptr) {
  Event begin, end;
  work();
  begin.record(stream);
  for (int i = 0; i < repeats; ++i) work();
  end.record(stream);
  return Event::ms_between(begin, end) / static_cast<float>(repeats);
}

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : count_(count) { CUDA_CHECK(cudaMalloc(&data_, count * sizeof(T))); }
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(host.size()) { set(host); }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  T* get() const { return data_; }
  void set(const std::vector<T>& host) {
    CUDA_CHECK(cudaMemcpy(data_, host.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  void clear() { CUDA_CHECK(cudaMemset(data_, 0, count_ * sizeof(T))); }
  std::vector<T> to_host() const {
    std::vector<T> host(count_);
    CUDA_CHECK(cudaMemcpy(host.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

inline std::vector<float> random_floats(std::size_t count, unsigned seed = 1) {
  std::mt19937 generator(seed);
  std::vector<float> values(count);
  // 24 random bits: uniform in [0, 1), quicker than a distribution over tens of millions.
  for (float& value : values) value = static_cast<float>(generator() >> 8) * (1.0f / 16777216.0f);
  return values;
}

inline bool close(double got, double expected, double tolerance = 1e-4) {
  return std::abs(got - expected) <= tolerance * std::max(1.0, std::abs(expected));
}

// Did each `block_size` values of `in` add up to one of `sums`? Says where not.
inline bool check_sums(const char* what, const std::vector<float>& in, const std::vector<float>& sums,
                       std::size_t block_size) {
  for (std::size_t block = 0; block < sums.size(); ++block) {
    double expected = 0;
    const std::size_t last = std::min(in.size(), (block + 1) * block_size);
    for (std::size_t i = block * block_size; i < last; ++i) expected += in[i];
    if (!close(sums[block], expected)) {
      std::printf("%s: block %zu: %f, expected %f\n", what, block, static_cast<double>(sums[block]), expected);
      return false;
    }
  }
  return true;
}

template <class T>
bool check_equal(const char* what, const std::vector<T>& got, const std::vector<T>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (got[i] != expected[i]) {
      std::printf("%s: element %zu is wrong\n", what, i);
      return false;
    }
  }
  return true;
}

// The last lines of every example, and its exit code.
inline int finish(bool ok) {
  CUDA_CHECK(cudaDeviceSynchronize());
  std::printf("%s\n", ok ? "PASS" : "FAIL");
  launches().print("LAUNCHES");
  return ok ? 0 : 1;
}

inline double gb_per_s(double bytes, float ms) { return bytes / (static_cast<double>(ms) * 1e6); }

}  // namespace example
