#include "report/text_table.h"

#include <algorithm>

#include "report/kernel_name.h"

namespace gpuflight::report {
namespace {

constexpr std::size_t kGap = 2;

}  // namespace

void TextTable::add_column(std::string heading, Align align) {
  const std::size_t width = display_width(heading);
  columns_.push_back({std::move(heading), align, width});
}

void TextTable::add_row(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  for (std::size_t i = 0; i < cells.size(); ++i) {
    columns_[i].width = std::max(columns_[i].width, display_width(cells[i]));
  }
  rows_.push_back(std::move(cells));
}

std::size_t TextTable::width_before_last() const {
  std::size_t width = 0;
  for (std::size_t i = 0; i + 1 < columns_.size(); ++i) width += columns_[i].width + kGap;
  return width;
}

std::string TextTable::line(const std::vector<std::string>& cells) const {
  std::string out;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string padding(columns_[i].width - display_width(cells[i]), ' ');
    out += columns_[i].align == Align::kRight ? padding + cells[i] : cells[i] + padding;
    if (i + 1 < cells.size()) out.append(kGap, ' ');
  }
  out.erase(out.find_last_not_of(' ') + 1);
  return out;
}

std::string TextTable::render(const std::string& heading_on, const std::string& heading_off) const {
  std::vector<std::string> headings;
  for (const Column& column : columns_) headings.push_back(column.heading);
  std::string out = heading_on + line(headings) + heading_off + "\n";
  for (const auto& row : rows_) out += line(row) + "\n";
  return out;
}

}  // namespace gpuflight::report
