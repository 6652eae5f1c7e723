// What a call of NCCL's API returns, and its text.
#pragma once

#include <exception>
#include <string>

#include "base/log.h"
#include "base/status.h"
#include "hetccl/hetccl.h"
#include "nccl/abi.h"

namespace hetccl::nccl {

/// A return code with the text that ncclGetLastError gives.
struct Outcome {
  ncclResult_t code = ncclSuccess;
  std::string text;

  [[nodiscard]] bool failed() const { return code != ncclSuccess && code != ncclInProgress; }
};

Outcome outcome_of(const Status& status);
/// Of a call of hetccl that this thread has made just now, on `comm` or with null.
Outcome outcome_of(hetcclResult_t result, hetcclComm_t comm);

/// HETCCL_DEBUG, or NCCL_DEBUG.
const Log& log();

/// Notes `outcome` as this thread's last error, logs it, and returns its code. Success leaves the
/// last error as it is.
ncclResult_t finish(const Outcome& outcome);
inline ncclResult_t refuse(ncclResult_t code, std::string text) {
  return finish({code, std::move(text)});
}
/// This thread's last error by `finish`, "" once the vendor's library has failed since.
const std::string& last_error();
/// The code of a call of the vendor's library, whose text is the library's.
ncclResult_t finish_vendor(ncclResult_t code);

/// What `body` returns. No exception leaves this library.
template <typename Body>
ncclResult_t guarded(const Body& body) noexcept {
  const char* what = "unknown";
  try {
    return body();
  } catch (const std::bad_alloc&) {
    what = "no memory";
  } catch (const std::exception&) {
    what = "an exception";
  } catch (...) {
  }
  log().error("%s", what);
  return ncclInternalError;
}

}  // namespace hetccl::nccl
