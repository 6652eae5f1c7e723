// What programs ask of the library and of a communicator, and memory.
#include <cstdlib>

#include "nccl/dispatch.h"

using namespace hetccl::nccl;

namespace {

// Of the newest NCCL whose calls stand here, where there is no vendor's.
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
  return vendor() != nullptr ? vendor()->path.c_str() : "";
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
  if (vendor() == nullptr || vendor()->find(Symbol::ncclGetErrorString) == nullptr)
    return text_of(result);
  return call_vendor<const char*(ncclResult_t)>(*vendor(), Symbol::ncclGetErrorString, result);
}
HETCCL_NCCL_PROFILED(ncclGetErrorString)

HETCCL_NCCL_EXPORT const char* ncclGetLastError(ncclComm_t comm) {
  thread_local std::string text;
  Handle* const handle = handle_of(comm);
  const State state = handle != nullptr ? handle->state.load() : State::Vendor;
  if (!last_error().empty()) return last_error().c_str();
  if (state == State::Mixed) return hetcclGetLastError(handle->mixed.load());
  if (state == State::Failed) {
    const auto communicator = communicator_of(*handle);
    text = communicator != nullptr ? communicator->outcome().text : "";
    return text.c_str();
  }
  if (vendor() == nullptr || vendor()->find(Symbol::ncclGetLastError) == nullptr) return "";
  return call_vendor<const char*(ncclComm_t)>(*vendor(), Symbol::ncclGetLastError,
                                              handle != nullptr ? handle->vendor.load() : comm);
}
HETCCL_NCCL_PROFILED(ncclGetLastError)

HETCCL_NCCL_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  return guarded([&]() -> ncclResult_t {
    if (error == nullptr)
      return refuse(ncclInvalidArgument, "ncclCommGetAsyncError: asyncError is null");
    Handle* const handle = handle_of(comm);
    const State state = handle != nullptr ? handle->state.load() : State::Vendor;
    if (state == State::Beginning || state == State::Failed) {
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

HETCCL_NCCL_EXPORT ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  return dispatch(
      comm, Symbol::ncclCommCount,
      [&](ncclComm_t own) {
        return call_vendor<decltype(::ncclCommCount)>(*vendor(), Symbol::ncclCommCount, own, count);
      },
      [&](hetcclComm_t mixed) { return hetcclCommCount(mixed, count); });
}
HETCCL_NCCL_PROFILED(ncclCommCount)

HETCCL_NCCL_EXPORT ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  return dispatch(
      comm, Symbol::ncclCommUserRank,
      [&](ncclComm_t own) {
        return call_vendor<decltype(::ncclCommUserRank)>(*vendor(), Symbol::ncclCommUserRank, own,
                                                         rank);
      },
      [&](hetcclComm_t mixed) { return hetcclCommUserRank(mixed, rank); });
}
HETCCL_NCCL_PROFILED(ncclCommUserRank)

HETCCL_NCCL_EXPORT ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device) {
  return dispatch(
      comm, Symbol::ncclCommCuDevice,
      [&](ncclComm_t own) {
        return call_vendor<decltype(::ncclCommCuDevice)>(*vendor(), Symbol::ncclCommCuDevice, own,
                                                         device);
      },
      [&](Handle& handle) {
        const auto communicator = communicator_of(handle);
        if (communicator == nullptr) return refuse_call(handle, Symbol::ncclCommCuDevice);
        if (communicator->device().number() < 0)
          return refuse(ncclInvalidUsage,
                        "ncclCommCuDevice: this rank has no GPU, it is the host's");
        *device = communicator->device().number();
        return ncclSuccess;
      });
}
HETCCL_NCCL_PROFILED(ncclCommCuDevice)

HETCCL_NCCL_EXPORT ncclResult_t ncclCommRegister(ncclComm_t comm, void* memory, size_t bytes,
                                                 void** place) {
  return dispatch(
      comm, Symbol::ncclCommRegister,
      [&](ncclComm_t own) {
        return call_vendor<decltype(::ncclCommRegister)>(*vendor(), Symbol::ncclCommRegister, own,
                                                         memory, bytes, place);
      },
      [&](Handle& handle) { return refuse_mixed(handle, Symbol::ncclCommRegister); });
}
HETCCL_NCCL_PROFILED(ncclCommRegister)

HETCCL_NCCL_EXPORT ncclResult_t ncclCommDeregister(ncclComm_t comm, void* place) {
  return dispatch(
      comm, Symbol::ncclCommDeregister,
      [&](ncclComm_t own) {
        return call_vendor<decltype(::ncclCommDeregister)>(*vendor(), Symbol::ncclCommDeregister,
                                                           own, place);
      },
      [&](Handle& handle) { return refuse_mixed(handle, Symbol::ncclCommDeregister); });
}
HETCCL_NCCL_PROFILED(ncclCommDeregister)

// The vendor's own memory; where there is none, the host's.
HETCCL_NCCL_EXPORT ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  return guarded([&]() -> ncclResult_t {
    constexpr size_t kAlignment = 4096;  // as ncclMemAlloc's, whose memory can become a window
    if (memory == nullptr) return refuse(ncclInvalidArgument, "ncclMemAlloc: ptr is null");
    if (vendor() != nullptr) {
      if (vendor()->find(Symbol::ncclMemAlloc) == nullptr)
        return refuse_without_vendor(Symbol::ncclMemAlloc);
      return finish_vendor(
          call_vendor<decltype(::ncclMemAlloc)>(*vendor(), Symbol::ncclMemAlloc, memory, bytes));
    }
    *memory = nullptr;
    if (bytes == 0) return ncclSuccess;
    if (::posix_memalign(memory, kAlignment, bytes) == 0) return ncclSuccess;
    *memory = nullptr;
    return refuse(ncclSystemError, "ncclMemAlloc: no memory");
  });
}
HETCCL_NCCL_PROFILED(ncclMemAlloc)

HETCCL_NCCL_EXPORT ncclResult_t ncclMemFree(void* memory) {
  return guarded([&]() -> ncclResult_t {
    if (vendor() == nullptr) {
      std::free(memory);
      return ncclSuccess;
    }
    if (vendor()->find(Symbol::ncclMemFree) == nullptr)
      return refuse_without_vendor(Symbol::ncclMemFree);
    return finish_vendor(
        call_vendor<decltype(::ncclMemFree)>(*vendor(), Symbol::ncclMemFree, memory));
  });
}
HETCCL_NCCL_PROFILED(ncclMemFree)
