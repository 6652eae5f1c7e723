#include "nccl/vendor_id.h"

#include <unistd.h>

#include <mutex>
#include <optional>
#include <utility>

#include "nccl/vendor.h"

namespace hetccl::nccl {
namespace {

std::mutex kept_mutex;  // guards what follows
std::optional<ncclUniqueId> kept_id;
pid_t kept_by = 0;  // a forked child has no thread behind it

}  // namespace

void VendorId::make() {
  {
    const std::lock_guard lock(kept_mutex);
    auto taken = std::exchange(kept_id, std::nullopt);
    if (taken && kept_by == ::getpid()) {
      id_ = *taken;
      is_unused_ = true;
      return;
    }
  }
  outcome_ = outcome_of_vendor(
      call_vendor<ncclResult_t(ncclUniqueId*)>(*vendor(), Symbol::ncclGetUniqueId, &id_), nullptr);
  is_unused_ = !outcome_.failed();
}

VendorId::~VendorId() {
  if (!is_unused_) return;
  const std::lock_guard lock(kept_mutex);
  kept_id = id_;
  kept_by = ::getpid();
}

}  // namespace hetccl::nccl
