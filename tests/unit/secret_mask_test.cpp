#include <gtest/gtest.h>

#include "recorder/secret_mask.h"

namespace gpuflight::recorder {
namespace {

using Args = std::vector<std::string>;

TEST(SecretMask, MasksValuesThatLookLikeSecrets) {
  const auto masked = [](Args args) { return mask_arguments(std::move(args), false).args; };
  EXPECT_EQ(masked({"p", "--api-key=abc"}), (Args{"p", "--api-key=***"}));
  EXPECT_EQ(masked({"p", "--hf_token", "abc", "x"}), (Args{"p", "--hf_token", "***", "x"}));
  EXPECT_EQ(masked({"p", "PASSWORD=abc"}), (Args{"p", "PASSWORD=***"}));
  EXPECT_EQ(masked({"p", "hf_abcdefghijklmnop"}), (Args{"p", "***"}));
  EXPECT_EQ(masked({"p", "--key=sk-0123456789abcdefg"}), (Args{"p", "--key=***"}));
  EXPECT_EQ(masked({"p", "http://me:pw@host/x"}), (Args{"p", "http://me:***@host/x"}));
}

TEST(SecretMask, LeavesOrdinaryArgumentsAlone) {
  const Args plain = {"p", "--max-tokens", "512", "--tokenizer=gpt2", "-n", "4", "http://host:80/a@b", "sk-short", "--secret"};
  const auto result = mask_arguments(plain, false);
  EXPECT_EQ(result.args, plain);
  EXPECT_FALSE(result.masked);
}

TEST(SecretMask, AnOptionFollowingASecretOptionIsNotItsValue) {
  EXPECT_EQ(mask_arguments({"p", "--token", "--verbose"}, false).args, (Args{"p", "--token", "--verbose"}));
}

TEST(SecretMask, AllMeansAllButTheProgram) {
  const auto result = mask_arguments({"p", "a", "b"}, true);
  EXPECT_EQ(result.args, (Args{"p", "***", "***"}));
  EXPECT_TRUE(result.masked);
}

}  // namespace
}  // namespace gpuflight::recorder
