// docs/OPTIONS.md, made from the table of options. A test keeps the file equal to it.
#pragma once

#include <string>

namespace gpuflight::config {

std::string options_markdown();

}  // namespace gpuflight::config
