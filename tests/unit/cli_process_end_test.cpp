// Whether it was the OOM killer: from the counters of control groups of both versions, and of the machine.
#include "process_end.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

namespace gpuflight::cli {
namespace {

namespace fs = std::filesystem;

class ProcessEnd : public ::testing::Test {
 protected:
  ProcessEnd() { put("proc/vmstat", "nr_free_pages 5\noom_kill 40\noom_kill_other 9\n"); }
  ~ProcessEnd() override { fs::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    fs::create_directories((fs::path(root_) / path).parent_path());
    std::ofstream(root_ + "/" + path) << text;
  }
  OomCounters counters() const { return OomCounters::in(root_); }

  const std::string root_ = (fs::temp_directory_path() / ("process_end." + std::to_string(::getpid()))).string();
};

TEST_F(ProcessEnd, Version2CountsOwnGroupWithWhatIsBelow) {
  put("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n");
  put("proc/self/cgroup", "0::/user.slice/job\n");
  put("sys/fs/cgroup/user.slice/job/memory.events", "low 0\nhigh 0\nmax 7\noom 3\noom_kill 2\noom_group_kill 1\n");
  const OomCounters found = counters();
  EXPECT_EQ(found.group, 2u);
  EXPECT_TRUE(found.with_descendants);
  EXPECT_EQ(found.machine, 40u);
}

TEST_F(ProcessEnd, Version2InAContainerThatSeesAPartOnly) {
  put("proc/self/mountinfo", "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n");
  put("proc/self/cgroup", "0::/docker/abc\n");
  put("sys/fs/cgroup/memory.events", "oom_kill 4\n");
  EXPECT_EQ(counters().group, 4u);
}

TEST_F(ProcessEnd, Version1) {
  put("proc/self/mountinfo",
      "30 23 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
      "31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
      "32 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  put("proc/self/cgroup", "4:memory:/job\n1:cpu:/\n0::/\n");
  put("sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 6\n");
  EXPECT_EQ(counters().group, 6u);
  EXPECT_FALSE(counters().with_descendants);
}

TEST_F(ProcessEnd, NothingToBeReadIsNotKnown) {
  fs::remove_all(root_);
  EXPECT_FALSE(counters().group);
  EXPECT_FALSE(counters().machine);
  put("proc/vmstat", "oom_kill x\n");
  put("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\nshort\n - \n");
  put("proc/self/cgroup", "0:\n::\n0::/gone\n");
  EXPECT_FALSE(counters().group);
  EXPECT_FALSE(counters().machine);
}

TEST_F(ProcessEnd, OnlyWhatIsKnownIsSaid) {
  const OomCounters before{1, true, 10}, own{2, true, 11}, others{1, true, 11}, none{1, true, 10};
  EXPECT_EQ(oom_killed(SIGKILL, before, own), true);
  EXPECT_EQ(oom_killed(SIGKILL, before, others), false) << "somebody else's";
  EXPECT_EQ(oom_killed(SIGKILL, before, none), false);
  EXPECT_EQ(oom_killed(SIGTERM, before, own), false) << "it knows one signal only";
  // Version 1 does not count what happens in groups below.
  EXPECT_EQ(oom_killed(SIGKILL, {1, false, 10}, {1, false, 11}), std::nullopt);
  EXPECT_EQ(oom_killed(SIGKILL, {1, false, 10}, {1, false, 10}), false);
  EXPECT_EQ(oom_killed(SIGKILL, {{}, false, 10}, {{}, false, 11}), std::nullopt);
  EXPECT_EQ(oom_killed(SIGKILL, {}, {}), std::nullopt);
}

TEST_F(ProcessEnd, WaitStatusInWords) {
  ChildResult result;
  result.pid = 17;
  result.wait_status = 3 << 8;
  event::ExitEvent end = describe_end(result, {}, {});
  EXPECT_EQ(end.exit_code, 3);
  EXPECT_FALSE(end.signal);
  EXPECT_EQ(end.oom_kill, false);
  result.wait_status = SIGSEGV | 0x80;
  end = describe_end(result, {}, {});
  EXPECT_EQ(end.signal, SIGSEGV);
  EXPECT_EQ(end.signal_name, "SIGSEGV");
  EXPECT_TRUE(end.core_dumped);
  EXPECT_FALSE(end.exit_code);
  EXPECT_EQ(end.signal_from, "");
  result.wait_status = SIGINT;
  sigaddset(&result.from_terminal, SIGINT);
  EXPECT_EQ(describe_end(result, {}, {}).signal_from, "terminal");
  sigaddset(&result.passed_on, SIGINT);
  EXPECT_EQ(describe_end(result, {}, {}).signal_from, "run");
  result.wait_status = SIGRTMIN + 3;
  EXPECT_EQ(describe_end(result, {}, {}).signal_name, "");
}

}  // namespace
}  // namespace gpuflight::cli
