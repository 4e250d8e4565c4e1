#include "sim/play/player.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "sim/play/thread_player.h"

namespace gpuflight::sim {
namespace {

using nlohmann::json;

bool is_valid_utf8(const std::string& text) {
  try {
    return !json(text).dump().empty();
  } catch (const json::exception&) {
    return false;
  }
}

bool uses_library(const std::vector<PlanOp>& ops) {
  for (const PlanOp& op : ops) {
    if (op.launch.form == LaunchForm::kLibrary || op.launch.form == LaunchForm::kLibraryEx) return true;
    if (op.other == "library" || uses_library(op.ops)) return true;
  }
  return false;
}

}  // namespace

std::string error_name(CUresult result) {
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  return name != nullptr ? name : "CUresult " + std::to_string(result);
}

void check(CUresult result, const std::string& what) {
  if (result != CUDA_SUCCESS) throw std::runtime_error(what + ": " + error_name(result));
}

Player::Player(PlayOptions options) : options_(std::move(options)), plan_(read_plan(options_.plan)) {}

void Player::start_driver() {
  check(cuInit(0), "cuInit");
  check(cuDeviceGet(&device_, options_.device), "cuDeviceGet");
  check(cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context_), "cuCtxSetCurrent");
  bool library = false;
  for (const PlanThread& t : plan_.threads) library |= uses_library(t.ops);
  kernels_.resize(plan_.kernel_ids.size());
  std::size_t index = 0;
  for (const PlanModule& module : plan_.modules) {
    if (module.lazy) {
      index += module.kernels.size();
      continue;
    }
    const std::string image = image_of(module);
    LoadedModule loaded;
    check(cuModuleLoadData(&loaded.module, image.data()), "cuModuleLoadData " + module.id);
    if (library) {
      check(cuLibraryLoadData(&loaded.library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
            "cuLibraryLoadData " + module.id);
    }
    for (const PlanKernel& kernel : module.kernels) {
      const char* name = kernel.image.name.c_str();
      KernelHandles& handles = kernels_[index++];
      check(cuModuleGetFunction(&handles.function, loaded.module, name), "cuModuleGetFunction " + kernel.id);
      if (library) check(cuLibraryGetKernel(&handles.kernel, loaded.library, name), "cuLibraryGetKernel " + kernel.id);
    }
    modules_[module.id] = loaded;
  }
}

// After an error that sticks these fail, and there is nothing else to do.
void Player::stop_driver() {
  for (const auto& [id, loaded] : modules_) {
    if (loaded.library != nullptr) cuLibraryUnload(loaded.library);
    cuModuleUnload(loaded.module);
  }
  cuDevicePrimaryCtxRelease(device_);
}

std::string Player::image_of(const PlanModule& module) const {
  if (options_.kernels.empty()) {
    ModuleImage image;
    for (const PlanKernel& kernel : module.kernels) image.kernels.push_back(kernel.image);
    return write_image(image);
  }
  const std::string path = options_.kernels + "/" + module.file;
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error(path + ": cannot be read");
  return std::string(std::istreambuf_iterator<char>(in), {});
}

void Player::map_counters(std::size_t threads) {
  if (options_.counters.empty()) {
    private_counters_ = std::vector<LiveCounters>(threads);
    live_ = private_counters_.data();
    return;
  }
  const std::size_t bytes = sizeof(LiveHeader) + threads * sizeof(LiveCounters);
  const int fd = open(options_.counters.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    throw std::runtime_error(options_.counters + ": " + std::strerror(errno));
  }
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED) throw std::runtime_error(options_.counters + ": " + std::strerror(errno));
  live_header_ = new (mapped) LiveHeader{};
  std::memcpy(live_header_->magic, "GFPLAY1", 8);
  live_header_->threads = threads;
  live_ = reinterpret_cast<LiveCounters*>(live_header_ + 1);
  for (std::size_t i = 0; i < threads; ++i) new (live_ + i) LiveCounters{};
}

bool Player::play() {
  const std::size_t count = plan_.thread_count();
  map_counters(count);
  start_driver();
  results_.resize(count);
  barrier_ = std::make_unique<std::barrier<>>(static_cast<std::ptrdiff_t>(count));
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  std::size_t index = 0;
  for (const PlanThread& plan : plan_.threads) {
    for (std::int64_t i = 0; i < plan.count; ++i, ++index) {
      threads.emplace_back([this, &plan, index] {
        try {
          ThreadPlayer(*this, plan, index).run();
        } catch (const std::exception& e) {
          results_[index].unexpected.push_back(e.what());
          barrier_->arrive_and_drop();
        }
        if (live_header_ != nullptr) live_header_->finished.fetch_add(1);
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  stop_driver();
  if (!options_.result.empty()) write_result(seconds.count());
  bool good = true;
  for (const ThreadResult& r : results_) {
    for (const std::string& what : r.unexpected) {
      std::fprintf(stderr, "gpuflight-play: %s\n", what.c_str());
      good = false;
    }
  }
  return good;
}

void Player::write_result(double seconds) const {
  json kernels = json::object();
  std::vector<const PlanKernel*> by_index;
  for (const PlanModule& module : plan_.modules) {
    for (const PlanKernel& kernel : module.kernels) by_index.push_back(&kernel);
  }
  LaunchTally all;
  std::uint64_t graph_launches = 0, graph_kernels = 0;
  json errors = json::object(), forms = json::object(), threads = json::array(), unexpected = json::array();
  const auto add = [](json& object, const std::string& key, std::uint64_t n) {
    object[key] = object.value(key, std::uint64_t{0}) + n;
  };
  for (const ThreadResult& r : results_) {
    std::uint64_t returned = 0;
    for (const auto& [key, tally] : r.launches) {
      const PlanKernel& kernel = *by_index[key.first];
      json& entry = kernels[kernel.id];
      if (is_valid_utf8(kernel.image.name)) entry["name"] = kernel.image.name;
      entry["name_base64"] = base64_encode(kernel.image.name);
      add(entry, "returned", tally.calls);
      add(entry, "ok", tally.ok);
      add(entry, "captured", tally.captured);
      add(forms, kLaunchFormNames[static_cast<std::size_t>(key.second)], tally.calls);
      all.calls += tally.calls;
      all.ok += tally.ok;
      all.captured += tally.captured;
      returned += tally.calls;
    }
    for (const auto& [index, n] : r.graph_kernels) {
      add(kernels[by_index[index]->id], "in_graphs", n);
      graph_kernels += n;
    }
    for (const auto& [code, n] : r.launch_errors) add(errors, std::to_string(code), n);
    graph_launches += r.graph_launches;
    threads.push_back({{"returned", returned}, {"graph_launches", r.graph_launches}});
    for (const std::string& what : r.unexpected) unexpected.push_back(what);
  }
  const json result = {{"seconds", seconds},
                       {"launches", {{"returned", all.calls}, {"ok", all.ok}, {"captured", all.captured}}},
                       {"graph_launches", graph_launches},
                       {"graph_kernels", graph_kernels},
                       {"kernels", kernels},
                       {"forms", forms},
                       {"threads", threads},
                       {"launch_errors", errors},
                       {"unexpected", unexpected}};
  std::ofstream out(options_.result);
  out << result.dump(1, ' ', false, json::error_handler_t::replace) << '\n';
  if (!out.flush()) throw std::runtime_error(options_.result + ": cannot be written");
}

}  // namespace gpuflight::sim
