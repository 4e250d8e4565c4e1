// The rule that makes a black box write its last events: "FIELD OP NUMBER", such as "call_ns > 5e6".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "event/events.h"

namespace gpuflight::recorder {

class DumpRule {
 public:
  // nullopt: `problem` says in one line what is wrong with it.
  static std::optional<DumpRule> parse(std::string_view text, std::string& problem);

  bool on_gpu_time() const noexcept { return field_ == Field::kDuration || field_ == Field::kQueue; }

  bool on_call_time() const noexcept { return field_ == Field::kCall; }

  // A value that is not known matches nothing.
  bool matches(const event::KernelLaunch& launch) const noexcept;

 private:
  enum class Field { kDuration, kQueue, kCall, kStatus };
  enum class Op { kGreater, kGreaterEqual, kLess, kLessEqual, kEqual, kNotEqual };

  Field field_ = Field::kCall;
  Op op_ = Op::kGreater;
  double number_ = 0;
};

}  // namespace gpuflight::recorder
