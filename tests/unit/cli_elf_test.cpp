#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <system_error>

#include "elf_image.h"
#include "run_environment.h"

namespace gpuflight::cli {
namespace {

namespace fs = std::filesystem;

struct Elf : ::testing::Test {
  fs::path folder = fs::temp_directory_path() / ("gpuflight_elf_" + std::to_string(getpid()));
  std::string library = (folder / "libgpuflight.so").string();  // any ELF of this machine will do
  Elf() {
    fs::create_directory(folder);
    fs::copy_file(CLI_DYNAMIC_PROGRAM, library);
  }
  ~Elf() override { fs::remove_all(folder); }
  std::string write(const std::string& name, const std::string& text, bool executable = true) {
    const fs::path path = folder / name;
    std::ofstream(path, std::ios::binary) << text;
    chmod(path.c_str(), executable ? 0755 : 0644);
    return path.string();
  }
  static std::string bytes_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

TEST_F(Elf, DynamicProgram) {
  const ElfImage image = inspect_elf(CLI_DYNAMIC_PROGRAM);
  EXPECT_TRUE(image.is_elf);
  EXPECT_EQ(image.bits, 64);
  EXPECT_TRUE(image.takes_preload());
  EXPECT_FALSE(image.asan);
  EXPECT_FALSE(image.musl());
  EXPECT_NE(std::find(image.needed.begin(), image.needed.end(), "libc.so.6"), image.needed.end());
}

TEST_F(Elf, StaticProgramTakesNoPreload) {
  const ElfImage image = inspect_elf(CLI_STATIC_PROGRAM);
  EXPECT_TRUE(image.is_elf);
  EXPECT_FALSE(image.takes_preload());
  const ElfImage pie = inspect_elf(CLI_STATIC_PIE_PROGRAM);
  EXPECT_TRUE(pie.is_elf);
  EXPECT_FALSE(pie.takes_preload());
}

#ifdef CLI_ASAN_PROGRAM
TEST_F(Elf, AddressSanitizerIsSeen) {
  EXPECT_TRUE(inspect_elf(CLI_ASAN_PROGRAM).asan);
  EXPECT_TRUE(inspect_elf(CLI_STATIC_ASAN_PROGRAM).asan);
  const RunEnvironment plan = plan_environment(library, inspect_program(CLI_ASAN_PROGRAM));
  EXPECT_FALSE(plan.preloads);
  EXPECT_FALSE(plan.set.contains("LD_PRELOAD"));
  EXPECT_EQ(plan.set.at("CUDA_INJECTION64_PATH"), library);
}
#endif

TEST_F(Elf, ScriptsAreTheirInterpreter) {
  const ProgramImage script = inspect_program(write("s", std::string("#!") + CLI_DYNAMIC_PROGRAM + " -x\nrest\n"));
  EXPECT_TRUE(script.script);
  EXPECT_EQ(script.path, CLI_DYNAMIC_PROGRAM);
  EXPECT_TRUE(script.elf.takes_preload());
  const ProgramImage loop = inspect_program(write("loop", "#! " + (folder / "loop").string() + "\n"));
  EXPECT_FALSE(loop.elf.is_elf);  // and it came back
}

TEST_F(Elf, NoElf) {
  EXPECT_FALSE(inspect_elf(write("text", "hello")).is_elf);
  EXPECT_FALSE(inspect_elf(write("empty", "")).is_elf);
  EXPECT_THROW(inspect_elf((folder / "missing").string()), std::system_error);
  EXPECT_FALSE(inspect_elf("/dev/zero").is_elf);
}

TEST_F(Elf, OtherMachineOfTheSameLoader) {
  std::string bytes = bytes_of(CLI_DYNAMIC_PROGRAM);
  bytes[18] = 0x15;  // EM_PPC64
  const ProgramImage foreign = inspect_program(write("ppc", bytes));
  const RunEnvironment plan = plan_environment(library, foreign);
  EXPECT_FALSE(plan.preloads);
  EXPECT_FALSE(plan.set.contains("LD_PRELOAD"));
}

// Bytes changed and files cut at random: never a crash, whatever it says.
TEST_F(Elf, DamagedFilesDoNoHarm) {
  const std::string whole = bytes_of(CLI_DYNAMIC_PROGRAM);
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    std::string bytes = whole.substr(0, round % 3 == 0 ? random() % whole.size() : whole.size());
    const std::size_t head = std::min<std::size_t>(bytes.size(), round % 2 == 0 ? 1024 : bytes.size());
    for (int i = 0; i < 20 && head > 4; ++i) bytes[4 + random() % (head - 4)] = static_cast<char>(random());
    inspect_elf(write("damaged", bytes));
  }
}

struct Environment : Elf {
  ~Environment() override {
    unsetenv("LD_PRELOAD");
    unsetenv("CUDA_INJECTION64_PATH");
  }
  RunEnvironment plan() const { return plan_environment(library, inspect_program(CLI_DYNAMIC_PROGRAM)); }
};

TEST_F(Environment, PreloadStandsBeforeOthers) {
  unsetenv("LD_PRELOAD");
  EXPECT_EQ(plan().set.at("LD_PRELOAD"), library);
  setenv("LD_PRELOAD", "/usr/lib/libjemalloc.so /y.so", 1);
  EXPECT_EQ(plan().set.at("LD_PRELOAD"), library + ":/usr/lib/libjemalloc.so /y.so");
  setenv("LD_PRELOAD", ("/a.so:" + library).c_str(), 1);
  EXPECT_EQ(plan().set.at("LD_PRELOAD"), "/a.so:" + library);
}

TEST_F(Environment, AnotherToolsInjectionStays) {
  setenv("CUDA_INJECTION64_PATH", "/opt/nsys/libToolsInjection64.so", 1);
  const RunEnvironment environment = plan();
  EXPECT_FALSE(environment.set.contains("CUDA_INJECTION64_PATH"));
  ASSERT_EQ(environment.remarks.size(), 1u);
  EXPECT_NE(environment.remarks[0].find("/opt/nsys/"), std::string::npos);
}

TEST_F(Environment, APathThatPreloadCannotHold) {
  fs::create_directory(folder / "a b");
  const std::string blank = (folder / "a b/libgpuflight.so").string();
  fs::copy_file(CLI_DYNAMIC_PROGRAM, blank);
  const RunEnvironment environment = plan_environment(blank, inspect_program(CLI_DYNAMIC_PROGRAM));
  EXPECT_FALSE(environment.set.contains("LD_PRELOAD"));
  EXPECT_EQ(environment.set.at("CUDA_INJECTION64_PATH"), blank);
  EXPECT_EQ(environment.remarks.size(), 1u);
}

TEST_F(Environment, MergedHasEachVariableOnce) {
  setenv("LD_PRELOAD", "/old.so", 1);
  int preloads = 0;
  for (const std::string& entry : plan().merged()) preloads += entry.starts_with("LD_PRELOAD=") ? 1 : 0;
  EXPECT_EQ(preloads, 1);
}

}  // namespace
}  // namespace gpuflight::cli
