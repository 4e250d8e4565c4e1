#include "command_line.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <sstream>
#include <vector>

#include <fmt/format.h>

#include "failure.h"
#include "terminal.h"

namespace gpuflight::cli {
namespace {

std::vector<std::string> long_options(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// The first word that looks like an option and is none.
std::string unknown_option(const CLI::App& app, const Arguments& arguments) {
  for (const std::string& word : arguments) {
    if (word == "--") break;
    if (word.size() < 2 || word[0] != '-') continue;
    const std::string name = word.starts_with("--") ? word.substr(0, word.find('=')) : word.substr(0, 2);
    if (app.get_option_no_throw(name) == nullptr) return name;
  }
  return {};
}

// Without CLI11's "{on}" behind the names of switches, and folded at the terminal's width.
class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(std::string usage) : usage_(std::move(usage)) {}

  std::string make_help(const CLI::App* app, std::string, CLI::AppFormatMode mode) const override {
    std::string groups = make_groups(app, mode);
    for (std::size_t at; (at = groups.find("\n\n\n")) != std::string::npos;) groups.erase(at, 1);
    return "Usage: gpuflight " + app->get_name() + " " + usage_ + "\n\n" + app->get_description() + "\n" +
           make_positionals(app) + groups + app->get_footer();
  }
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    std::string left = "  " + make_option_name(option, is_positional) + make_option_opts(option);
    for (const char* marked : {"{on}", "{off}"}) {
      for (std::size_t at; (at = left.find(marked)) != std::string::npos;) left.erase(at, std::strlen(marked));
    }
    std::string out = left;
    std::size_t column = left.size();
    const auto new_line = [&] {
      out += "\n" + std::string(kHelpColumn, ' ');
      column = kHelpColumn;
    };
    if (column + 2 > kHelpColumn) {
      new_line();
    } else {
      out.append(kHelpColumn - column, ' ');
      column = kHelpColumn;
    }
    const std::size_t width = std::clamp<std::size_t>(terminal_width(), 80, 120);
    std::istringstream words(make_option_desc(option));
    for (std::string word; words >> word;) {
      if (column > kHelpColumn && column + 1 + word.size() > width) new_line();
      if (column > kHelpColumn) out += ' ', ++column;
      out += word;
      column += word.size();
    }
    return out + "\n";
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size_max() == 0 || option->get_items_expected_max() == 0) return {};
    const std::string type = option->get_type_name();
    return type.empty() ? std::string() : " " + type.substr(0, type.find(":{"));
  }

 private:
  std::string usage_;
  static constexpr std::size_t kHelpColumn = 30;
};

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  while (!text.empty() && (text.back() == ' ' || text.back() == '.')) text.pop_back();
  return text;
}

}  // namespace

void describe(CLI::App& app, const std::string& verb, const std::string& usage, const std::string& description,
              const std::string& examples) {
  app.name(verb);
  app.description(description);
  app.footer("\nExamples:\n" + examples);
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.formatter(std::make_shared<HelpFormatter>(usage));
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void add_color_option(CLI::App& app, std::string& when) {
  app.add_option("--color", when, "auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->type_name("WHEN");
}

void add_width_option(CLI::App& app, std::size_t& width, const char* of) {
  app.add_option("--width", width, std::string("Columns of the ") + of)->type_name("N")->check(CLI::Range(40, 10000));
}

std::optional<int> parse(CLI::App& app, const Arguments& arguments) {
  Arguments reversed(arguments.rbegin(), arguments.rend());  // CLI11 takes them from the back
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return kExitOk;
  } catch (const CLI::ExtrasError& error) {
    const std::string unknown = unknown_option(app, arguments);
    if (unknown.empty()) throw UsageError(one_line(error.what()), app.get_name());
    const std::string nearest = nearest_word(unknown, long_options(app));
    throw UsageError(nearest.empty() ? fmt::format("unknown option '{}'", unknown)
                                     : fmt::format("unknown option '{}', did you mean '{}'?", unknown, nearest),
                     app.get_name());
  } catch (const CLI::ParseError& error) {
    throw UsageError(one_line(error.what()), app.get_name());
  }
  return std::nullopt;
}

Split split_program(const CLI::App& app, const Arguments& arguments) {
  std::size_t i = 0;
  while (i < arguments.size()) {
    const std::string& word = arguments[i];
    if (word == "--") return {i, i + 1};
    if (word.size() < 2 || word[0] != '-') return {i, i};
    const bool has_value = word.starts_with("--") ? word.find('=') != std::string::npos : word.size() > 2;
    const CLI::Option* option =
        app.get_option_no_throw(word.starts_with("--") ? word.substr(0, word.find('=')) : word.substr(0, 2));
    if (option == nullptr) return {arguments.size(), arguments.size()};  // parse() says which it is
    const bool takes_value = option->get_items_expected_max() > 0;
    i += takes_value && !has_value ? 2 : 1;
  }
  return {arguments.size(), arguments.size()};
}

}  // namespace gpuflight::cli
