// Registers the user's memory with the cluster's library and the transports.
#include "comm/dispatch.h"

namespace hetccl::comm {

Result<uintptr_t> Dispatch::register_memory(void* memory, size_t bytes) {
  HETCCL_TRY(check_ready());
  UserRegistration registration;
  // Transports otherwise learn of allocations when calls use them. Memory that they refuse is
  // staged instead.
  if (exec::RegisteredMemory* const known = context_.runtime.memory_of(*device_);
      known != nullptr && on_host_memory()) {
    auto kept = known->keep(memory, bytes);
    if (kept.ok()) registration.hold = std::move(kept).value();
    if (!kept.ok())
      context_.runtime.log().info("hetcclCommRegister: %s", kept.status().message().c_str());
  }
  const std::lock_guard lock(launch_mutex_);
  HETCCL_ASSIGN(registration.by_library, fabric_.ccl().register_memory(memory, bytes));
  if (registration.by_library == nullptr && registration.hold == nullptr) return uintptr_t{0};
  registrations_[++last_registration_] = std::move(registration);
  return last_registration_;
}

Status Dispatch::deregister_memory(uintptr_t number) {
  HETCCL_TRY(known());
  const std::lock_guard lock(launch_mutex_);
  const auto found = registrations_.extract(number);
  if (found.empty()) {
    return error(ErrorCode::InvalidArgument,
                 "handle is none of hetcclCommRegister's on this communicator, or was "
                 "deregistered");
  }
  if (found.mapped().by_library == nullptr) return {};
  // A library that ended with the communicator's failure has dropped its registrations.
  const Status status = fabric_.ccl().deregister_memory(found.mapped().by_library);
  return verdict_.failed() ? Status() : status;
}

}  // namespace hetccl::comm
