#include "capi/process.h"

#include <unistd.h>

#include <mutex>

namespace hetccl::capi {
namespace {

struct Process {
  std::mutex mutex;
  std::unique_ptr<comm::Runtime> runtime;
  pid_t owner = 0;
};

// Never destroyed: threads and handles of the library may outlive static destruction.
Process& process() {
  static auto* instance = new Process;
  return *instance;
}

std::string& error_slot() {
  thread_local std::string text;
  return text;
}

hetcclResult_t result_of(Code code) {
  switch (code) {
    case Code::Ok:
      return hetcclSuccess;
    case Code::InvalidArgument:
      return hetcclInvalidArgument;
    case Code::InvalidUsage:
      return hetcclInvalidUsage;
    case Code::SystemError:
      return hetcclSystemError;
    case Code::InternalError:
      return hetcclInternalError;
    case Code::RemoteError:
      return hetcclRemoteError;
    case Code::Timeout:
      return hetcclTimeout;
    case Code::Aborted:
      return hetcclAborted;
    case Code::Unsupported:
      return hetcclUnsupported;
  }
  return hetcclInternalError;
}

}  // namespace

Result<comm::Runtime*> runtime() {
  Process& self = process();
  std::lock_guard lock(self.mutex);
  if (self.runtime == nullptr) {
    HETCCL_ASSIGN(auto config, Config::from_environment());
    HETCCL_ASSIGN(self.runtime, comm::Runtime::create(std::move(config)));
    self.owner = getpid();
  }
  if (self.owner != getpid()) {
    return error(Code::InvalidUsage,
                 "hetccl was initialised before fork: use it in the parent alone, or start workers "
                 "by spawn");
  }
  return self.runtime.get();
}

hetcclResult_t finish(const Status& status) {
  if (!status.ok()) error_slot() = status.message();
  return result_of(status.code());
}

const std::string& last_error() {
  return error_slot();
}

}  // namespace hetccl::capi
