#include "rendezvous.h"

#include <c10/util/Exception.h>

#include <cstring>
#include <vector>

#include "communicator.h"

namespace hetccl::torch_backend {
namespace {

constexpr const char* kKey = "hetccl/unique_id";
constexpr uint8_t kMade = 1;
constexpr uint8_t kFailed = 0;

hetcclUniqueId publish(c10d::Store& store, const std::string& group) {
  hetcclUniqueId id{};
  const hetcclResult_t result = hetcclGetUniqueId(&id);
  std::vector<uint8_t> value;
  if (result == hetcclSuccess) {
    value.assign(id.internal, id.internal + sizeof(id.internal));
    value.insert(value.begin(), kMade);
    store.set(kKey, value);
    return id;
  }
  const Failure failure = last_failure(result);
  value.assign(failure.text.begin(), failure.text.end());
  value.insert(value.begin(), kFailed);
  store.set(kKey, value);
  TORCH_CHECK_WITH(DistBackendError, false, "hetccl: rank 0 of process group '", group,
                   "' could not make a unique id: ", failure.text);
}

std::vector<uint8_t> await(c10d::Store& store, int rank, const std::string& group,
                           std::chrono::milliseconds timeout) {
  try {
    store.wait({kKey}, timeout);
    return store.get(kKey);
  } catch (const std::exception& error) {
    TORCH_CHECK_WITH(DistBackendError, false, "hetccl: rank ", rank, " of process group '", group,
                     "' got no unique id from rank 0 within ", timeout.count(),
                     " ms; check that rank 0 runs and creates the same group with backend "
                     "\"hetccl\". The torch Store says: ",
                     error.what());
  }
}

}  // namespace

hetcclUniqueId share_unique_id(c10d::Store& store, int rank, const std::string& group,
                               std::chrono::milliseconds timeout) {
  if (rank == 0) return publish(store, group);
  const std::vector<uint8_t> value = await(store, rank, group, timeout);
  hetcclUniqueId id{};
  if (!value.empty() && value[0] == kMade && value.size() == 1 + sizeof(id.internal)) {
    std::memcpy(id.internal, value.data() + 1, sizeof(id.internal));
    return id;
  }
  const std::string reason =
      value.size() > 1 ? std::string(value.begin() + 1, value.end()) : "the value is malformed";
  TORCH_CHECK_WITH(DistBackendError, false, "hetccl: rank 0 of process group '", group,
                   "' published no usable unique id: ", reason);
}

void forget_unique_id(c10d::Store& store, int rank) noexcept {
  if (rank != 0) return;
  try {
    store.deleteKey(kKey);
  } catch (const std::exception&) {
    // A store that cannot delete is not worth failing for: the id is only found by a later group
    // under the same prefix, whose rank 0 overwrites it.
  }
}

}  // namespace hetccl::torch_backend
