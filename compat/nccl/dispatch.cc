#include "nccl/dispatch.h"

namespace hetccl::nccl {

ncclResult_t refuse_call(Handle& handle, Symbol symbol) {
  const auto communicator = communicator_of(handle);
  const std::string call = name_of(symbol);
  if (communicator == nullptr)
    return refuse(ncclInvalidArgument, call + ": the communicator was destroyed");
  Outcome outcome = communicator->outcome();
  if (outcome.failed()) {
    outcome.text = call + ": the communicator failed when it was made: " + outcome.text;
    return finish(outcome);
  }
  return refuse(ncclInvalidUsage,
                call +
                    ": the communicator is still being made: end the group that makes it, or "
                    "wait until ncclCommGetAsyncError is no longer ncclInProgress");
}

ncclResult_t refuse_mixed(Handle& handle, Symbol symbol) {
  const auto communicator = communicator_of(handle);
  const std::string call = name_of(symbol);
  return refuse(ncclInvalidUsage,
                call +
                    ": only a vendor's library has it, and none serves all ranks of this "
                    "communicator (" +
                    (communicator != nullptr ? communicator->describe() : "") + ")");
}

ncclResult_t refuse_without_vendor(Symbol symbol) {
  const std::string call = name_of(symbol);
  if (vendor() == nullptr) {
    return refuse(
        ncclInvalidUsage,
        call + " takes the library of a GPU's vendor, and there is none here: " + why_no_vendor());
  }
  return refuse(ncclInvalidUsage, call + " is not in " + vendor()->path);
}

}  // namespace hetccl::nccl
