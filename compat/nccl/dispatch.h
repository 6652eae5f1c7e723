// How a call finds the library that serves its communicator.
#pragma once

#include <type_traits>

#include "nccl/group.h"
#include "nccl/handles.h"
#include "nccl/outcome.h"
#include "nccl/vendor.h"

#define HETCCL_NCCL_EXPORT extern "C" __attribute__((visibility("default")))
// NCCL's functions have a second name, under which profilers find them.
#define HETCCL_NCCL_PROFILED(name) \
  HETCCL_NCCL_EXPORT decltype(name) p##name __attribute__((alias(#name)));

namespace hetccl::nccl {

/// Refuses a call of a communicator that no library serves: not yet, not any more, or it failed.
ncclResult_t refuse_call(Handle& handle, Symbol symbol);
ncclResult_t refuse_without_vendor(Symbol symbol);

/// Refuses what a mixed communicator has no call for: only the vendors' libraries could do it.
ncclResult_t refuse_mixed(Handle& handle, Symbol symbol);

/// Calls `of_vendor(its communicator)`, or `of_mixed(hetccl's)` or `of_mixed(handle)`. A
/// communicator that was not made here is one of the vendor's own.
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

/// Calls a vendor's function that may be part of a group, or refuses where there is none.
template <typename Function, typename... Args>
ncclResult_t pass_to_vendor(Symbol symbol, Args... args) {
  if (vendor() == nullptr || vendor()->find(symbol) == nullptr)
    return refuse_without_vendor(symbol);
  if (const auto begun = Group::of_this_thread().enter_vendor(); begun != ncclSuccess) return begun;
  return finish_vendor(call_vendor<Function>(*vendor(), symbol, args...));
}

}  // namespace hetccl::nccl

// A function that either library serves, by `comm`: in the last two `own` is the vendor's
// communicator, `mixed` hetccl's.
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
