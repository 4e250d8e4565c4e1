#include "sim/play/plan.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

namespace gpuflight::sim {
namespace {

using nlohmann::json;

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

// A misspelt key would silently play something else than was meant.
void only_keys(const json& j, std::initializer_list<std::string_view> allowed, const std::string& where) {
  for (const auto& item : j.items()) {
    if (item.key() == "comment") continue;
    if (std::find(allowed.begin(), allowed.end(), item.key()) == allowed.end()) {
      fail(where + ": unknown key \"" + item.key() + "\"");
    }
  }
}

Dim read_dim(const json& j, const char* key, Dim otherwise) {
  if (!j.contains(key)) return otherwise;
  const json& v = j.at(key);
  if (v.is_number()) return {v.get<unsigned>(), 1, 1};
  Dim out{1, 1, 1};
  for (std::size_t i = 0; i < std::min<std::size_t>(3, v.size()); ++i) out[i] = v.at(i).get<unsigned>();
  return out;
}

// As the driver reports it: what 64 K registers allow, in whole warps of four.
int threads_that_fit(int registers) {
  if (registers <= 0) return 1024;
  const int per_warp = (registers * 32 + 255) / 256 * 256;
  const int warps = 65536 / per_warp / 4 * 4;
  return std::min(1024, warps * 32);
}

std::string read_name(const json& j, const std::string& where) {
  if (j.contains("name_base64")) {
    auto name = base64_decode(j.at("name_base64").get<std::string>());
    if (!name) fail(where + ": name_base64 is not base64");
    return *name;
  }
  std::string name = j.at("name").get<std::string>();
  // {"name": "x", "name_length": 65536}: a long name without a long plan.
  if (j.contains("name_length")) {
    const std::string piece = name;
    const auto length = j.at("name_length").get<std::size_t>();
    while (name.size() < length) name += piece;
    name.resize(length);
  }
  return name;
}

PlanKernel read_kernel(const std::string& id, const json& j) {
  const std::string where = "kernel " + id;
  only_keys(j, {"name", "name_base64", "name_length", "registers", "static_shared_bytes", "local_bytes", "const_bytes",
                "max_threads", "barriers", "binary_version", "ptx_version", "required_cluster", "duration_us",
                "block_ns", "hang", "fault", "param_bytes"},
            where);
  PlanKernel kernel;
  kernel.id = id;
  KernelImage& k = kernel.image;
  k.name = read_name(j, where);
  k.registers = j.value("registers", 16);
  k.static_shared_bytes = j.value("static_shared_bytes", 0);
  k.local_bytes = j.value("local_bytes", 0);
  k.const_bytes = j.value("const_bytes", 0);
  k.max_threads = j.value("max_threads", threads_that_fit(k.registers));
  k.barriers = j.value("barriers", 1);
  k.binary_version = j.value("binary_version", 0);
  k.ptx_version = j.value("ptx_version", 0);
  const Dim cluster = read_dim(j, "required_cluster", {0, 0, 0});
  for (std::size_t i = 0; i < 3; ++i) k.required_cluster[i] = static_cast<int>(cluster[i]);
  k.duration_ns = static_cast<std::int64_t>(j.value("duration_us", 2.0) * 1000);
  if (j.value("hang", false)) k.duration_ns = kForeverNs;
  k.block_ns = j.value("block_ns", std::int64_t{0});
  k.fault = j.value("fault", 0);
  kernel.param_bytes = j.value("param_bytes", 0u);
  return kernel;
}

PlanModule read_module(const std::string& id, const json& j) {
  only_keys(j, {"file", "lazy", "source", "kernels"}, "module " + id);  // "source" is for make_kernels.py
  PlanModule module;
  module.id = id;
  module.file = j.value("file", id + ".cubin");
  module.lazy = j.value("lazy", false);
  for (const auto& item : j.at("kernels").items()) module.kernels.push_back(read_kernel(item.key(), item.value()));
  return module;
}

LaunchForm read_form(const std::string& name) {
  const auto found = std::find(kLaunchFormNames.begin(), kLaunchFormNames.end(), name);
  if (found == kLaunchFormNames.end()) fail("unknown launch form \"" + name + "\"");
  return static_cast<LaunchForm>(found - kLaunchFormNames.begin());
}

PlanLaunch read_launch(const json& j, const Plan& plan) {
  PlanLaunch launch;
  launch.kernel = j.at("kernel").get<std::string>();
  const auto found = std::find(plan.kernel_ids.begin(), plan.kernel_ids.end(), launch.kernel);
  if (found == plan.kernel_ids.end()) fail("launch of unknown kernel \"" + launch.kernel + "\"");
  launch.kernel_index = static_cast<std::size_t>(found - plan.kernel_ids.begin());
  launch.grid = read_dim(j, "grid", {1, 1, 1});
  launch.block = read_dim(j, "block", {1, 1, 1});
  launch.cluster = read_dim(j, "cluster", {0, 0, 0});
  launch.dynamic_shared = j.value("dynamic_shared", 0u);
  launch.carveout = j.value("carveout", -1);
  launch.cooperative = j.value("cooperative", false);
  launch.programmatic = j.value("programmatic", false);
  launch.per_thread = j.value("ptsz", false);
  launch.stream = j.value("stream", "");
  launch.form = read_form(j.value("form", "kernel"));
  const bool attributes = launch.cluster[0] != 0 || launch.carveout >= 0 || launch.programmatic;
  if (attributes && launch.form == LaunchForm::kKernel) launch.form = LaunchForm::kEx;
  if (attributes && launch.form != LaunchForm::kEx && launch.form != LaunchForm::kLibraryEx) {
    fail("cluster, carveout and programmatic need form \"ex\" or \"library_ex\"");
  }
  return launch;
}

struct OpName {
  std::string_view name;
  OpKind kind;
};
constexpr OpName kOpNames[] = {
    {"launch", OpKind::kLaunch},
    {"repeat", OpKind::kRepeat},
    {"mix", OpKind::kMix},
    {"delay", OpKind::kDelay},
    {"sync", OpKind::kSync},
    {"stream_create", OpKind::kStreamCreate},
    {"stream_destroy", OpKind::kStreamDestroy},
    {"capture_begin", OpKind::kCaptureBegin},
    {"capture_end", OpKind::kCaptureEnd},
    {"graph_build", OpKind::kGraphBuild},
    {"graph_instantiate", OpKind::kGraphInstantiate},
    {"graph_launch", OpKind::kGraphLaunch},
    {"graph_update", OpKind::kGraphUpdate},
    {"graph_destroy", OpKind::kGraphDestroy},
    {"module_load", OpKind::kModuleLoad},
    {"module_unload", OpKind::kModuleUnload},
    {"set_attribute", OpKind::kSetAttribute},
    {"alloc", OpKind::kAlloc},
    {"free", OpKind::kFree},
    {"copy", OpKind::kCopy},
    {"fill", OpKind::kFill},
    {"event_record", OpKind::kEventRecord},
    {"event_wait", OpKind::kEventWait},
    {"event_sync", OpKind::kEventSync},
    {"barrier", OpKind::kBarrier},
    {"end", OpKind::kEnd},
};

std::vector<PlanOp> read_ops(const json& list, const Plan& plan);

PlanOp read_op(const json& j, const Plan& plan) {
  const std::string name = j.at("op").get<std::string>();
  const auto* found =
      std::find_if(std::begin(kOpNames), std::end(kOpNames), [&](const OpName& o) { return o.name == name; });
  if (found == std::end(kOpNames)) fail("unknown op \"" + name + "\"");
  only_keys(j, {"op",     "times",  "expect",   "kernel",  "form",    "ptsz",      "grid",  "block",    "cluster",
                "dynamic_shared",   "carveout", "cooperative", "programmatic",     "stream", "name",    "graph",
                "exec",   "module", "event",    "mode",    "kind",    "attribute", "value", "us",       "bytes",
                "seed",   "priority", "non_blocking", "ops", "how"},
            "op " + name);
  PlanOp op;
  op.kind = found->kind;
  op.times = j.value("times", std::int64_t{1});
  op.expect = j.value("expect", 0);
  op.stream = j.value("stream", "");
  op.seed = j.value("seed", std::uint64_t{1});
  op.non_blocking = j.value("non_blocking", false);
  for (const char* key : {"name", "graph", "module", "event", "kernel"}) {
    if (op.name.empty()) op.name = j.value(key, "");
  }
  for (const char* key : {"exec", "mode", "kind", "attribute", "how"}) {
    if (op.other.empty()) op.other = j.value(key, "");
  }
  for (const char* key : {"value", "us", "bytes", "priority"}) {
    if (op.value == 0) op.value = j.value(key, std::int64_t{0});
  }
  if (op.kind == OpKind::kLaunch) op.launch = read_launch(j, plan);
  if (j.contains("ops")) op.ops = read_ops(j.at("ops"), plan);
  return op;
}

std::vector<PlanOp> read_ops(const json& list, const Plan& plan) {
  std::vector<PlanOp> ops;
  for (const json& j : list) ops.push_back(read_op(j, plan));
  return ops;
}

}  // namespace

std::size_t Plan::thread_count() const {
  std::int64_t count = 0;
  for (const PlanThread& t : threads) count += t.count;
  return static_cast<std::size_t>(count);
}

const PlanModule* Plan::find_module(const std::string& id) const {
  const auto found = std::find_if(modules.begin(), modules.end(), [&](const PlanModule& m) { return m.id == id; });
  return found != modules.end() ? &*found : nullptr;
}

Plan read_plan(const std::string& path) {
  std::ifstream in(path);
  if (!in) fail(path + ": cannot be read");
  try {
    const json j = json::parse(in);
    only_keys(j, {"device", "modules", "threads"}, "plan");
    Plan plan;
    for (const auto& item : j.at("modules").items()) plan.modules.push_back(read_module(item.key(), item.value()));
    for (const PlanModule& module : plan.modules) {
      for (const PlanKernel& kernel : module.kernels) plan.kernel_ids.push_back(kernel.id);
    }
    for (const json& t : j.at("threads")) {
      only_keys(t, {"count", "rate", "context", "ops"}, "thread");
      PlanThread thread;
      thread.count = t.value("count", std::int64_t{1});
      thread.rate = t.value("rate", 0.0);
      thread.own_context = t.value("context", "primary") == "own";
      thread.ops = read_ops(t.at("ops"), plan);
      plan.threads.push_back(std::move(thread));
    }
    return plan;
  } catch (const json::exception& e) {
    fail(path + ": " + e.what());
  } catch (const std::runtime_error& e) {
    fail(path + ": " + e.what());
  }
}

}  // namespace gpuflight::sim
