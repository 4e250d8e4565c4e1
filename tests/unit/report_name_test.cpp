#include "report/kernel_name.h"
#include "report/quantity.h"

#include <gtest/gtest.h>

namespace gpuflight::report {
namespace {

constexpr const char* kPyTorch =
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_";

TEST(KernelName, Demangles) {
  EXPECT_EQ(demangled("_Z18block_reduce_naivePKfPfi"), "block_reduce_naive(float const*, float*, int)");
  EXPECT_EQ(demangled("triton_poi_fused_add_0"), "triton_poi_fused_add_0");
  EXPECT_EQ(demangled("_Z"), "_Z");
  EXPECT_EQ(demangled("_ZNonsense"), "_ZNonsense");
  EXPECT_EQ(demangled(""), "");
}

TEST(KernelName, SignatureGoes) {
  const auto plain = [](const char* mangled) { return without_signature(demangled(mangled)); };
  EXPECT_EQ(plain("_Z18block_reduce_naivePKfPfi"), "block_reduce_naive");
  EXPECT_EQ(plain("_ZN12_GLOBAL__N_16kernelIfEEvPT_i"), "(anonymous namespace)::kernel<float>");
  EXPECT_EQ(plain("_ZN3fooplERKS_"), "foo::operator+");
  EXPECT_EQ(plain("_ZN3fooclEi"), "foo::operator()");
  EXPECT_EQ(plain("_ZN3foolsEi"), "foo::operator<<");
  EXPECT_EQ(without_signature("void k<(E)1>(int) [clone .cold]"), "k<(E)1>");
  EXPECT_EQ(without_signature("gemm"), "gemm");
}

TEST(KernelName, TemplatesAreFoldedFromTheInside) {
  const std::string name = without_signature(demangled(kPyTorch));
  EXPECT_EQ(shortened(name, 200), name);
  EXPECT_EQ(shortened(name, 90),
            "vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >");
  EXPECT_EQ(shortened(name, 80), "vectorized_elementwise_kernel<4, at::native::FillFunctor<...>, std::array<...> >");
  EXPECT_EQ(shortened(name, 50), "at::native::vectorized_elementwise_kernel<...>");
  EXPECT_EQ(shortened(name, 36), "vectorized_elementwise_kernel<...>");
  EXPECT_LE(shortened(name, 20).size(), 20u);
}

TEST(KernelName, NeverWiderThanAsked) {
  const std::string names[] = {kPyTorch, demangled(kPyTorch), std::string(7'000, 'x'), "a<b<c<d<e>>>>", "<<<>>>", ">>",
                               "operator<", "a->b", "k\xc3\xa4rnel_mit_umlaut_\xc3\xbc\xc3\xbc\xc3\xbc"};
  for (const std::string& name : names) {
    const std::string whole = printable(name);
    for (std::size_t width = 1; width < 60; ++width) {
      const std::string shown = shortened(whole, width);
      EXPECT_LE(display_width(shown), width) << name.substr(0, 50);
      EXPECT_EQ(printable(shown), shown);  // no character cut in two
    }
  }
}

TEST(KernelName, NothingReachesTheTerminalThatSteersIt) {
  EXPECT_EQ(printable("a\033[31mb\r\n"), "a?[31mb??");
  EXPECT_EQ(printable("\xff\xc3(\xe2\x82"), "?" "?(?" "?");
  EXPECT_EQ(printable("\xc2\x9b" "31m"), "?31m");
  EXPECT_EQ(printable("\xe2\x82\xac"), "\xe2\x82\xac");
  EXPECT_EQ(printable("\xed\xa0\x80"), "???");  // a surrogate
}

// 40 parameters that each double the one before: the demangled name would have 2^40 characters.
TEST(KernelName, ABombIsLeftMangled) {
  const auto sequence = [](int k) {
    std::string id;
    do {
      id.insert(id.begin(), "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[k % 36]);
      k /= 36;
    } while (k != 0);
    return id;
  };
  std::string bomb = "_Z1f1AIiiES_IS0_S0_E";
  for (int i = 1; i < 40; ++i) bomb += "S_IS" + sequence(i) + "_S" + sequence(i) + "_E";
  EXPECT_EQ(demangled(bomb), bomb);
  EXPECT_NE(demangled("_Z1f1AIiiES_IS0_S0_E"), "_Z1f1AIiiES_IS0_S0_E");
}

TEST(KernelName, AreRememberedWhole) {
  KernelNames names(20);
  EXPECT_EQ(names.of("_Z18block_reduce_naivePKfPfi"), "block_reduce_naive");
  EXPECT_EQ(&names.of("_Z18block_reduce_naivePKfPfi"), &names.of("_Z18block_reduce_naivePKfPfi"));
  KernelNames full(20, true);
  EXPECT_EQ(full.of("_Z18block_reduce_naivePKfPfi"), "block_reduce_naive(float const*, float*, int)");
}

TEST(Quantity, Texts) {
  EXPECT_EQ(count_text(0), "0");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(1234567), "1,234,567");
  EXPECT_EQ(duration_text(0), "0 ns");
  EXPECT_EQ(duration_text(999.7), "1.00 us");
  EXPECT_EQ(duration_text(5130), "5.13 us");
  EXPECT_EQ(duration_text(-5130), "-5.13 us");
  EXPECT_EQ(duration_text(71.2e6), "71.2 ms");
  EXPECT_EQ(duration_text(999.9e6), "1.00 s");
  EXPECT_EQ(duration_text(200e9), "3 min 20 s");
  EXPECT_EQ(duration_text(7200e9), "2 h 0 min");
  EXPECT_EQ(bytes_text(512), "512 B");
  EXPECT_EQ(bytes_text(48 << 10), "48 KiB");
  EXPECT_EQ(bytes_text(3ull << 29), "1.50 GiB");
  EXPECT_EQ(percent_text(0.833333, 1), "83.3%");
  EXPECT_EQ(utc_text(1'767'225'600'000'000'000), "2026-01-01 00:00:00 UTC");
}

}  // namespace
}  // namespace gpuflight::report
