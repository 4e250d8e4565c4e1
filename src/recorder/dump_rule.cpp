#include "recorder/dump_rule.h"

#include <charconv>

namespace gpuflight::recorder {
namespace {

std::string_view take_word(std::string_view& text, std::string_view of) {
  const auto begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  text.remove_prefix(begin);
  auto end = text.find_first_not_of(of);
  if (end == std::string_view::npos) end = text.size();
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end);
  return word;
}

}  // namespace

std::optional<DumpRule> DumpRule::parse(std::string_view text, std::string& problem) {
  const std::string_view whole = text;
  const std::string_view field = take_word(text, "abcdefghijklmnopqrstuvwxyz_");
  const std::string_view op = take_word(text, "<>=!");
  const auto number_at = text.find_first_not_of(" \t");
  std::string_view number = number_at == std::string_view::npos ? std::string_view() : text.substr(number_at);
  while (!number.empty() && (number.back() == ' ' || number.back() == '\t')) number.remove_suffix(1);

  DumpRule rule;
  bool good = true;
  if (field == "duration_ns") {
    rule.field_ = Field::kDuration;
  } else if (field == "queue_ns") {
    rule.field_ = Field::kQueue;
  } else if (field == "call_ns") {
    rule.field_ = Field::kCall;
  } else if (field == "status") {
    rule.field_ = Field::kStatus;
  } else {
    good = false;
  }
  if (op == ">") {
    rule.op_ = Op::kGreater;
  } else if (op == ">=") {
    rule.op_ = Op::kGreaterEqual;
  } else if (op == "<") {
    rule.op_ = Op::kLess;
  } else if (op == "<=") {
    rule.op_ = Op::kLessEqual;
  } else if (op == "==" || op == "=") {
    rule.op_ = Op::kEqual;
  } else if (op == "!=") {
    rule.op_ = Op::kNotEqual;
  } else {
    good = false;
  }
  const auto parsed = std::from_chars(number.data(), number.data() + number.size(), rule.number_);
  good = good && !number.empty() && parsed.ec == std::errc() && parsed.ptr == number.data() + number.size();
  if (good) return rule;
  problem = "dump_when \"" + std::string(whole.substr(0, 80)) +
            "\": expected FIELD OP NUMBER with FIELD one of duration_ns, queue_ns, call_ns, status and OP one of "
            "> >= < <= == !=, such as \"call_ns > 1e6\"; no rule is in force";
  return std::nullopt;
}

bool DumpRule::matches(const event::KernelLaunch& launch) const noexcept {
  std::optional<std::int64_t> value;
  switch (field_) {
    case Field::kDuration:
      value = launch.gpu_ns();
      break;
    case Field::kQueue:
      if (launch.start_ns) value = *launch.start_ns - launch.launch_ns;
      break;
    case Field::kCall:
      value = launch.call_ns;
      break;
    case Field::kStatus:
      if (launch.status) value = *launch.status;
      break;
  }
  if (!value) return false;
  const auto x = static_cast<double>(*value);
  switch (op_) {
    case Op::kGreater:
      return x > number_;
    case Op::kGreaterEqual:
      return x >= number_;
    case Op::kLess:
      return x < number_;
    case Op::kLessEqual:
      return x <= number_;
    case Op::kEqual:
      return x == number_;
    case Op::kNotEqual:
      return x != number_;
  }
  return false;
}

}  // namespace gpuflight::recorder
