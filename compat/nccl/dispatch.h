// Dispatches a call to the library that serves its communicator.
#pragma once

#include <type_traits>

#include "nccl/group.h"
#include "nccl/handles.h"
#include "nccl/outcome.h"
#include "nccl/vendor.h"

#define HETCCL_NCCL_EXPORT extern "C" __attribute__((visibility("default")))
// Adds the second name of an NCCL function, which profilers intercept.
#define HETCCL_NCCL_PROFILED(name) \
  HETCCL_NCCL_EXPORT decltype(name) p##name __attribute__((alias(#name)));

namespace hetccl::nccl {

/// Refuses a call on a communicator that no library serves: it is being set up, has ended, or has
/// failed.
ncclResult_t refuse_call(Handle& handle, Symbol symbol);
ncclResult_t refuse_without_vendor(Symbol symbol);

/// Refuses a call that a mixed communicator lacks: only a vendor's library could serve it.
ncclResult_t refuse_mixed(Handle& handle, Symbol symbol);

/// Calls `of_vendor` with the vendor's communicator, or `of_mixed` with hetccl's communicator or
/// with the handle. A communicator that was not made here belongs to the vendor's library.
template <typename OfVendor, typename OfMixed>
ncclResult_t dispatch(ncclComm_t comm, Symbol symbol, const OfVendor& of_vendor,
                      const OfMixed& of_mixed) noexcept {
  const ncclResult_t code = guarded([&]() -> ncclResult_t {
    Handle* const handle = handle_of(comm);
    const HandleState state = handle != nullptr ? handle->state.load(std::memory_order_acquire)
                              : comm != nullptr ? HandleState::Vendor
                                                : HandleState::Free;
    if (comm == nullptr)
      return refuse(ncclInvalidArgument, std::string(name_of(symbol)) + ": comm is null");
    if (state == HandleState::Vendor) {
      if (vendor() == nullptr || vendor()->find(symbol) == nullptr)
        return refuse_without_vendor(symbol);
      if (const auto begun = Group::of_this_thread().enter_vendor(); begun != ncclSuccess)
        return begun;
      const VendorScope inside;
      return finish_vendor(of_vendor(handle != nullptr ? handle->vendor.load() : comm));
    }
    if (state != HandleState::Mixed) return refuse_call(*handle, symbol);
    if constexpr (std::is_invocable_v<OfMixed, Handle&>) {
      return of_mixed(*handle);
    } else {
      if (const auto begun = Group::of_this_thread().enter_mixed(); begun != ncclSuccess)
        return begun;
      const hetcclComm_t mixed = handle->mixed.load();
      const hetcclResult_t result = of_mixed(mixed);
      return result == hetcclSuccess ? ncclSuccess : finish(outcome_of(result, mixed));
    }
  });
  if (code != ncclSuccess && code != ncclInProgress) Group::of_this_thread().note_refusal(code);
  return code;
}

/// Calls a vendor function that may be part of a group. Refuses if there is no such function.
template <typename Function, typename... Args>
ncclResult_t pass_to_vendor(Symbol symbol, Args... args) {
  if (vendor() == nullptr || vendor()->find(symbol) == nullptr)
    return refuse_without_vendor(symbol);
  if (const auto begun = Group::of_this_thread().enter_vendor(); begun != ncclSuccess) return begun;
  return finish_vendor(call_vendor<Function>(*vendor(), symbol, args...));
}

}  // namespace hetccl::nccl

// Defines a function that either library serves, depending on `comm`. In the last two arguments
// `own` is the vendor's communicator and `mixed` is hetccl's.
#define HETCCL_NCCL_CALL(name, parameters, of_vendor, of_mixed)                    \
  HETCCL_NCCL_EXPORT ncclResult_t name parameters {                                \
    return hetccl::nccl::dispatch(                                                 \
        comm, hetccl::nccl::Symbol::name,                                          \
        [&](ncclComm_t own) {                                                      \
          return reinterpret_cast<decltype(&::name)>(                              \
              hetccl::nccl::vendor()->find(hetccl::nccl::Symbol::name)) of_vendor; \
        },                                                                         \
        [&](hetcclComm_t mixed) { return of_mixed; });                             \
  }                                                                                \
  HETCCL_NCCL_PROFILED(name)
