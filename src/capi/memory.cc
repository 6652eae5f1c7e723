// Allocates memory for callers, and registers callers' memory with communicators.
#include "capi/process.h"
#include "hetccl/hetccl.h"

using hetccl::error;
using hetccl::ErrorCode;
using hetccl::Status;
using hetccl::capi::finished;
using hetccl::capi::null;
using hetccl::capi::with;
using hetccl::comm::Communicator;

namespace {

Status check_size(size_t size) {
  if (size > 0) return {};
  return error(ErrorCode::InvalidArgument, "size is 0: it must be at least 1");
}

}  // namespace

hetcclResult_t hetcclMemAlloc(void** ptr, size_t size) {
  return finished([&]() -> Status {
    if (ptr == nullptr) return null("ptr");
    *ptr = nullptr;
    HETCCL_TRY(check_size(size));
    HETCCL_ASSIGN(const auto runtime, hetccl::capi::runtime());
    HETCCL_ASSIGN(*ptr, runtime->memory().allocate(size));
    return {};
  });
}

hetcclResult_t hetcclMemFree(void* ptr) {
  return finished([&]() -> Status {
    if (ptr == nullptr) return null("ptr");
    HETCCL_ASSIGN(const auto runtime, hetccl::capi::runtime());
    return runtime->memory().free(ptr);
  });
}

hetcclResult_t hetcclCommRegister(hetcclComm_t comm, void* buff, size_t size, void** handle) {
  return with(comm, [&](Communicator& self) -> Status {
    if (handle == nullptr) return null("handle");
    *handle = nullptr;
    if (buff == nullptr) return null("buff");
    HETCCL_TRY(check_size(size));
    HETCCL_ASSIGN(const uintptr_t number, self.dispatch().register_memory(buff, size));
    *handle = reinterpret_cast<void*>(number);  // NOLINT(performance-no-int-to-ptr): never followed
    return {};
  });
}

hetcclResult_t hetcclCommDeregister(hetcclComm_t comm, void* handle) {
  return with(comm, [&](Communicator& self) -> Status {
    if (handle == nullptr) return {};
    return self.dispatch().deregister_memory(reinterpret_cast<uintptr_t>(handle));
  });
}
