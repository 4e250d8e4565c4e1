// What executable graphs run, through instantiation, updates and the table's bounds.
#include <gtest/gtest.h>

#include "capture/graph_table.h"

namespace gpuflight::capture {
namespace {

using event::ConfigId;
using event::NodeKind;

const void* handle(std::uintptr_t n) { return reinterpret_cast<const void*>(n); }

GraphKernelShape kernel(std::uint32_t config, std::uint32_t grid) { return {ConfigId{config}, {grid, 1, 1}}; }

event::GraphKernel row(std::uint32_t config, std::uint32_t grid, std::uint64_t count) {
  return {ConfigId{config}, {grid, 1, 1}, count};
}

// Kernel nodes with the handles `first`, `first` + 1 ...
GraphNodes nodes(std::uintptr_t first, const std::vector<GraphKernelShape>& kernels) {
  GraphNodes made;
  for (const GraphKernelShape& one : kernels) made.add_kernel(handle(first++), GraphNodes::kNone, one);
  return made;
}

class GraphTableTest : public testing::Test {
 protected:
  HotPage& page_ = *HotPage::create();
  NoticeBoard notices_;
  GraphTable table_{page_, &notices_};

  const event::GraphContents* at_launch(std::uintptr_t exec) {
    return table_.contents(table_.at_launch(handle(exec)).contents);
  }
  std::vector<event::GraphKernel> ran(std::uintptr_t exec) {
    const event::GraphContents* const contents = at_launch(exec);
    EXPECT_NE(contents, nullptr);
    return contents != nullptr ? contents->kernels : std::vector<event::GraphKernel>();
  }
  using Rows = std::vector<event::GraphKernel>;
};

TEST_F(GraphTableTest, EqualKernelsAreOneRowInOrder) {
  table_.on_instantiated(handle(1), nodes(10, {kernel(2, 5), kernel(1, 9), kernel(2, 5), kernel(1, 3), kernel(2, 5)}));
  EXPECT_EQ(ran(1), (Rows{row(1, 3, 1), row(1, 9, 1), row(2, 5, 3)}));
  EXPECT_EQ(at_launch(1)->kernel_nodes(), 5u);
}

TEST_F(GraphTableTest, EqualContentsAreOneWhateverTheGraph) {
  table_.on_instantiated(handle(1), nodes(10, {kernel(1, 3), kernel(2, 5)}));
  table_.on_instantiated(handle(2), nodes(20, {kernel(2, 5), kernel(1, 3)}));
  const GraphTable::Known first = table_.at_launch(handle(1)), second = table_.at_launch(handle(2));
  EXPECT_EQ(first.contents, second.contents);
  EXPECT_NE(first.id, second.id);
}

TEST_F(GraphTableTest, NotSeenInstantiatedIsNotKnown) {
  const GraphTable::Known known = table_.at_launch(handle(1));
  EXPECT_TRUE(known.id);
  EXPECT_FALSE(known.contents);
  table_.on_updated(handle(1), nodes(10, {kernel(1, 1)}));  // a node of it may have been disabled
  EXPECT_EQ(at_launch(1), nullptr);
}

TEST_F(GraphTableTest, AHandleUsedAgainIsAnotherGraph) {
  table_.on_instantiated(handle(1), nodes(10, {kernel(1, 1)}));
  const GraphTable::Known first = table_.at_launch(handle(1));
  const std::uint32_t generation = table_.generation();
  table_.on_graph_exec_destroyed(handle(1));
  EXPECT_NE(table_.generation(), generation);
  EXPECT_EQ(at_launch(1), nullptr);
  table_.on_instantiated(handle(1), nodes(10, {kernel(2, 1)}));
  EXPECT_NE(table_.at_launch(handle(1)).id, first.id);
  EXPECT_EQ(ran(1), (Rows{row(2, 1, 1)}));
}

TEST_F(GraphTableTest, SettingANodeChangesIt) {
  table_.on_instantiated(handle(1), nodes(10, {kernel(1, 1), kernel(1, 1)}));
  const auto before = table_.at_launch(handle(1)).contents;
  std::uint32_t generation = table_.generation();
  table_.on_kernel_set(handle(1), handle(11), kernel(1, 1));
  EXPECT_EQ(table_.generation(), generation);  // nothing has changed: no thread has to look again
  table_.on_kernel_set(handle(1), handle(11), kernel(3, 7));
  EXPECT_NE(table_.generation(), generation);
  EXPECT_EQ(ran(1), (Rows{row(1, 1, 1), row(3, 7, 1)}));
  table_.on_kernel_set(handle(1), handle(11), kernel(1, 1));
  EXPECT_EQ(table_.at_launch(handle(1)).contents, before);
  for (std::uint32_t i = 0; i < 10'000; ++i) table_.on_kernel_set(handle(1), handle(10 + i % 2), kernel(1 + i, 7));
  EXPECT_EQ(ran(1), (Rows{row(9'999, 7, 1), row(10'000, 7, 1)}));
}

TEST_F(GraphTableTest, AnUnknownNodeMakesItUnknown) {
  table_.on_instantiated(handle(1), nodes(10, {kernel(1, 1)}));
  table_.on_kernel_set(handle(1), handle(99), kernel(3, 7));
  EXPECT_EQ(at_launch(1), nullptr);
  table_.on_updated(handle(1), nodes(10, {kernel(2, 2)}));  // all of it is new
  EXPECT_EQ(ran(1), (Rows{row(2, 2, 1)}));
}

TEST_F(GraphTableTest, ANodeSwitchedOffDoesNotRun) {
  table_.on_instantiated(handle(1), nodes(10, {kernel(1, 1), kernel(2, 1)}));
  table_.on_enabled(handle(1), handle(10), false);
  EXPECT_EQ(ran(1), (Rows{row(2, 1, 1)}));
  EXPECT_EQ(at_launch(1)->disabled, 1u);
  EXPECT_EQ(at_launch(1)->kernel_nodes(), 1u);
  table_.on_kernel_set(handle(1), handle(10), kernel(4, 4));
  table_.on_enabled(handle(1), handle(10), true);
  EXPECT_EQ(ran(1), (Rows{row(2, 1, 1), row(4, 4, 1)}));
}

TEST_F(GraphTableTest, SwitchedOffUnseenNothingMakesItKnownAgain) {
  table_.on_instantiated(handle(1), nodes(10, {kernel(1, 1)}));
  table_.on_kernel_set(handle(1), handle(99), kernel(3, 7));
  table_.on_enabled(handle(1), handle(10), false);
  table_.on_updated(handle(1), nodes(10, {kernel(2, 2)}));
  EXPECT_EQ(at_launch(1), nullptr);
}

TEST_F(GraphTableTest, UpdatedFromItsOwnGraphNodesAreTheSame) {
  table_.on_instantiated(handle(1), nodes(10, {kernel(1, 1), kernel(2, 1)}));
  table_.on_enabled(handle(1), handle(10), false);
  table_.on_updated(handle(1), nodes(10, {kernel(5, 1), kernel(6, 1)}));
  EXPECT_EQ(ran(1), (Rows{row(6, 1, 1)}));
  table_.on_kernel_set(handle(1), handle(11), kernel(7, 1));
  EXPECT_EQ(ran(1), (Rows{row(7, 1, 1)}));
}

TEST_F(GraphTableTest, UpdatedFromAnotherGraphWhichNodeIsWhichIsNotCertain) {
  table_.on_instantiated(handle(1), nodes(10, {kernel(1, 1), kernel(2, 1)}));
  table_.on_updated(handle(1), nodes(20, {kernel(5, 1), kernel(6, 1)}));
  EXPECT_EQ(ran(1), (Rows{row(5, 1, 1), row(6, 1, 1)}));
  table_.on_updated(handle(1), nodes(10, {kernel(1, 1), kernel(2, 1)}));  // and certain again
  table_.on_kernel_set(handle(1), handle(11), kernel(7, 1));
  EXPECT_EQ(ran(1), (Rows{row(1, 1, 1), row(7, 1, 1)}));
  table_.on_updated(handle(1), nodes(20, {kernel(5, 1), kernel(6, 1)}));
  table_.on_kernel_set(handle(1), handle(11), kernel(7, 1));
  EXPECT_EQ(at_launch(1), nullptr);
}

TEST_F(GraphTableTest, ChildGraphs) {
  GraphNodes all;
  all.add_kernel(handle(10), GraphNodes::kNone, kernel(1, 1));
  const std::uint32_t child = all.add(handle(11), GraphNodes::kNone, NodeKind::kGraph);
  all.add_kernel(handle(12), child, kernel(2, 1));
  const std::uint32_t inner = all.add(handle(13), child, NodeKind::kGraph);
  all.add_kernel(handle(14), inner, kernel(3, 1));
  all.add_kernel(handle(15), GraphNodes::kNone, kernel(4, 1));
  table_.on_instantiated(handle(1), all);
  EXPECT_EQ(ran(1), (Rows{row(1, 1, 1), row(2, 1, 1), row(3, 1, 1), row(4, 1, 1)}));
  GraphNodes fresh;
  fresh.add_kernel(handle(30), GraphNodes::kNone, kernel(5, 1));
  const std::uint32_t within = fresh.add(handle(31), GraphNodes::kNone, NodeKind::kGraph);
  fresh.add_kernel(handle(32), within, kernel(6, 1));
  table_.on_child_updated(handle(1), handle(11), fresh);
  EXPECT_EQ(ran(1), (Rows{row(1, 1, 1), row(4, 1, 1), row(5, 1, 1), row(6, 1, 1)}));
  table_.on_kernel_set(handle(1), handle(15), kernel(8, 1));  // outside of it nothing has become uncertain
  EXPECT_EQ(ran(1), (Rows{row(1, 1, 1), row(5, 1, 1), row(6, 1, 1), row(8, 1, 1)}));
  table_.on_kernel_set(handle(1), handle(14), kernel(9, 1));
  EXPECT_EQ(at_launch(1), nullptr);
}

TEST_F(GraphTableTest, BoundsAreSaidOnce) {
  std::vector<GraphKernelShape> many;
  for (std::uint32_t i = 0; i <= GraphTable::kMostKernelRowsOfOne; ++i) many.push_back(kernel(1, 1 + i));
  table_.on_instantiated(handle(1), nodes(10, many));
  EXPECT_EQ(at_launch(1), nullptr);
  many.pop_back();
  table_.on_instantiated(handle(2), nodes(10, many));
  EXPECT_EQ(at_launch(2)->kernels.size(), GraphTable::kMostKernelRowsOfOne);
  const auto said = notices_.take();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].code, "graph_table_full");
}

TEST_F(GraphTableTest, NodesOfGraphsThatAreGoneTakeNoRoom) {
  const std::vector<GraphKernelShape> many(100'000, kernel(1, 1));
  for (std::uintptr_t i = 0; i < 30; ++i) {
    table_.on_instantiated(handle(1 + i), nodes(10, many));
    EXPECT_EQ(ran(1 + i), (Rows{row(1, 1, 100'000)})) << i;
    table_.on_graph_exec_destroyed(handle(1 + i));
  }
  EXPECT_TRUE(notices_.take().empty());
  for (std::uintptr_t i = 0; i < 11; ++i) table_.on_instantiated(handle(1 + i), nodes(10, many));
  EXPECT_EQ(at_launch(11), nullptr);
  EXPECT_EQ(notices_.take().size(), 1u);
}

}  // namespace
}  // namespace gpuflight::capture
