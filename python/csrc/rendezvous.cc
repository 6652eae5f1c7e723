#include "rendezvous.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <cstring>
#include <initializer_list>
#include <random>
#include <vector>

#include "communicator.h"

namespace hetccl::torch_backend {
namespace {

constexpr const char* kKey = "hetccl/unique_id";
// Counts the ranks that have come; those with a GPU also count kMarked.
constexpr const char* kComeKey = "hetccl/come";
constexpr const char* kArrivalKey = "hetccl/arrival";
constexpr const char* kReadKey = "hetccl/read";
constexpr int64_t kMarked = int64_t{1} << 32U;
constexpr uint8_t kMade = 1;
constexpr uint8_t kFailed = 0;
constexpr const char* kGpuMark = "g";
constexpr const char* kNoGpuMark = "h";

std::string random_name() {
  std::random_device device;
  return c10::str(device(), "-", device());
}

std::string binding_key(const std::string& session) {
  return "hetccl/binding/" + session;
}

/// A later process group under the same prefix must not find what this one left.
void forget(c10d::Store& store, std::initializer_list<const char*> keys) noexcept {
  try {
    for (const char* key : keys) store.deleteKey(key);
  } catch (const std::exception&) {
    // A store that cannot delete is not worth failing for.
  }
}

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

Arrival arrive(c10d::Store& store, int rank, int size, bool has_gpu, const std::string& group,
               std::chrono::milliseconds timeout) {
  const int64_t mine = has_gpu ? 1 + kMarked : 1;
  const int64_t come = store.add(kComeKey, mine);
  if (come % kMarked == size) {
    store.set(kArrivalKey, (come >= kMarked ? kGpuMark : kNoGpuMark) + random_name());
  }
  std::string value;
  try {
    store.wait({kArrivalKey}, timeout);
    value = store.get_to_str(kArrivalKey);
  } catch (const std::exception& error) {
    store.add(kComeKey, -mine);
    TORCH_CHECK_WITH(DistBackendError, false, "hetccl: rank ", rank, " of process group '", group,
                     "': not all of its ", size, " ranks have come within ", timeout.count(),
                     " ms; check that all of them create the same group with backend \"hetccl\". "
                     "The torch Store says: ",
                     error.what());
  }
  if (store.add(kReadKey, 1) == size) forget(store, {kComeKey, kArrivalKey, kReadKey});
  return {value.substr(0, 1) == kGpuMark, value.substr(1)};
}

void declare_binding(c10d::Store& store, const std::string& session, int size, bool bound) {
  const int64_t come = store.add("hetccl/declared/" + session, bound ? 1 + kMarked : 1);
  if (come % kMarked != size) return;
  const int64_t marked = come / kMarked;
  const auto binding = marked == 0 ? Binding::None : marked == size ? Binding::All : Binding::Some;
  store.set(binding_key(session), std::vector<uint8_t>{static_cast<uint8_t>(binding)});
}

Binding await_binding(c10d::Store& store, const std::string& session, int rank,
                      const std::string& group, std::chrono::milliseconds timeout) {
  const std::string key = binding_key(session);
  try {
    store.wait({key}, timeout);
    return static_cast<Binding>(store.get(key).at(0));
  } catch (const std::exception& error) {
    TORCH_CHECK_WITH(DistBackendError, false, "hetccl: rank ", rank, " of process group '", group,
                     "': not all ranks have finished making it within ", timeout.count(),
                     " ms. The torch Store says: ", error.what());
  }
}

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
  if (rank == 0) forget(store, {kKey});
}

}  // namespace hetccl::torch_backend
