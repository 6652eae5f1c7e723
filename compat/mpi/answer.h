// Answers in JSON to callers in C.
#pragma once

#include <exception>
#include <string>

#include "base/json.h"
#include "base/status.h"

namespace hetccl::mpi {

/// Writes what `ask` returns, a Result<Json>, or its error, to `*answer`, which is valid until this
/// thread's next call. Returns 0, or 1 for an error. No exception leaves it.
template <typename Ask>
int answer_with(const Ask& ask, const char** answer) noexcept {
  *answer = "out of memory";
  try {
    thread_local std::string kept;
    const Result<Json> asked = ask();
    kept = asked.ok() ? asked.value().dump() : asked.status().message();
    *answer = kept.c_str();
    return asked.ok() ? 0 : 1;
  } catch (const std::exception&) {
    return 1;
  }
}

}  // namespace hetccl::mpi
