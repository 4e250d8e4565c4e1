#include "log/sink.h"

#include <gtest/gtest.h>

#include <csignal>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <set>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "log/decoder.h"
#include "log_fixture.h"

namespace gpuflight::log {
namespace {

namespace fs = std::filesystem;
using namespace log_fixture;

class Prologue : public SegmentPrologue {
 public:
  void append_prologue(Buffer& out, std::uint32_t segment) noexcept override {
    append_session_start(out, session_start(), segment);
    append_device_info(out, device(), Seq(0, 2));
    append_stream_info(out, stream());
  }
};

class LogSinkTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "gpuflight_sink." + std::to_string(getpid()) + "." +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    options_.path = folder_ + "/logs/app.1234.ndjson";
    options_.compress = false;
  }
  void TearDown() override {
    sink_.close(0);
    fs::remove_all(folder_);
  }

  int open() { return sink_.open(options_, &prologue_); }

  // `count` kernel events with ascending counters in `seq`.
  std::string events(int count) {
    Buffer out;
    RenderedConfig config = render_config(naive_kernel(), naive_config(), ConfigId{7}, true, 48);
    KernelLaunch one = launch();
    for (int i = 0; i < count; ++i) {
      one.seq = Seq(3, next_++);
      one.launch_ns = static_cast<std::int64_t>(next_) * 1000;
      append_kernel_event(out, config, render_stream(stream()), {}, one);
    }
    return std::string(out.view());
  }
  WriteOutcome write(int count, std::int64_t newest_ns = 0) {
    return sink_.write(events(count), static_cast<std::uint64_t>(count), newest_ns);
  }

  struct Contents {
    std::set<std::uint64_t> counters;  // of the kernel events
    std::uint64_t doubles = 0;
    std::vector<std::uint32_t> segments;
    std::uint64_t troubles = 0;
    std::uint64_t torn = 0, invalid = 0;
  };
  Contents read(const std::string& path) {
    Contents contents;
    LogReader reader(path);
    EXPECT_EQ(reader.open(), 0) << path;
    LogEvent event;
    while (reader.next(event) == LogReader::Status::kEvent) {
      if (auto* kernel = std::get_if<KernelEventLine>(&event)) {
        contents.doubles += !contents.counters.insert(kernel->launch.seq.counter()).second;
      }
      if (auto* start = std::get_if<SessionStartLine>(&event)) contents.segments.push_back(start->segment);
    }
    contents.troubles = reader.stats().trouble_total();
    contents.torn = reader.stats()[Trouble::kTornLine].count;
    contents.invalid = reader.stats()[Trouble::kInvalidJson].count;
    return contents;
  }
  std::uint64_t bytes_on_disk() {
    std::uint64_t total = 0;
    for (const auto& file : fs::directory_iterator(folder_ + "/logs")) total += file.file_size();
    return total;
  }
  std::set<std::string> files() {
    std::set<std::string> names;
    for (const auto& file : fs::directory_iterator(folder_ + "/logs")) names.insert(file.path().filename().string());
    return names;
  }
  // The descriptor of the live file, found from outside.
  int live_descriptor() {
    struct stat file;
    if (stat(sink_.path().c_str(), &file) != 0) return -1;
    for (int fd = 3; fd < 1024; ++fd) {
      struct stat st;
      if (fstat(fd, &st) == 0 && st.st_dev == file.st_dev && st.st_ino == file.st_ino) return fd;
    }
    return -1;
  }

  std::string folder_;
  SinkOptions options_;
  Prologue prologue_;
  LogSink sink_;
  std::uint64_t next_ = 0;
};

