// What two sides of recordings come to: which logs are one recording, which kernels are the same, what fails.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "analysis/kernel_comparison.h"

namespace gpuflight::analysis {
namespace {

TEST(StableName, EachAnonymousNamespaceIsCalledTheSame) {
  const std::string one = "_ZN42_GLOBAL__N__0123abcd_6_foo_cu_456789ab_1234kernEv";
  const std::string other = "_ZN42_GLOBAL__N__9876fedc_6_foo_cu_ba987654_4324kernEv";
  ASSERT_EQ(one.substr(one.find("_GLOBAL") + 42), "4kernEv");
  EXPECT_EQ(stable_name(one), "_ZN12_GLOBAL__N_14kernEv");
  EXPECT_EQ(stable_name(one), stable_name(other));
  EXPECT_EQ(stable_name("_ZN3foo12_GLOBAL__N_13barEv"), "_ZN3foo12_GLOBAL__N_13barEv");
  EXPECT_EQ(stable_name("_Z6reducePf"), "_Z6reducePf");
}

TEST(StableName, HostileNamesStayAsTheyAre) {
  for (const char* name : {"", "_GLOBAL__N_", "99999999999999999999999_GLOBAL__N_x", "3_GLOBAL__N_abc", "11_GLOBAL__N_",
                           "_GLOBAL__N__GLOBAL__N_", "12_GLOBAL__N_"}) {
    const std::string stable = stable_name(name);
    if (std::string(name) == "11_GLOBAL__N_") {
      EXPECT_EQ(stable, "12_GLOBAL__N_1");
    } else {
      EXPECT_EQ(stable, name);
    }
  }
}

Recording recording(std::int64_t begin, std::int64_t end, const std::string& host = "node", bool ranked = false) {
  Recording r;
  r.paths = {std::to_string(begin)};
  r.host = host;
  r.ranked = ranked;
  r.begin_unix_ns = begin;
  r.end_unix_ns = end;
  return r;
}

TEST(JoinRuns, LogsThatOverlapAreOneRun) {
  EXPECT_EQ(join_runs({recording(0, 10), recording(10, 20), recording(20, 30)}).size(), 3u);
  EXPECT_EQ(join_runs({recording(0, 10), recording(5, 15), recording(20, 30)}).size(), 2u);
  // The third joins two that had nothing in common.
  const auto runs = join_runs({recording(0, 10), recording(20, 30), recording(5, 25), recording(40, 50)});
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].paths, (std::vector<std::string>{"0", "20", "5"}));
  EXPECT_EQ(*runs[0].end_unix_ns, 30);
  EXPECT_EQ(join_runs({recording(0, 10, "a"), recording(0, 10, "b")}).size(), 2u);
  EXPECT_EQ(join_runs({recording(0, 10, "a", true), recording(0, 10, "b", true)}).size(), 1u);
  Recording undated = recording(0, 10);
  undated.begin_unix_ns.reset();
  EXPECT_EQ(join_runs({undated, recording(0, 10)}).size(), 2u);
}

struct Made {
  std::uint32_t block = 256, dynamic = 0;
  std::int32_t regs = 32;
  std::int64_t ns = 50'000;
  std::string name = "_Z1fv";
};

LaunchGroup group(const Made& made) {
  LaunchGroup g;
  g.label = made.name;
  ConfigFacts facts;
  facts.num_regs = made.regs;
  facts.static_shared_bytes = 0;
  facts.occupancy = 1.0;
  facts.limiters = event::limiter_bit(event::Limiter::kWarps);
  facts.shape.block = {made.block, 1, 1};
  facts.shape.dyn_shared_bytes = made.dynamic;
  facts.shape_known = true;
  g.add_config(facts);
  g.add_launches(facts, 40);
  event::SketchBudget budget;
  for (int i = 0; i < 40; ++i) g.gpu.add(made.ns + i, budget);
  return g;
}

std::vector<Recording> side(const std::vector<Made>& kernels, int count = 3, std::int64_t first = 0) {
  std::vector<Recording> out;
  for (int i = 0; i < count; ++i) {
    out.push_back(recording(first + i * 1000, first + i * 1000 + 1));
    for (const Made& made : kernels) {
      out.back().kernels[{stable_name(made.name), true, {made.block, 1, 1}, {0, 0, 0}, made.dynamic}] = group(made);
      out.back().kernel_total_ns += made.ns * 40;
    }
  }
  return out;
}

const ComparedKernel& kernel_of(const Comparison& comparison, std::size_t i = 0) { return comparison.kernels.at(i); }

