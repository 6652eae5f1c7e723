// The return code of a call of NCCL's API, and its error text.
#pragma once

#include <exception>
#include <string>

#include "base/log.h"
#include "base/status.h"
#include "hetccl/hetccl.h"
#include "nccl/abi.h"

namespace hetccl::nccl {

/// A return code and the text that ncclGetLastError returns.
struct Outcome {
  ncclResult_t code = ncclSuccess;
  std::string text;

  [[nodiscard]] bool failed() const { return code != ncclSuccess && code != ncclInProgress; }
};

Outcome outcome_of(const Status& status);
/// The outcome of a call of hetccl that this thread has just made on `comm`, which may be null.
Outcome outcome_of(hetcclResult_t result, hetcclComm_t comm);

/// Logs at the level of HETCCL_DEBUG or NCCL_DEBUG.
const Log& log();

/// Keeps `outcome` as this thread's last error, logs it, and returns its code. Success does not
/// change the last error.
ncclResult_t finish(const Outcome& outcome);
inline ncclResult_t refuse(ncclResult_t code, std::string text) {
  return finish({code, std::move(text)});
}
/// Returns the last error that this thread passed to `finish`; "" if the vendor's library has
/// failed since.
const std::string& last_error();
/// Returns the code of a call of the vendor's library, which keeps the text itself.
ncclResult_t finish_vendor(ncclResult_t code);

/// Returns what `body` returns, or the code of the exception it throws.
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