TEST_F(LogSinkTest, FileIsPrivateWhateverTheUmask) {
  const mode_t before = umask(0777);
  const int error = open();
  umask(before);
  ASSERT_EQ(error, 0);
  struct stat st;
  ASSERT_EQ(stat(sink_.path().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0600u);
  ASSERT_EQ(stat((folder_ + "/logs").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0700u);
  const int fd = live_descriptor();
  EXPECT_GE(fd, 10);
  EXPECT_TRUE(fcntl(fd, F_GETFD) & FD_CLOEXEC);
  EXPECT_EQ(write(3).lines_written, 3u);
  const Contents contents = read(sink_.path());
  EXPECT_EQ(contents.counters.size(), 3u);
  EXPECT_EQ(contents.segments, std::vector<std::uint32_t>{1});
}

TEST_F(LogSinkTest, ExistingFilesAndPlantedSymlinksAreLeftAlone) {
  fs::create_directories(folder_ + "/logs");
  std::ofstream(folder_ + "/victim") << "precious";
  fs::create_symlink(folder_ + "/victim", options_.path);
  fs::create_symlink(folder_ + "/nowhere", folder_ + "/logs/app.1234.2.ndjson");
  std::ofstream(folder_ + "/logs/app.1234.3.0001.ndjson") << "of an older recording";
  ASSERT_EQ(open(), 0);
  EXPECT_EQ(sink_.path(), folder_ + "/logs/app.1234.4.ndjson");
  EXPECT_EQ(write(5).error, 0);
  EXPECT_EQ(fs::file_size(folder_ + "/victim"), 8u);
  EXPECT_FALSE(fs::exists(folder_ + "/nowhere"));
}

TEST_F(LogSinkTest, RotationKeepsTheLiveNameAndEverySegmentReadsAlone) {
  options_.segment_bytes = 20'000;
  ASSERT_EQ(open(), 0);
  for (int i = 0; i < 20; ++i) ASSERT_EQ(write(7).error, 0);
  EXPECT_EQ(sink_.path(), options_.path);
  const auto names = files();
  EXPECT_GE(names.size(), 5u);
  EXPECT_TRUE(names.count("app.1234.0001.ndjson"));
  for (const auto& name : names) {
    EXPECT_LE(fs::file_size(folder_ + "/logs/" + name), 20'000u);
    LogReader reader(std::vector<std::string>{folder_ + "/logs/" + name}, ReadOptions{});
    ASSERT_EQ(reader.open(), 0);
    LogEvent event;
    ASSERT_EQ(reader.next(event), LogReader::Status::kEvent);
    EXPECT_TRUE(std::holds_alternative<SessionStartLine>(event)) << name;
    ASSERT_EQ(reader.next(event), LogReader::Status::kEvent);
    EXPECT_TRUE(std::holds_alternative<DeviceInfoLine>(event)) << name;
  }
  const Contents all = read(options_.path);
  EXPECT_EQ(all.counters.size(), 140u);
  EXPECT_EQ(all.doubles, 0u);
  EXPECT_EQ(all.troubles, 0u);
  for (std::uint32_t i = 0; i < all.segments.size(); ++i) EXPECT_EQ(all.segments[i], i + 1);
}

TEST_F(LogSinkTest, BatchLargerThanSegmentsIsSplitAtLines) {
  options_.segment_bytes = 10'000;
  ASSERT_EQ(open(), 0);
  const WriteOutcome outcome = write(100);
  EXPECT_EQ(outcome.error, 0);
  EXPECT_EQ(outcome.lines_written, 100u);
  EXPECT_EQ(outcome.events_written, 100u);
  EXPECT_TRUE(outcome.rotated);
  EXPECT_EQ(read(options_.path).counters.size(), 100u);
}

TEST_F(LogSinkTest, BoundHoldsAndWhatWasDeletedIsCounted) {
  options_.max_bytes = 200'000;
  ASSERT_EQ(open(), 0);
  std::uint64_t gone = 0, written = 0;
  for (int i = 0; i < 100; ++i) {
    const WriteOutcome outcome = write(20);
    ASSERT_EQ(outcome.error, 0);
    written += outcome.events_written;
    gone += sink_.take_rotated_away();
    ASSERT_LE(bytes_on_disk(), 200'000u);
  }
  EXPECT_EQ(written, 2000u);
  EXPECT_GT(gone, 1000u);
  const Contents left = read(options_.path);
  EXPECT_EQ(left.counters.size() + gone, written);
  EXPECT_EQ(*left.counters.rbegin(), 1999u);
  EXPECT_EQ(left.counters.size(), 1999 - *left.counters.begin() + 1);  // the newest, without a gap
}

TEST_F(LogSinkTest, GoesOverToSummariesWhenYoungEventsDoNotFit) {
  options_.max_bytes = 200'000;
  options_.keep_ns = 1'000'000'000;
  ASSERT_EQ(open(), 0);
  std::int64_t now = 0;
  int batches = 0;
  while (!sink_.must_summarise(now) && batches < 1000) {
    ASSERT_EQ(write(10, now).error, 0);
    ++batches;
    now += 1'000'000;
  }
  EXPECT_GT(batches, 10);
  EXPECT_LT(batches, 20);
  EXPECT_EQ(sink_.take_rotated_away(), 0u);  // nothing young was deleted
  now += 2'000'000'000;
  EXPECT_FALSE(sink_.must_summarise(now));  // all of it is old by now
}

TEST_F(LogSinkTest, ClosedSegmentsAreCompressedInTheBackground) {
  options_.segment_bytes = 50'000;
  options_.compress = true;
  ASSERT_EQ(open(), 0);
  for (int i = 0; i < 40; ++i) ASSERT_EQ(write(10).error, 0);
  const auto plain = [&] {
    std::size_t count = 0;
    for (const auto& name : files()) count += name.ends_with(".ndjson") || name.ends_with(".part");
    return count;
  };
  for (int i = 0; i < 500 && plain() > 1; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(plain(), 1u);  // the live one
  std::size_t compressed = 0;
  for (const auto& name : files()) {
    if (!name.ends_with(".zst")) continue;
    ++compressed;
    struct stat st;
    ASSERT_EQ(stat((folder_ + "/logs/" + name).c_str(), &st), 0);
    EXPECT_LT(st.st_size, 25'000);
    EXPECT_EQ(st.st_mode & 07777, 0600u);
  }
  EXPECT_GE(compressed, 5u);
  const Contents all = read(options_.path);
  EXPECT_EQ(all.counters.size(), 400u);
  EXPECT_EQ(all.doubles, 0u);
  EXPECT_EQ(all.troubles, 0u);
}

TEST_F(LogSinkTest, BoundHoldsWhileCompressing) {
  options_.max_bytes = 400'000;
  options_.compress = true;
  ASSERT_EQ(open(), 0);
  std::uint64_t gone = 0;
  for (int i = 0; i < 300; ++i) {
    ASSERT_EQ(write(20).error, 0);
    gone += sink_.take_rotated_away();
    if (i % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::uint64_t total = 0;
    std::error_code vanished;
    for (const auto& file : fs::directory_iterator(folder_ + "/logs")) {
      const auto size = file.file_size(vanished);
      if (!vanished) total += size;
    }
    ASSERT_LE(total, 400'000u) << i;
  }
  sink_.close(1000);
  const Contents left = read(options_.path);
  EXPECT_EQ(left.counters.size() + gone, 6000u);
  EXPECT_EQ(left.troubles, 0u);
}

TEST_F(LogSinkTest, HostThatClosesAllDescriptorsGetsNoneOfOurLines) {
  ASSERT_EQ(open(), 0);
  ASSERT_EQ(write(2).error, 0);
  const int ours = live_descriptor();
  ASSERT_GE(ours, 0);
  // As a daemon does; then a file of its own gets the very number.
  std::vector<int> stolen;
  for (int fd = 100; fd < 1024; ++fd) ::close(fd);
  const std::string theirs = folder_ + "/theirs";
  const int fd = ::open(theirs.c_str(), O_RDWR | O_CREAT, 0600);
  for (int number = 100; number <= ours + 5; ++number) ASSERT_EQ(dup2(fd, number), number);
  const WriteOutcome outcome = write(2);
  EXPECT_EQ(outcome.error, 0);
  EXPECT_TRUE(outcome.reopened);
  EXPECT_FALSE(outcome.recreated);
  EXPECT_EQ(fs::file_size(theirs), 0u);
  for (int number = 100; number <= ours + 5; ++number) {
    struct stat a, b;
    ASSERT_EQ(fstat(number, &a), 0) << "we closed a descriptor of the host's";
    ASSERT_EQ(fstat(fd, &b), 0);
    EXPECT_EQ(a.st_ino, b.st_ino);
    ::close(number);
  }
  ::close(fd);
  EXPECT_EQ(write(1).error, 0);
  EXPECT_EQ(read(options_.path).counters.size(), 5u);
  EXPECT_EQ(sink_.take_rotated_away(), 0u);
}

TEST_F(LogSinkTest, ClosingLeavesTheHostsDescriptorsOpen) {
  ASSERT_EQ(open(), 0);
  const int ours = live_descriptor();
  ASSERT_GE(ours, 100);
  const int fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int number = 100; number <= ours + 5; ++number) ASSERT_EQ(dup2(fd, number), number);
  sink_.close(0);
  for (int number = 100; number <= ours + 5; ++number) {
    EXPECT_NE(fcntl(number, F_GETFD), -1) << number;
    ::close(number);
  }
  ::close(fd);
}

TEST_F(LogSinkTest, DeletedFileAndFolderAreMadeAnewAndCounted) {
  ASSERT_EQ(open(), 0);
  ASSERT_EQ(write(4).error, 0);
  fs::remove(options_.path);
  WriteOutcome outcome = write(3);
  EXPECT_EQ(outcome.error, 0);
  EXPECT_TRUE(outcome.recreated);
  EXPECT_EQ(sink_.take_rotated_away(), 4u);
  fs::remove_all(folder_ + "/logs");
  outcome = write(2);
  EXPECT_EQ(outcome.error, 0);
  EXPECT_TRUE(outcome.recreated);
  EXPECT_EQ(sink_.take_rotated_away(), 3u);
  const Contents contents = read(options_.path);
  EXPECT_EQ(contents.counters.size(), 2u);
  EXPECT_EQ(contents.segments, std::vector<std::uint32_t>{3});
}

TEST_F(LogSinkTest, HostThatChangesItsFolderDoesNotMoveTheLog) {
  fs::create_directories(folder_);
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  options_.path = "logs/app.%p.ndjson";
  options_.segment_bytes = 10'000;
  const int error = open();
  fs::current_path("/");
  ASSERT_EQ(error, 0);
  EXPECT_EQ(sink_.path(), fs::canonical(folder_).string() + "/logs/app.%p.ndjson");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(write(10).error, 0);
  fs::current_path(before);
  EXPECT_EQ(read(sink_.path()).counters.size(), 50u);
}

TEST_F(LogSinkTest, FileSizeLimitMeansSmallerSegments) {
  sigset_t block, old;
  sigemptyset(&block);
  sigaddset(&block, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &block, &old);
  rlimit before, limit;
  getrlimit(RLIMIT_FSIZE, &before);
  limit = before;
  limit.rlim_cur = 30'000;
  ASSERT_EQ(open(), 0);
  setrlimit(RLIMIT_FSIZE, &limit);
  std::uint64_t written = 0;
  int error = 0;
  for (int i = 0; i < 20; ++i) {
    const WriteOutcome outcome = write(10);
    if (outcome.error != 0) error = outcome.error;
    written += outcome.events_written;
  }
  // A limit below even the beginning of a segment: an error, and what was not written is said.
  limit.rlim_cur = 100;
  setrlimit(RLIMIT_FSIZE, &limit);
  const WriteOutcome refused = write(50);
  setrlimit(RLIMIT_FSIZE, &before);
  const WriteOutcome again = write(5);
  timespec now{0, 0};
  sigtimedwait(&block, nullptr, &now);  // takes the pending signal away
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  EXPECT_EQ(error, 0);
  EXPECT_EQ(written, 200u);
  EXPECT_EQ(refused.error, EFBIG);
  EXPECT_LT(refused.events_written, 50u);
  EXPECT_EQ(again.error, 0);
  EXPECT_EQ(again.events_written, 5u);
  const Contents contents = read(options_.path);
  EXPECT_EQ(contents.counters.size(), written + refused.events_written + 5);
  EXPECT_EQ(contents.troubles, 0u);
}

TEST_F(LogSinkTest, FullDiskLosesWholeLinesOnlyAndRecovers) {
  const std::string disk = folder_ + "/disk";
  fs::create_directories(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "cannot mount a small tmpfs here (needs root)";
  }
  options_.path = disk + "/app.1.ndjson";
  ASSERT_EQ(open(), 0);
  std::uint64_t written = 0, refused = 0;
  for (int i = 0; i < 20; ++i) {
    const WriteOutcome outcome = write(10);
    EXPECT_EQ(outcome.lines_written, outcome.events_written);
    written += outcome.events_written;
    refused += 10 - outcome.events_written;
    if (outcome.error != 0) {
      EXPECT_EQ(outcome.error, ENOSPC);
    }
  }
  EXPECT_GT(written, 30u);
  EXPECT_GT(refused, 100u);
  EXPECT_EQ(mount("tmpfs", disk.c_str(), "tmpfs", MS_REMOUNT, "size=1m"), 0);
  EXPECT_EQ(write(10).events_written, 10u);
  written += 10;
  const Contents contents = read(options_.path);
  EXPECT_EQ(contents.counters.size(), written);
  EXPECT_EQ(contents.troubles, 0u);
  sink_.close(0);
  umount2(disk.c_str(), MNT_DETACH);
}

// A part of a line that cannot be cut off must end before the next line begins.
TEST_F(LogSinkTest, NoLineGoesOnInATornOne) {
  ASSERT_EQ(open(), 0);
  // Somebody else appends: cutting the file would cut their bytes, so it is not done.
  sigset_t block, old;
  sigemptyset(&block);
  sigaddset(&block, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &block, &old);
  std::ofstream(options_.path, std::ios::app) << "{\"type\":\"stranger\"}\n";
  rlimit before, limit;
  getrlimit(RLIMIT_FSIZE, &before);
  limit = before;
  limit.rlim_cur = fs::file_size(options_.path) + 1'500;  // one line and a half
  setrlimit(RLIMIT_FSIZE, &limit);
  const WriteOutcome torn = write(3);
  setrlimit(RLIMIT_FSIZE, &before);
  const WriteOutcome after = write(2);
  timespec now{0, 0};
  sigtimedwait(&block, nullptr, &now);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  EXPECT_EQ(torn.error, 0);  // the rest is in the next segment
  EXPECT_EQ(torn.events_written, 3u);
  EXPECT_EQ(after.error, 0);
  const Contents contents = read(options_.path);
  EXPECT_EQ(contents.counters.size(), 5u);
  EXPECT_EQ(contents.torn + contents.invalid, 1u);
}

TEST_F(LogSinkTest, UnwritableFolderIsAnErrorNotACrash) {
  options_.path = "/proc/nowhere/app.ndjson";
  EXPECT_NE(open(), 0);
  EXPECT_FALSE(sink_.is_open());
  EXPECT_EQ(write(1).error, EBADF);
  options_.path = folder_ + "/";
  EXPECT_EQ(open(), EISDIR);
}

TEST_F(LogSinkTest, ForkedChildLetsTheParentsFilesAlone) {
  options_.compress = true;
  options_.segment_bytes = 20'000;
  ASSERT_EQ(open(), 0);
  for (int i = 0; i < 5; ++i) ASSERT_EQ(write(10).error, 0);
  const std::string parents = sink_.path();
  const pid_t child = fork();
  if (child == 0) {
    sink_.forget_after_fork();
    if (sink_.is_open() || write(1).error != EBADF) _exit(1);
    if (open() != 0 || sink_.path() == parents) _exit(2);
    if (write(3).error != 0) _exit(3);
    sink_.close(100);
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(write(10).error, 0);
  EXPECT_EQ(read(parents).counters.size(), 60u);
}

TEST_F(LogSinkTest, CloseDoesNotWaitForLongCompression) {
  options_.compress = true;
  options_.segment_bytes = 40 << 20;
  ASSERT_EQ(open(), 0);
  for (int i = 0; i < 50; ++i) ASSERT_EQ(write(1000).error, 0);  // about 50 MB: one segment closed
  const auto begin = std::chrono::steady_clock::now();
  sink_.close(0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(500));
  for (int i = 0; i < 100; ++i) {  // nothing half-made stays
    bool part = false;
    for (const auto& name : files()) part |= name.ends_with(".part");
    if (!part) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  for (const auto& name : files()) EXPECT_FALSE(name.ends_with(".part")) << name;
  EXPECT_EQ(read(options_.path).counters.size(), 50'000u);
}

}  // namespace
}  // namespace gpuflight::log