TEST(Compare, AChangedConfigurationIsAPairWhereItIsTheOnlyOne) {
  Comparison one = compare(side({{256, 0}}), side({{256, 1024}}), {});
  ASSERT_EQ(one.kernels.size(), 1u);
  EXPECT_EQ(kernel_of(one).verdict, TimeVerdict::kSame);
  ASSERT_EQ(kernel_of(one).changes.size(), 1u);
  EXPECT_EQ(kernel_of(one).changes[0].fact, Fact::kShared);
  EXPECT_TRUE(kernel_of(one).changes[0].worse);
  one = compare(side({{256}, {512}}), side({{256}, {1024}}), {});  // what is left is paired
  ASSERT_EQ(one.kernels.size(), 2u);
  EXPECT_EQ(kernel_of(one).before->key.block.x, 512u);
  EXPECT_EQ(kernel_of(one).after->key.block.x, 1024u);
  EXPECT_EQ(compare(side({{128}, {256}}), side({{512}, {1024}}), {}).kernels.size(), 4u);  // which is which, nobody knows
}

TEST(Compare, WhatFails) {
  const auto a = side({Made{}}), slow = side({{256, 0, 40, 60'000}}, 3, 500);
  CompareOptions options;
  EXPECT_EQ(compare(a, slow, options).outcome, Outcome::kFail);
  EXPECT_EQ(kernel_of(compare(a, slow, options)).failed_by, "slower");
  options.fail_on = fail_bit(FailOn::kRegisters) | fail_bit(FailOn::kSlower);
  EXPECT_EQ(kernel_of(compare(a, slow, options)).failed_by, "slower, registers");
  options.fail_on = fail_bit(FailOn::kOccupancy);
  EXPECT_EQ(compare(a, slow, options).outcome, Outcome::kPass);
  options.fail_on = fail_bit(FailOn::kTotal);
  EXPECT_EQ(compare(a, slow, options).outcome, Outcome::kFail);
  EXPECT_EQ(compare(slow, a, options).outcome, Outcome::kPass);
  options.fail_on = fail_bit(FailOn::kNone);
  EXPECT_EQ(compare(a, side({Made{}}, 1), options).outcome, Outcome::kPass);  // unsure, and nobody asked
  options.fail_on = fail_bit(FailOn::kSlower);
  EXPECT_EQ(compare(a, side({Made{}}, 1), options).outcome, Outcome::kUnsure);
}

TEST(Compare, WhatNeedsALookStandsFirst) {
  const auto a = side({{256, 0, 32, 50'000, "_Z4samev"}, {256, 0, 32, 50'000, "_Z4slowv"}, {256, 0, 32, 50'000, "_Z4gonev"}});
  const auto b = side({{256, 0, 32, 50'000, "_Z4samev"}, {256, 0, 32, 70'000, "_Z4slowv"}});
  const Comparison comparison = compare(a, b, {});
  ASSERT_EQ(comparison.kernels.size(), 3u);
  EXPECT_EQ(kernel_of(comparison, 0).name, "_Z4slowv");
  EXPECT_EQ(kernel_of(comparison, 1).name, "_Z4gonev");
  EXPECT_FALSE(kernel_of(comparison, 1).after);
  EXPECT_EQ(comparison.count(TimeVerdict::kSame), 1u);
  EXPECT_EQ(comparison.judged(), 2u);
}

TEST(Compare, AKernelThatSomeRecordingsLack) {
  auto b = side({Made{}});
  b[2].kernels.clear();
  const Comparison comparison = compare(side({Made{}}), b, {});
  EXPECT_EQ(kernel_of(comparison).reason, "fewer than three recordings");
  EXPECT_EQ(kernel_of(comparison).after->recordings, 2u);
  EXPECT_EQ(kernel_of(comparison).after->launches.min, 0u);
  EXPECT_TRUE(kernel_of(comparison).changes.empty());  // 0..40 and 40 overlap
}

TEST(Compare, UnknownDiffersFromNothing) {
  auto a = side({Made{}}), b = side({Made{}});
  a[0].machine[static_cast<std::size_t>(MachineFact::kDriver)] = {"CUDA 13.0"};
  EXPECT_FALSE(compare(a, b, {}).refused);
  b[0].machine[static_cast<std::size_t>(MachineFact::kDriver)] = {"CUDA 12.8"};
  EXPECT_TRUE(compare(a, b, {}).refused);
  CompareOptions forced;
  forced.force = true;
  EXPECT_EQ(kernel_of(compare(a, b, forced)).verdict, TimeVerdict::kSame);
  b[0].kernels.begin()->second.num_regs = {};
  EXPECT_TRUE(kernel_of(compare(a, b, {})).changes.empty());
}

}  // namespace
}  // namespace gpuflight::analysis
