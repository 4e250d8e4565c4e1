#include "config/option_docs.h"

#include "config/option_table.h"

namespace gpuflight::config {
namespace {

// '|' would end a table cell, '<' could start a tag.
std::string cell(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

std::string code(std::string_view text) { return text.empty() ? "" : "`" + cell(text) + "`"; }

std::string flag_text(const OptionRow& row) {
  if (row.type != OptionType::kBool) return code(std::string(row.flag) + " " + row.values);
  return code(row.flag) + ", " + code("--no-" + std::string(row.flag).substr(2));
}

std::string api_text(const OptionRow& row) {
  return code(row.api_field != nullptr ? std::string(row.api_field) : "set(\"" + std::string(row.key) + "\", ...)");
}

}  // namespace

std::string options_markdown() {
  std::string text =
      "# Options\n\n"
      "<!-- Made from the table in src/config/option_table.cpp. After a change there:\n"
      "     GPUFLIGHT_TEST_UPDATE_DOCS=1 build/release/tests/unit/config_test --gtest_filter='*Docs*' -->\n\n"
      "Each option is an environment variable, a flag of `gpuflight run`, and a field of `gpuflight::Options` or\n"
      "a name for its `set` and for `gpuflight_init` in C. The environment wins over the program. A value that cannot\n"
      "be understood, or a `GPUFLIGHT_` variable that is none of these, is reported in one line, in the log, with\n"
      "`--verbose` on stderr too, and by `gpuflight doctor`; the default is used and the program runs. An empty variable\n"
      "counts as unset.\n\n"
      "Sizes take the suffixes K, M, G and T (1024 each); times take ms, s, m and h; switches take on or off, yes or\n"
      "no, true or false, 1 or 0.\n";
  for (std::size_t group = 0; group < kOptionGroupCount; ++group) {
    text += "\n## " + std::string(group_title(static_cast<OptionGroup>(group))) + "\n\n";
    text += "| variable | `gpuflight run` | `gpuflight::Options` | default | meaning |\n";
    text += "| --- | --- | --- | --- | --- |\n";
    for (const OptionRow& row : option_table()) {
      if (static_cast<std::size_t>(row.group) != group) continue;
      text += "| " + code(row.variable) + " | " + flag_text(row) + " | " + api_text(row) + " | " +
              code(row.default_text) + " | " + cell(row.help) + " |\n";
    }
  }
  return text;
}

}  // namespace gpuflight::config
