#include "report/kernel_name.h"

#include <cctype>
#include <csetjmp>
#include <cstring>
#include <vector>

// libstdc++'s own demangler with output in pieces: the only form of it that can be stopped half-way.
extern "C" int __gcclibcxx_demangle_callback(const char* mangled, void (*callback)(const char*, std::size_t, void*),
                                             void* opaque);

namespace gpuflight::report {
namespace {

constexpr std::size_t kMostMangled = 64 << 10;
constexpr std::size_t kMostDemangled = 256 << 10;
constexpr std::size_t kMostKnown = 200'000;

// Length of the UTF-8 character at `text`, 0 when it is none.
std::size_t utf8_length(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  std::size_t length = 0;
  unsigned char low = 0x80, high = 0xbf;
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) length = 2;
  if (first >= 0xe0 && first <= 0xef) {
    length = 3;
    if (first == 0xe0) low = 0xa0;
    if (first == 0xed) high = 0x9f;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    length = 4;
    if (first == 0xf0) low = 0x90;
    if (first == 0xf4) high = 0x8f;
  }
  if (length == 0 || text.size() < length || at(1) < low || at(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
  }
  return length;
}

struct Demangling {
  std::string text;
  std::jmp_buf stop;
};

void collect(const char* piece, std::size_t length, void* opaque) {
  auto* work = static_cast<Demangling*>(opaque);
  // The demangler is C without clean-up of its own, so leaving it by longjmp loses nothing.
  if (work->text.size() + length > kMostDemangled) std::longjmp(work->stop, 1);
  work->text.append(piece, length);
}

bool demangle_bounded(const char* mangled, Demangling& work) {
  if (setjmp(work.stop) != 0) return false;
  return __gcclibcxx_demangle_callback(mangled, collect, &work) == 0;
}

// "operator<", "operator()", "operator->" ... at `text`: brackets in there open nothing. 0: no operator.
std::size_t operator_length(std::string_view text, std::size_t at) {
  constexpr std::string_view kWord = "operator";
  if (!text.substr(at).starts_with(kWord)) return 0;
  if (at > 0 && (std::isalnum(static_cast<unsigned char>(text[at - 1])) != 0 || text[at - 1] == '_')) return 0;
  constexpr std::string_view kSymbols[] = {"()", "<=>", "<<=", ">>=", "->*", "->", "<<", ">>", "<=", ">=", "<", ">"};
  for (const std::string_view symbol : kSymbols) {
    if (text.substr(at + kWord.size()).starts_with(symbol)) return kWord.size() + symbol.size();
  }
  return 0;
}

// Calls visit(position, depth) for each character outside operators; depth counts brackets of all kinds around it.
template <class Visit>
void walk(std::string_view text, Visit visit) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (const std::size_t skip = operator_length(text, i); skip > 0) {
      i += skip - 1;
      continue;
    }
    const char c = text[i];
    if (c == ')' || c == '>' || c == '}' || c == ']') {
      if (c != '>' || i == 0 || text[i - 1] != '-') --depth;  // "->" of a trailing return type
    }
    if (!visit(i, depth)) return;
    if (c == '(' || c == '<' || c == '{' || c == '[') ++depth;
  }
}

// Where the parameter list begins: the last top-level "(" that ends the name, not "(anonymous namespace)".
std::size_t parameters_begin(std::string_view text) {
  std::size_t begin = std::string_view::npos;
  walk(text, [&](std::size_t i, int depth) {
    if (depth != 0 || text[i] != '(') return true;
    const std::string_view rest = text.substr(i);
    if (rest.starts_with("(anonymous namespace)")) return true;
    begin = i;
    // "f(int)::{lambda()#1}::operator()(int)": the parameters of an outer function are a part of the name.
    return true;
  });
  return begin;
}

// Folds the contents of template brackets that stand `level` deep or deeper.
std::string folded(std::string_view text, int level) {
  std::string out;
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (const std::size_t skip = operator_length(text, i); skip > 0) {
      if (depth < level) out += text.substr(i, skip);
      i += skip - 1;
      continue;
    }
    const char c = text[i];
    const bool closes = c == '>' && depth > 0 && (i == 0 || text[i - 1] != '-');
    if (closes && --depth == level - 1) out += "...";
    if (depth < level) out += c;
    if (c == '<') ++depth;
  }
  return depth == 0 ? out : std::string(text);
}

