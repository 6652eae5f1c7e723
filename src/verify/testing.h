// Helper for verify's unit tests: the verdict on a call.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "verify/verify.h"

namespace hetccl::verify::testing {

/// Returns the verifier's message about a call's Code, or "none".
inline std::string fault(const Lowered& lowered) {
  const Status status = check_code(lowered.problem, lowered.codes);
  return status.ok() ? "none" : status.message();
}

inline void check_fault(const std::string& message, const std::string& expected) {
  CHECK_MESSAGE(message.find(expected) != std::string::npos, message);
}

}  // namespace hetccl::verify::testing
