// Functions that describe the library and its communicators, and that allocate memory.
#include <string>
#include <unordered_map>

#include "nccl/dispatch.h"

using namespace hetccl::nccl;

namespace {

// Newest NCCL version whose calls are exported here; reported if there is no vendor's library.
constexpr int kVersion = 23'203;

const char* text_of(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "operation in progress";
    case ncclTimeout:
      return "operation timed out";
  }
  return "unknown result code";
}

}  // namespace

HETCCL_NCCL_EXPORT const char* hetccl_nccl_vendor_path() {
  const char* path = "";
  guarded([&] {
    if (vendor() != nullptr) path = vendor()->path.c_str();
    return ncclSuccess;
  });
  return path;
}

HETCCL_NCCL_EXPORT ncclResult_t ncclGetVersion(int* version) {
  return guarded([&] {
    if (version == nullptr)
      return refuse(ncclInvalidArgument, "ncclGetVersion: the version is null");
    *version = vendor() != nullptr ? vendor()->version : kVersion;
    return ncclSuccess;
  });
}
HETCCL_NCCL_PROFILED(ncclGetVersion)

HETCCL_NCCL_EXPORT const char* ncclGetErrorString(ncclResult_t result) {
  const char* text = text_of(result);
  guarded([&] {
    if (vendor() != nullptr && vendor()->find(Symbol::ncclGetErrorString) != nullptr)
      text = call_vendor<const char*(ncclResult_t)>(*vendor(), Symbol::ncclGetErrorString, result);
    return ncclSuccess;
  });
  return text;
}
HETCCL_NCCL_PROFILED(ncclGetErrorString)

namespace {

// Returns the failure of a mixed communicator if there is one, else the thread's last error.
const char* last_error_of(ncclComm_t comm) {
  thread_local std::string text;
  Handle* const handle = handle_of(comm);
  const HandleState state = handle != nullptr ? handle->state.load() : HandleState::Vendor;
  if (state == HandleState::Mixed) {
    text = hetcclGetLastError(handle->mixed.load());
    if (!text.empty()) return text.c_str();
  }
  if (!last_error().empty()) return last_error().c_str();
  if (state == HandleState::Failed) {
    const auto communicator = communicator_of(*handle);
    text = communicator != nullptr ? communicator->outcome().text : "";
    return text.c_str();
  }
  if (vendor() == nullptr || vendor()->find(Symbol::ncclGetLastError) == nullptr) return "";
  return call_vendor<const char*(ncclComm_t)>(*vendor(), Symbol::ncclGetLastError,
                                              handle != nullptr ? handle->vendor.load() : comm);
}

}  // namespace

HETCCL_NCCL_EXPORT const char* ncclGetLastError(ncclComm_t comm) {
  const char* text = "";
  guarded([&] {
    text = last_error_of(comm);
    return ncclSuccess;
  });
  return text;
}
HETCCL_NCCL_PROFILED(ncclGetLastError)

HETCCL_NCCL_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  return guarded([&]() -> ncclResult_t {
    if (error == nullptr)
      return refuse(ncclInvalidArgument, "ncclCommGetAsyncError: asyncError is null");
    Handle* const handle = handle_of(comm);
    const HandleState state = handle != nullptr ? handle->state.load() : HandleState::Vendor;
    if (state == HandleState::Beginning || state == HandleState::Failed) {
      const auto communicator = communicator_of(*handle);
      *error = communicator != nullptr ? communicator->outcome().code : ncclInvalidUsage;
      return ncclSuccess;
    }
    return dispatch(
        comm, Symbol::ncclCommGetAsyncError,
        [&](ncclComm_t own) {
          return call_vendor<decltype(::ncclCommGetAsyncError)>(
              *vendor(), Symbol::ncclCommGetAsyncError, own, error);
        },
        [&](hetcclComm_t mixed) {
          hetcclResult_t found = hetcclSuccess;
          const hetcclResult_t asked = hetcclCommGetAsyncError(mixed, &found);
          *error = outcome_of(found, mixed).code;
          return asked;
        });
  });
}
HETCCL_NCCL_PROFILED(ncclCommGetAsyncError)

HETCCL_NCCL_CALL(ncclCommCount, (ncclComm_t comm, int* count), (own, count),
                 hetcclCommCount(mixed, count))

HETCCL_NCCL_CALL(ncclCommUserRank, (ncclComm_t comm, int* rank), (own, rank),
                 hetcclCommUserRank(mixed, rank))

HETCCL_NCCL_CALL(ncclCommCuDevice, (ncclComm_t comm, int* device), (own, device),
                 hetcclCommCuDevice(mixed, device))

HETCCL_NCCL_CALL(ncclCommRegister, (ncclComm_t comm, void* memory, size_t bytes, void** place),
                 (own, memory, bytes, place), hetcclCommRegister(mixed, memory, bytes, place))

HETCCL_NCCL_CALL(ncclCommDeregister, (ncclComm_t comm, void* place), (own, place),
                 hetcclCommDeregister(mixed, place))

// Allocates by the vendor's library; without one, by hetccl.
HETCCL_NCCL_EXPORT ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  return guarded([&]() -> ncclResult_t {
    if (serving_vendor() == nullptr)
      return finish(outcome_of(hetcclMemAlloc(memory, bytes), nullptr));
    if (vendor()->find(Symbol::ncclMemAlloc) == nullptr)
      return refuse_without_vendor(Symbol::ncclMemAlloc);
    return finish_vendor(
        call_vendor<decltype(::ncclMemAlloc)>(*vendor(), Symbol::ncclMemAlloc, memory, bytes));
  });
}
HETCCL_NCCL_PROFILED(ncclMemAlloc)

HETCCL_NCCL_EXPORT ncclResult_t ncclMemFree(void* memory) {
  return guarded([&]() -> ncclResult_t {
    if (serving_vendor() == nullptr) return finish(outcome_of(hetcclMemFree(memory), nullptr));
    if (vendor()->find(Symbol::ncclMemFree) == nullptr)
      return refuse_without_vendor(Symbol::ncclMemFree);
    return finish_vendor(
        call_vendor<decltype(::ncclMemFree)>(*vendor(), Symbol::ncclMemFree, memory));
  });
}
HETCCL_NCCL_PROFILED(ncclMemFree)

// RCCL's C++ function, known by its mangled name; PyTorch on AMD calls it. Adds nothing for a mixed
// communicator.
__attribute__((visibility("default"))) ncclResult_t
ncclCommDump(ncclComm_t comm, std::unordered_map<std::string, std::string>& map) {
  constexpr const char* kName =
      "_Z12ncclCommDumpP8ncclCommRSt13unordered_mapINSt7__cxx1112basic_stringIcSt11char_traitsIcE"
      "SaIcEEES7_St4hashIS7_ESt8equal_toIS7_ESaISt4pairIKS7_S7_EEE";
  return guarded([&]() -> ncclResult_t {
    Handle* const handle = handle_of(comm);
    const HandleState state = handle != nullptr ? handle->state.load() : HandleState::Vendor;
    if (state != HandleState::Vendor || vendor() == nullptr) return ncclSuccess;
    auto* const dump = reinterpret_cast<decltype(&ncclCommDump)>(vendor()->library->symbol(kName));
    if (dump == nullptr)
      return refuse(ncclInvalidUsage, "ncclCommDump is not in " + vendor()->path);
    const VendorScope inside;
    return finish_vendor(dump(handle != nullptr ? handle->vendor.load() : comm, map));
  });
}
