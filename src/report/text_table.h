// A table of text in columns. Widths follow the contents; the last column takes what is left.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpuflight::report {

enum class Align : std::uint8_t { kLeft, kRight };

class TextTable {
 public:
  void add_column(std::string heading, Align align);
  // As many cells as columns.
  void add_row(std::vector<std::string> cells);

  // Columns used by all but the last one, blanks between included.
  std::size_t width_before_last() const;
  // No blanks at line ends. `heading_on` and `heading_off` go around the heading line (colour), may be empty.
  std::string render(const std::string& heading_on, const std::string& heading_off) const;

 private:
  struct Column {
    std::string heading;
    Align align;
    std::size_t width;
  };
  std::string line(const std::vector<std::string>& cells) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace gpuflight::report
