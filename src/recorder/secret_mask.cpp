#include "recorder/secret_mask.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace gpuflight::recorder {
namespace {

// By ASCII, whatever the host's locale.
std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

bool names_a_secret(std::string_view option) {
  static constexpr std::array<std::string_view, 12> kWords = {"password", "passwd",   "secret",     "token",
                                                              "api-key",  "api_key",  "apikey",     "credential",
                                                              "private-key", "private_key", "access-key", "access_key"};
  // "--max-tokens 512" and "--tokenizer x" are no secrets.
  static constexpr std::array<std::string_view, 3> kHarmless = {"tokenizer", "tokens", "token_"};
  const std::string name = lower(option);
  const auto holds = [&](std::string_view word) { return name.find(word) != std::string::npos; };
  if (std::any_of(kHarmless.begin(), kHarmless.end(), holds)) return false;
  return std::any_of(kWords.begin(), kWords.end(), holds);
}

bool looks_like_a_secret(std::string_view value) {
  static constexpr std::array<std::string_view, 11> kPrefixes = {"sk-",   "ghp_",  "gho_",       "ghs_", "github_pat_", "hf_",
                                                                 "glpat-", "xoxb-", "xoxp-", "AKIA", "eyJ"};
  constexpr std::size_t kShortest = 16;
  return value.size() >= kShortest && std::any_of(kPrefixes.begin(), kPrefixes.end(),
                                                  [&](std::string_view prefix) { return value.starts_with(prefix); });
}

// scheme://user:password@host -> scheme://user:***@host
bool mask_url_password(std::string& text) {
  const auto scheme = text.find("://");
  if (scheme == std::string::npos) return false;
  const auto begin = scheme + 3;
  const auto end = text.find_first_of("/?#", begin);
  const auto at = text.rfind('@', end == std::string::npos ? text.size() : end);
  if (at == std::string::npos || at < begin) return false;
  const auto colon = text.find(':', begin);
  if (colon == std::string::npos || colon > at) return false;
  text.replace(colon + 1, at - colon - 1, kMasked);
  return true;
}

}  // namespace

MaskedArguments mask_arguments(std::vector<std::string> args, bool all) {
  MaskedArguments result;
  bool next_is_secret = false;
  for (std::size_t i = 0; i < args.size(); ++i) {
    std::string& arg = args[i];
    if (i > 0) {
      if (all) {
        arg = kMasked;
        result.masked = true;
      } else if (next_is_secret && !arg.starts_with("-")) {
        arg = kMasked;
        result.masked = true;
        next_is_secret = false;
      } else {
        const auto equals = arg.find('=');
        const std::string_view name = std::string_view(arg).substr(0, equals);
        next_is_secret = false;
        if (equals != std::string::npos &&
            (names_a_secret(name) || looks_like_a_secret(std::string_view(arg).substr(equals + 1)))) {
          arg = std::string(name) + "=" + kMasked;
          result.masked = true;
        } else if (arg.starts_with("-") && equals == std::string::npos && names_a_secret(arg)) {
          next_is_secret = true;
        } else if (looks_like_a_secret(arg)) {
          arg = kMasked;
          result.masked = true;
        } else if (mask_url_password(arg)) {
          result.masked = true;
        }
      }
    }
  }
  result.args = std::move(args);
  return result;
}

}  // namespace gpuflight::recorder
