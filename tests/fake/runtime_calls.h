// Calls that the fake runtimes of runtime_so.cc have received.
#pragma once

#include <cstdint>

namespace hetccl::fake {

/// Arguments as numbers; of a struct its first eight bytes.
struct RuntimeCall {
  const char* symbol;
  int count;
  uint64_t arguments[9];
};
/// Answers of the next calls.
struct RuntimeAnswers {
  int error = 0, devices = 2;
};

}  // namespace hetccl::fake
