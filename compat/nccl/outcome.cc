#include "nccl/outcome.h"

#include "nccl/settings.h"

namespace hetccl::nccl {
namespace {

thread_local std::string newest;

ncclResult_t code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::Ok:
      return ncclSuccess;
    case ErrorCode::InvalidArgument:
      return ncclInvalidArgument;
    case ErrorCode::InvalidUsage:
    case ErrorCode::Unsupported:
      return ncclInvalidUsage;
    case ErrorCode::SystemError:
      return ncclSystemError;
    case ErrorCode::RemoteError:
    case ErrorCode::Timeout:  // programs for NCCL before 2.30 do not know this code
      return ncclRemoteError;
    case ErrorCode::InternalError:
    case ErrorCode::Aborted:
      break;
  }
  return ncclInternalError;
}

// hetccl's values are NCCL's, except those that programs for older versions of NCCL do not know.
ncclResult_t code_of(hetcclResult_t result) {
  switch (result) {
    case hetcclUnsupported:
      return ncclInvalidUsage;
    case hetcclTimeout:
      return ncclRemoteError;
    case hetcclAborted:
      return ncclInternalError;
    default:
      return static_cast<ncclResult_t>(result);
  }
}

}  // namespace

Outcome outcome_of(const Status& status) {
  return {code_of(status.code()), status.message()};
}

Outcome outcome_of(hetcclResult_t result, hetcclComm_t comm) {
  if (result == hetcclSuccess) return {};
  if (result == hetcclInProgress) return {ncclInProgress, ""};
  const char* text = hetcclGetLastError(nullptr);
  if (*text == '\0' && comm != nullptr) text = hetcclGetLastError(comm);
  return {code_of(result), *text == '\0' ? hetcclGetErrorString(result) : text};
}

const Log& log() {
  static const Log made = [] {
    const auto config = read_settings();
    return Log{
        parse_log_level(config.ok() ? config.value().log_level : "").value_or(LogLevel::Warn), -1};
  }();
  return made;
}

ncclResult_t finish(const Outcome& outcome) {
  if (!outcome.failed()) return outcome.code;
  newest = outcome.text;
  log().warn("%s", newest.c_str());
  return outcome.code;
}

ncclResult_t finish_vendor(ncclResult_t code) {
  if (code != ncclSuccess && code != ncclInProgress) newest.clear();
  return code;
}

const std::string& last_error() {
  return newest;
}

}  // namespace hetccl::nccl
