// A table of text and as Markdown from the same cells.
#pragma once

#include <string>
#include <vector>

#include "report/text_table.h"

namespace gpuflight::report {

struct Cells {
  struct Heading {
    const char* text;
    Align align = Align::kLeft;
  };
  std::vector<Heading> headings;
  std::vector<std::vector<std::string>> rows;
};

TextTable text_table(const Cells& cells);
std::string markdown_table(const Cells& cells);

// What Markdown or HTML in it would take for its own is written as it reads.
std::string markdown_text(const std::string& text);

}  // namespace gpuflight::report
