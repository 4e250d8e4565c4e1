// The table of options: every row can be set in every way, says clearly what it refuses, and stands in the docs.
#include <gtest/gtest.h>

#include <clocale>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "config/option_docs.h"
#include "config/option_table.h"
#include "config/parse_value.h"
#include "config/path_pattern.h"
#include "config/program_filter.h"
#include "gpuflight/gpuflight.hpp"

namespace gpuflight::config {
namespace {

// Two values that a row takes, both other than its default.
std::pair<std::string, std::string> sample_values(const OptionRow& row) {
  switch (row.type) {
    case OptionType::kBool: return row.default_text == std::string("on") ? std::pair{"off", "0"} : std::pair{"on", "1"};
    case OptionType::kCount: return {std::to_string(row.min + 1), std::to_string(row.min + 2)};
    case OptionType::kBytes: return {"3M", "7340032"};
    case OptionType::kDuration: return {"170ms", "171ms"};
    case OptionType::kEnum: {  // the last of them is never the default
      const std::string values = row.values;
      const std::string last = values.substr(values.rfind('|') + 1);
      return {last, last};
    }
    case OptionType::kString:
      if (row.key == std::string("timing")) return {"sample:7", "off"};
      if (row.key == std::string("budget")) return {"0.5%", "2"};
      if (row.key == std::string("event_times")) return {"1000", "1"};
      return {"some/thing", "other"};
  }
  return {};
}

struct Environment {
  std::vector<std::string> entries;
  std::vector<const char*> pointers;

