#include "rendezvous.h"

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "communicator.h"

namespace hetccl::torch_backend {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr const char* kKey = "hetccl/unique_id";
// What a rank with a mark adds to a count of ranks, besides one.
constexpr int64_t kMarked = int64_t{1} << 32U;
// A rank that waits says for whom, this often.
constexpr milliseconds kReminder(10'000);
constexpr size_t kNamedRanks = 16;
constexpr uint8_t kMade = 1;
constexpr uint8_t kFailed = 0;
constexpr size_t kMostReasonBytes = 4096;
constexpr const char* kMark = "m";
constexpr const char* kNoMark = "-";

std::string random_name() {
  std::random_device device;
  return c10::str(device(), "-", device());
}

std::string binding_key(const std::string& session) {
  return "hetccl/binding/" + session;
}

/// A later process group under the same prefix must not find what this one left.
void forget(c10d::Store& store, std::initializer_list<std::string> keys) noexcept {
  try {
    for (const std::string& key : keys) store.deleteKey(key);
  } catch (const std::exception&) {
    // A store that cannot delete is not worth failing for.
  }
}

/// A place in the store where all ranks of a group meet once.
class Meeting {
 public:
  Meeting(c10d::Store& store, std::string name, int rank, int size, const std::string& group)
      : store_(store),
        name_("hetccl/" + std::move(name)),
        rank_(rank),
        size_(size),
        group_(group) {}

  struct Outcome {
    bool any_mark = false;  ///< some rank has come with its mark
    std::string session;    ///< random, the same on all ranks
  };

  /// Blocks until all ranks have come. `purpose` is what a rank that is missing has yet to do.
  Outcome meet(bool mark, const char* purpose, milliseconds timeout) {
    store_.set(key_of(rank_), std::vector<uint8_t>{1});
    const int64_t mine = mark ? 1 + kMarked : 1;
    const int64_t come = store_.add(name_ + "/come", mine);
    if (come % kMarked == size_) {
      store_.set(name_ + "/all", (come >= kMarked ? kMark : kNoMark) + random_name());
    }
    try {
      await_all(purpose, timeout);
    } catch (...) {
      store_.add(name_ + "/come", -mine);
      forget(store_, {key_of(rank_)});
      throw;
    }
    const std::string all = store_.get_to_str(name_ + "/all");
    forget(store_, {key_of(rank_)});
    if (store_.add(name_ + "/read", 1) == size_) {
      forget(store_, {name_ + "/come", name_ + "/all", name_ + "/read"});
    }
    return {all.substr(0, 1) == kMark, all.substr(1)};
  }

 private:
  void await_all(const char* purpose, milliseconds timeout) {
    const auto begin = Clock::now();
    for (auto turn_end = begin;;) {
      const auto now = Clock::now();
      const auto left = std::chrono::ceil<milliseconds>(begin + timeout - now);
      const milliseconds turn = std::clamp(left, milliseconds(1), kReminder);
      turn_end = now + turn;
      try {
        return store_.wait({name_ + "/all"}, turn);
      } catch (const std::exception& error) {
        const bool timed_out = Clock::now() >= turn_end;
        TORCH_CHECK_WITH(DistBackendError, timed_out && Clock::now() < begin + timeout,
                         "hetccl: rank ", rank_, " of process group '", group_,
                         "': not all of its ", size_, " ranks have come within ", timeout.count(),
                         " ms", timed_out ? missing() : "", "; check that all of them ", purpose,
                         ". The torch Store says: ", error.what());
      }
      const auto waited = std::chrono::floor<std::chrono::seconds>(Clock::now() - begin);
      LOG(WARNING) << "hetccl: rank " << rank_ << " of process group '" << group_
                   << "' has waited for " << waited.count() << " s" << missing()
                   << "; check that all of them " << purpose;
    }
  }

  /// ": ranks 1, 3 of 4 have not come", or nothing where the store does not tell.
  [[nodiscard]] std::string missing() {
    std::string text;
    size_t count = 0;
    try {
      for (int rank = 0; rank < size_; ++rank) {
        if (store_.check({key_of(rank)}) || ++count > kNamedRanks) continue;
        text += c10::str(text.empty() ? "" : ", ", rank);
      }
    } catch (const std::exception&) {
      return "";
    }
    if (count == 0) return "";
    if (count > kNamedRanks) text += c10::str(" and ", count - kNamedRanks, " more");
    return c10::str(": rank", count > 1 ? "s " : " ", text, " of ", size_,
                    count > 1 ? " have" : " has", " not come");
  }

  [[nodiscard]] std::string key_of(int rank) const { return c10::str(name_, "/", rank); }

  c10d::Store& store_;
  const std::string name_;
  const int rank_, size_;
  const std::string& group_;
};

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
  // The reason first, here and below: it may be a setting, and no fault of the network.
  TORCH_CHECK_WITH(DistBackendError, false, "hetccl: ", failure.text, " (rank 0 of process group '",
                   group, "' could not make a unique id)");
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
               milliseconds timeout) {
  auto [any_gpu, session] =
      Meeting(store, "made", rank, size, group)
          .meet(has_gpu, "create the same group with backend \"hetccl\"", timeout);
  return {any_gpu, std::move(session)};
}

void await_first_call(c10d::Store& store, int rank, int size, const std::string& group,
                      milliseconds timeout) {
  Meeting(store, "called", rank, size, group)
      .meet(false, "call the group's first collective", timeout);
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
  std::string reason = value.size() > 1 ? std::string(value.begin() + 1, value.end())
                                        : "the value in the store is malformed";
  // It comes from another process: no control characters, which a terminal acts on, and no flood.
  reason.resize(std::min(reason.size(), kMostReasonBytes));
  std::replace_if(
      reason.begin(), reason.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  TORCH_CHECK_WITH(DistBackendError, false, "hetccl: ", reason, " (rank 0 of process group '",
                   group, "' published no usable unique id)");
}

void forget_unique_id(c10d::Store& store, int rank) noexcept {
  if (rank == 0) forget(store, {kKey});
}

}  // namespace hetccl::torch_backend