std::string without_outer_namespace(std::string_view text) {
  std::size_t end = std::string_view::npos;
  walk(text, [&](std::size_t i, int depth) {
    if (depth != 0 || text[i] != ':' || i + 1 >= text.size() || text[i + 1] != ':') return true;
    end = i + 2;
    return false;
  });
  return end == std::string_view::npos ? std::string(text) : std::string(text.substr(end));
}

// Drops outer namespaces, as few as it takes. True when `text` fits then; if nothing helps it is left with none.
bool fits_without_namespaces(std::string& text, std::size_t width) {
  for (;;) {
    std::string shorter = without_outer_namespace(text);
    if (shorter.size() == text.size()) return false;
    text = std::move(shorter);
    if (display_width(text) <= width) return true;
  }
}

// The first and the last part, which tell most, with ".." between.
std::string cut_middle(std::string_view text, std::size_t width) {
  std::vector<std::size_t> begins;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) begins.push_back(i);
  }
  if (begins.size() <= width) return std::string(text);
  if (width <= 4) return std::string(text.substr(0, width < begins.size() ? begins[width] : text.size()));
  const std::size_t tail = (width - 2) / 2;
  const std::size_t head = width - 2 - tail;
  return std::string(text.substr(0, begins[head])) + ".." + std::string(text.substr(begins[begins.size() - tail]));
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text.substr(i));
    const auto byte = static_cast<unsigned char>(text[i]);
    // C1 controls (U+0080 to U+009F) steer some terminals as escape sequences do.
    const bool control = byte < 0x20 || byte == 0x7f ||
                         (length == 2 && byte == 0xc2 && static_cast<unsigned char>(text[i + 1]) < 0xa0);
    if (length == 0 || control) {
      out += '?';
    } else {
      out += text.substr(i, length);
    }
    i += length == 0 ? 1 : length;
  }
  return out;
}

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  for (const char c : text) width += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0;
  return width;
}

std::string demangled(std::string_view mangled) {
  if (!mangled.starts_with("_Z") || mangled.size() > kMostMangled || mangled.find('\0') != std::string_view::npos) {
    return std::string(mangled);
  }
  const std::string name(mangled);
  Demangling work;
  return demangle_bounded(name.c_str(), work) ? std::move(work.text) : name;
}

std::string without_signature(std::string_view name) {
  std::string_view text = name;
  if (const std::size_t clone = text.find(" [clone "); clone != std::string_view::npos) text = text.substr(0, clone);
  const std::size_t parameters = parameters_begin(text);
  if (parameters != std::string_view::npos && parameters > 0) text = text.substr(0, parameters);
  // A return type stands before the last blank outside brackets; "operator new" and conversions keep theirs.
  std::size_t begin = 0;
  walk(text, [&](std::size_t i, int depth) {
    if (depth == 0 && text[i] == ' ' && text.substr(0, i).find("operator") == std::string_view::npos) begin = i + 1;
    return true;
  });
  text = text.substr(begin);
  return text.empty() ? std::string(name) : std::string(text);
}

std::string shortened(std::string_view name, std::size_t width) {
  if (display_width(name) <= width) return std::string(name);
  std::string text;
  // What tells two kernels of a library apart is more often in the template arguments than in the namespace.
  for (int level = 3; level >= 2; --level) {
    text = folded(name, level);
    if (display_width(text) <= width || fits_without_namespaces(text, width)) return text;
  }
  text = folded(name, 1);
  if (display_width(text) <= width || fits_without_namespaces(text, width)) return text;
  return cut_middle(text, width);
}

const std::string& KernelNames::of(std::string_view mangled) {
  if (const auto found = known_.find(mangled); found != known_.end()) return found->second;
  if (known_.size() >= kMostKnown) known_.clear();
  const std::string whole = demangled(mangled);
  std::string shown = full_ ? printable(whole) : shortened(printable(without_signature(whole)), width_);
  return known_.emplace(std::string(mangled), std::move(shown)).first->second;
}

}  // namespace gpuflight::report