  explicit Environment(std::vector<std::string> e) : entries(std::move(e)) {
    for (const std::string& entry : entries) pointers.push_back(entry.c_str());
    pointers.push_back(nullptr);
  }
};

Problems parse(std::vector<std::string> entries, Options& options) {
  const Environment environment(std::move(entries));
  Problems problems;
  parse_environment(environment.pointers.data(), options, problems);
  return problems;
}

TEST(OptionTable, NamesAreUniqueAndFollowTheirPattern) {
  std::set<std::string> names;
  for (const OptionRow& row : option_table()) {
    std::string key = row.key, variable = "GPUFLIGHT_", flag = "--";
    for (char c : key) {
      variable += static_cast<char>(std::toupper(c));
      flag += c == '_' ? '-' : c;
    }
    EXPECT_EQ(row.variable, variable);
    EXPECT_EQ(row.flag, flag);
    std::set<std::string> own{row.key, row.variable, row.flag};
    if (row.api_field != nullptr) own.insert(row.api_field);
    for (const std::string& name : own) EXPECT_TRUE(names.insert(name).second) << name << " stands twice";
    EXPECT_GT(std::string(row.help).size(), 10u) << row.key;
    EXPECT_EQ(std::string(row.help).find('\n'), std::string::npos) << row.key;
  }
}

TEST(OptionTable, DefaultTextIsTheStructsDefault) {
  for (const OptionRow& row : option_table()) {
    EXPECT_EQ(option_text(Options{}, row), row.default_text) << row.key;
    if (row.default_text[0] == 0) continue;
    Options options;
    const SetResult result = set_option(options, row.key, row.default_text);
    EXPECT_TRUE(result.ok) << result.message;
    EXPECT_EQ(option_text(options, row), row.default_text) << row.key;
  }
}

TEST(OptionTable, EveryRowIsSetByVariableFlagKeyAndApiField) {
  for (const OptionRow& row : option_table()) {
    const auto [one, two] = sample_values(row);
    Options by_variable;
    const Problems problems = parse({std::string(row.variable) + "=" + one}, by_variable);
    EXPECT_TRUE(problems.lines.empty()) << problems.lines.front();
    EXPECT_NE(option_text(by_variable, row), row.default_text) << row.key;
    for (const char* name : {row.flag, row.key, row.api_field}) {
      if (name == nullptr) continue;
      Options options;
      const SetResult result = set_option(options, name, one);
      EXPECT_TRUE(result.ok) << result.message;
      EXPECT_EQ(option_text(options, row), option_text(by_variable, row)) << name;
    }
    // Nothing else moved, and what option_text gives can be read back.
    for (const OptionRow& other : option_table()) {
      if (&other != &row) {
        EXPECT_EQ(option_text(by_variable, other), other.default_text) << row.key << ' ' << other.key;
      }
    }
    Options second;
    EXPECT_TRUE(set_option(second, row.key, two).ok);
    Options back;
    EXPECT_TRUE(set_option(back, row.key, option_text(second, row)).ok) << row.key;
    EXPECT_EQ(option_text(back, row), option_text(second, row));
  }
}

// What the C++ API hands over for each of its fields and for set() is what the table takes.
TEST(OptionTable, ApiFieldsReachTheirRows) {
  gpuflight::Options given;
  given.enableKernelDetails = false;
  given.logPath = "l";
  given.flightPath = "f";
  given.mode = "blackbox";
  given.cuptiPath = "c";
  given.set("log_max", "3M");
  Options options;
  std::set<std::string> keys;
  for (const auto& [name, value] : given.toList()) {
    const SetResult result = set_option(options, name, value);
    EXPECT_TRUE(result.ok) << result.message;
    keys.insert(find_option(name)->key);
  }
  EXPECT_FALSE(options.details);
  EXPECT_EQ(options.log, "l");
  EXPECT_EQ(options.flight, "f");
  EXPECT_EQ(options.mode, Mode::kBlackbox);
  EXPECT_EQ(options.cupti, "c");
  EXPECT_EQ(options.log_max_bytes, 3u << 20);
  for (const OptionRow& row : option_table()) EXPECT_TRUE(row.api_field == nullptr || keys.count(row.key)) << row.key;
}

TEST(OptionTable, MalformedValueIsOneClearLineAndTheDefaultStands) {
  Options options;
  const Problems problems = parse({"GPUFLIGHT_LOG_MAX=12Q", "GPUFLIGHT_FLUSH_MS=900", "GPUFLIGHT_MODE=blackbx",
                                   "GPUFLIGHT_DETAILS=perhaps", "GPUFLIGHT_KERNELS_MAX=-1", "GPUFLIGHT_FLIGHT=off",
                                   "GPUFLIGHT_HANG_AFTER=1001h",
                                   "PATH=/bin", "GPUFLIGHT_LOG_KEEP="},
                                  options);
  ASSERT_EQ(problems.lines.size(), 7u);
  EXPECT_EQ(problems.lines[0],
            "GPUFLIGHT_LOG_MAX=\"12Q\": expected a size such as 4096, 64M or 2G, at least 1M, or 0; the default is "
            "used: 2G");
  EXPECT_EQ(problems.lines[1],
            "GPUFLIGHT_FLUSH_MS=\"900\": expected a time such as 50ms, 2s or 1m from 1ms to 200ms; the default is "
            "used: 50ms");
  EXPECT_EQ(problems.lines[2],
            "GPUFLIGHT_MODE=\"blackbx\": expected one of stream, blackbox; the default is used: stream");
  EXPECT_EQ(problems.lines[3], "GPUFLIGHT_DETAILS=\"perhaps\": expected on or off; the default is used: on");
  EXPECT_EQ(problems.lines[4],
            "GPUFLIGHT_KERNELS_MAX=\"-1\": expected a whole number from 16 to 16777216; the default is used: 16384");
  EXPECT_EQ(problems.lines[5],
            "GPUFLIGHT_FLIGHT=\"off\": expected a PATTERN|memory; the default is used: none");
  EXPECT_EQ(problems.lines[6],
            "GPUFLIGHT_HANG_AFTER=\"1001h\": expected a time such as 50ms, 2s or 1m from 100ms to 1000h, or 0; the "
            "default is used: 30s");
  for (const OptionRow& row : option_table()) EXPECT_EQ(option_text(options, row), row.default_text);
}

TEST(OptionTable, UnknownNameGetsASuggestion) {
  Options options;
  const Problems problems = parse({"GPUFLIGHT_LOGMAX=1G", "GPUFLIGHT_MDOE=stream", "GPUFLIGHT_SOMETHING_ELSE=1",
                                   "GPUFLIGHT_SIM_PLAN=x", "GPUFLIGHT_TEST_Y=1", "GPUFLIGHT_X_RUN=1",
                                   "GPUFLIGHT_RUN_Y=1", "GPUFLIGHT_LIB=/x"},
                                  options);
  ASSERT_EQ(problems.lines.size(), 3u);
  EXPECT_EQ(problems.lines[0],
            "GPUFLIGHT_LOGMAX is not an option of gpuflight and is ignored; did you mean GPUFLIGHT_LOG_MAX?");
  EXPECT_EQ(problems.lines[1],
            "GPUFLIGHT_MDOE is not an option of gpuflight and is ignored; did you mean GPUFLIGHT_MODE?");
  EXPECT_EQ(problems.lines[2], "GPUFLIGHT_SOMETHING_ELSE is not an option of gpuflight and is ignored");
  EXPECT_EQ(set_option(options, "--log-mx", "1G").message, "--log-mx is not an option; did you mean --log-max?");
  EXPECT_EQ(set_option(options, "exlude", "x").message, "exlude is not an option; did you mean exclude?");
}

TEST(OptionTable, ProblemsAreBoundedAndPrintable) {
  std::vector<std::string> entries;
  for (int i = 0; i < 100; ++i) entries.push_back("GPUFLIGHT_NO_SUCH_" + std::to_string(i) + "=1");
  Options options;
  Problems problems = parse(std::move(entries), options);
  EXPECT_EQ(problems.lines.size(), Problems::kMaxLines);
  EXPECT_EQ(problems.omitted, 100 - Problems::kMaxLines);

  problems = parse({"GPUFLIGHT_MODE=a\n\x1b[31m\"" + std::string(5000, 'x')}, options);
  ASSERT_EQ(problems.lines.size(), 1u);
  EXPECT_LT(problems.lines[0].size(), 300u);
  EXPECT_EQ(problems.lines[0].find_first_of("\n\x1b"), std::string::npos);
}

TEST(OptionTable, ParseEnvironmentTakesNoEnvironment) {
  Options options;
  Problems problems;
  parse_environment(nullptr, options, problems);
  EXPECT_TRUE(problems.lines.empty());
}

TEST(ParseValue, Bytes) {
  EXPECT_EQ(parse_bytes("4096"), 4096u);
  EXPECT_EQ(parse_bytes("64K"), 65536u);
  EXPECT_EQ(parse_bytes("64kib"), 65536u);
  EXPECT_EQ(parse_bytes("3m"), 3u << 20);
  EXPECT_EQ(parse_bytes("2G"), std::uint64_t{2} << 30);
  EXPECT_EQ(parse_bytes("1T"), std::uint64_t{1} << 40);
  for (const char* bad : {"", "K", "-1", "+1", " 1", "1 M", "1.5G", "1,5G", "12Q", "0x10", "99999999999999999999",
                          "99999999999T"}) {
    EXPECT_FALSE(parse_bytes(bad)) << bad;
  }
}

TEST(ParseValue, Duration) {
  EXPECT_EQ(parse_duration_ms("50ms", 1), 50u);
  EXPECT_EQ(parse_duration_ms("50", 1), 50u);
  EXPECT_EQ(parse_duration_ms("60", 1000), 60'000u);
  EXPECT_EQ(parse_duration_ms("2s", 1), 2000u);
  EXPECT_EQ(parse_duration_ms("1m", 1), 60'000u);
  EXPECT_EQ(parse_duration_ms("1h", 1), 3'600'000u);
  for (const char* bad : {"", "s", "1us", "-5ms", "1.5s", "99999999999999999999", "18446744073709551615h"}) {
    EXPECT_FALSE(parse_duration_ms(bad, 1)) << bad;
  }
}

TEST(ParseValue, BoolAndCountAndFloat) {
  for (const char* yes : {"1", "true", "YES", "On"}) EXPECT_EQ(parse_bool(yes), true) << yes;
  for (const char* no : {"0", "false", "No", "OFF"}) EXPECT_EQ(parse_bool(no), false) << no;
  for (const char* bad : {"", "2", "y", "truee"}) EXPECT_FALSE(parse_bool(bad)) << bad;
  EXPECT_EQ(parse_count("18446744073709551615"), UINT64_MAX);
  EXPECT_FALSE(parse_count("18446744073709551616"));
  EXPECT_FALSE(parse_count("1e3"));
  EXPECT_EQ(parse_float("0.5"), 0.5);
  EXPECT_EQ(parse_float("5e6"), 5e6);
  for (const char* bad : {"", "0,5", "nan", "inf", "1x", "1e999"}) EXPECT_FALSE(parse_float(bad)) << bad;
}

TEST(ParseValue, SameUnderALocaleWithDecimalComma) {
  const std::string before = std::setlocale(LC_ALL, nullptr);
  if (std::setlocale(LC_ALL, "de_DE.UTF-8") == nullptr) {
    GTEST_SKIP() << "locale de_DE.UTF-8 is not there; tools/setup.sh makes it, LOCPATH=.deps/locale finds it";
  }
  ASSERT_STREQ(std::localeconv()->decimal_point, ",");
  EXPECT_EQ(parse_float("0.5"), 0.5);
  EXPECT_FALSE(parse_float("0,5"));
  Options options;
  ASSERT_TRUE(set_option(options, "kernels_max", "1234567").ok);
  EXPECT_EQ(option_text(options, *find_option("kernels_max")), "1234567");
  ASSERT_TRUE(set_option(options, "log_max", "1234567M").ok);
  EXPECT_EQ(option_text(options, *find_option("log_max")), "1234567M");
  std::setlocale(LC_ALL, before.c_str());
}

const char* variable(const char* name) {
  if (name == std::string("JOB")) return "night";
  if (name == std::string("EVIL")) return "../../etc/\npasswd";
  if (name == std::string("DOTS")) return "..";
  if (name == std::string("SLURM_PROCID")) return "7";
  if (name == std::string("RANK")) return "";
  return nullptr;
}

const PatternFields kFields{.pid = 42, .host = "node1", .program = "train", .rank = "3", .variable = variable};

TEST(PathPattern, FillsIn) {
  EXPECT_EQ(expand("gpuflight/%e.%p.ndjson", kFields).path, "gpuflight/train.42.ndjson");
  EXPECT_EQ(expand("/tmp/%h/%r/%q{JOB}-100%%", kFields).path, "/tmp/node1/3/night-100%");
  EXPECT_EQ(expand("%r.%q{NOT_SET}", PatternFields{}).path, "none.none");
  EXPECT_EQ(expand("plain", kFields).path, "plain");
}

TEST(PathPattern, ValuesCannotLeaveTheDirectory) {
  EXPECT_EQ(expand("logs/%q{EVIL}/x", kFields).path, "logs/_._.._etc__passwd/x");
  EXPECT_EQ(expand("logs/%q{DOTS}/x", kFields).path, "logs/_./x");
  EXPECT_EQ(expand("logs/%q{DOTS}%q{DOTS}/x", kFields).path, "logs/_._./x");
  PatternFields fields = kFields;
  const std::string long_name(1000, 'n');
  fields.program = long_name;
  EXPECT_EQ(expand("%e", fields).path.size(), 128u);
}

TEST(PathPattern, ReportsWhatItDoesNotKnow) {
  EXPECT_EQ(expand("a%z.b", kFields).error,
            "path pattern \"a%z.b\": \"%z\" is not known; there are %p %h %e %r %q{VARIABLE} and %%");
  EXPECT_EQ(expand("a%q.b", kFields).error, "path pattern \"a%q.b\": \"%q\" needs {VARIABLE}");
  for (const char* bad : {"%", "a%", "%q{", "%q{}", "%q{JOB", "%P", "", "dir/"}) {
    const ExpandResult result = expand(bad, kFields);
    EXPECT_FALSE(result.error.empty()) << bad;
    EXPECT_TRUE(result.path.empty()) << bad;
  }
  EXPECT_FALSE(expand(std::string(300, 'a'), kFields).error.empty());
  EXPECT_TRUE(expand(std::string(255, 'a') + "/" + std::string(255, 'b'), kFields).error.empty());
  std::string deep;
  while (deep.size() < 5000) deep += "abc/";
  EXPECT_FALSE(expand(deep + "x", kFields).error.empty());
  EXPECT_FALSE(expand(std::string_view("a\0b", 3), kFields).error.empty());
}

TEST(PathPattern, RankAndFlightBesideTheLog) {
  EXPECT_EQ(rank_of(variable), "7");
  EXPECT_EQ(rank_of(nullptr), "");
  EXPECT_EQ(flight_path_beside("a/b.1.ndjson"), "a/b.1.flight");
  EXPECT_EQ(flight_path_beside("a/b.log"), "a/b.log.flight");
}

TEST(ProgramFilter, IncludeAndExclude) {
  Options options;
  EXPECT_TRUE(program_selected(options, "python3"));
  options.include = "python*,train";
  EXPECT_TRUE(program_selected(options, "python3"));
  EXPECT_TRUE(program_selected(options, "train"));
  EXPECT_FALSE(program_selected(options, "bash"));
  options.exclude = "*3";
  EXPECT_FALSE(program_selected(options, "python3"));
  options = {};
  options.exclude = ",,bash";
  EXPECT_FALSE(program_selected(options, "bash"));
  EXPECT_TRUE(program_selected(options, "basher"));
}

TEST(OptionDocs, FileEqualsTheTable) {
  const std::string path = GPUFLIGHT_SOURCE_DIR "/docs/OPTIONS.md";
  if (std::getenv("GPUFLIGHT_TEST_UPDATE_DOCS") != nullptr) std::ofstream(path) << options_markdown();
  std::stringstream file;
  file << std::ifstream(path).rdbuf();
  EXPECT_EQ(file.str(), options_markdown()) << "run this test with GPUFLIGHT_TEST_UPDATE_DOCS=1 to write the file";
}

}  // namespace
}  // namespace gpuflight::config
