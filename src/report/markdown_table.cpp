#include "report/markdown_table.h"

namespace gpuflight::report {
namespace {

std::string line(const std::vector<std::string>& cells) {
  std::string out = "|";
  for (const std::string& cell : cells) out += " " + cell + " |";
  return out + "\n";
}

}  // namespace

TextTable text_table(const Cells& cells) {
  TextTable table;
  for (const Cells::Heading& heading : cells.headings) table.add_column(heading.text, heading.align);
  for (const auto& row : cells.rows) table.add_row(row);
  return table;
}

std::string markdown_table(const Cells& cells) {
  std::vector<std::string> headings, rules;
  for (const Cells::Heading& heading : cells.headings) {
    headings.emplace_back(heading.text);
    rules.emplace_back(heading.align == Align::kRight ? "---:" : "---");
  }
  std::string out = line(headings) + line(rules);
  for (const auto& row : cells.rows) {
    std::vector<std::string> safe;
    for (const std::string& cell : row) safe.push_back(markdown_text(cell));
    out += line(safe);
  }
  return out;
}

std::string markdown_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '\n': case '\r': out += ' '; break;
      case '|': case '*': case '_': case '`': case '[': case ']': case '\\':
        out += '\\';
        out += c;
        break;
      default: out += c;
    }
  }
  return out;
}

}  // namespace gpuflight::report
