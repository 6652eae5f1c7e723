// JSON answers to callers in C.
#pragma once

#include <exception>
#include <string>

#include "base/json.h"
#include "base/status.h"

namespace hetccl::mpi {

/// Writes the JSON that `ask` returns, or its error, to `*answer`, which is valid until this
/// thread's next call. Returns 0, or 1 for an error. Catches every exception.
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
