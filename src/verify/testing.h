// For verify's unit tests: what the verifier says of a call.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "verify/verify.h"

namespace hetccl::verify::testing {

/// The verifier's message about a call's Code; "none" where it passes.
inline std::string fault(const Lowered& lowered) {
  const Status status = check_code(lowered.problem, lowered.codes);
  return status.ok() ? "none" : status.message();
}

inline void check_fault(const std::string& message, const std::string& expected) {
  CHECK_MESSAGE(message.find(expected) != std::string::npos, message);
}

}  // namespace hetccl::verify::testing
