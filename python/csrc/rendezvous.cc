#include "rendezvous.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "communicator.h"
#include "meeting.h"

namespace hetccl::torch_backend {
namespace {

using std::chrono::milliseconds;

// A rank with a mark adds this to a count of ranks, in addition to one.
constexpr int64_t kMarked = int64_t{1} << 32U;
// Pauses between a rank's reads of keys that an earlier attempt may have left.
constexpr milliseconds kFirstPause(5), kLongestPause(500);
// Interval at which a rank checks that no other process has taken its place.
constexpr milliseconds kGlance(1'000);
constexpr uint8_t kMade = 1;
constexpr uint8_t kFailed = 0;
constexpr size_t kMostReasonBytes = 4096;
constexpr char kMark = 'm', kNoMark = '-';
constexpr const char* kPlaces = "hetccl/made/";
constexpr const char* kAttempt = "hetccl/made/attempt";
constexpr const char* kPurpose = "create the same group with backend \"hetccl\"";

std::string random_name() {
  std::random_device device;
  return c10::str(device(), "-", device());
}

std::string place_of(int rank) {
  return c10::str(kPlaces, rank);
}

std::string binding_key(const std::string& session) {
  return "hetccl/binding/" + session;
}

std::string id_key(const std::string& session) {
  return "hetccl/unique_id/" + session;
}

/// One rank's way into an attempt to make a group. A dead attempt may have left anything in the
/// Store, and the Store may be unable to delete. So each rank has a token that no other process and
/// no earlier attempt has. Rank 0 makes a session of the tokens that it finds; a rank enters a
/// session that has its token. A session with the token of a dead process never becomes complete:
/// rank 0 makes another once that process's successor has stored its token. All other keys contain
/// the session's random name.
class Gathering {
 public:
  Gathering(c10d::Store& store, const GroupRank& self, bool mark, milliseconds timeout)
      : store_(store),
        self_(self),
        name_(random_name()),
        mark_(mark ? kMark : kNoMark),
        patience_(store, self, kPurpose, timeout) {}

  Arrival gather() {
    store_.set(place_of(self_.rank), mark_ + name_);
    const std::string session = self_.rank == 0 ? lead() : follow();
    const bool any_mark = std::any_of(tokens_.begin(), tokens_.end(),
                                      [](const auto& token) { return token.front() == kMark; });
    if (is_own(peek(place_of(self_.rank)))) forget(store_, {place_of(self_.rank)});
    if (self_.rank == 0) forget(store_, {kAttempt, tokens_key(session)});
    return {any_mark, session};
  }

 private:
  using Tokens = std::vector<std::string>;

  static std::string tokens_key(const std::string& session) { return kPlaces + session; }

  std::string lead() {
    for (;;) {
      await_tokens();
      const std::string session = random_name();
      store_.set(tokens_key(session), c10::Join("\n", tokens_));
      store_.set(kAttempt, session);
      keep_place();
      if (enter(session, [&] {
            keep_place();
            return peek(kAttempt) != session || peek_tokens() != tokens_;
          })) {
        return session;
      }
      forget(store_, {tokens_key(session)});
    }
  }

  std::string follow() {
    for (std::string last;;) {
      last = await_session(last);
      const auto is_over = [&] {
        keep_place();
        return peek(kAttempt) != last;
      };
      if (enter(last, is_over)) return last;
    }
  }

  bool enter(const std::string& session, const std::function<bool()>& is_over) {
    return Meeting(store_, tokens_key(session), self_).meet(patience_, is_over);
  }

  /// Sets `tokens_` to one token per rank, perhaps of dead processes.
  void await_tokens() {
    std::vector<std::string> places;
    for (int rank = 0; rank < self_.size; ++rank) places.push_back(place_of(rank));
    for (;;) {
      while (!patience_.wait_for(places, kGlance, [this] { return missing(); })) keep_place();
      tokens_ = peek_tokens();
      if (std::find(tokens_.begin(), tokens_.end(), "") == tokens_.end()) return;
    }
  }

  /// Waits for a session other than `last` that rank 0 has made and that contains this rank's
  /// token. Sets `tokens_`.
  std::string await_session(std::string last) {
    for (milliseconds pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
      while (!patience_.wait_for({kAttempt}, kGlance, [this] { return missing(); })) keep_place();
      if (std::string session = peek(kAttempt); session != last) {
        tokens_ = split(peek(tokens_key(session)));
        if (has_own_token()) return session;
        last = std::move(session);
      }
      keep_place();
      patience_.rest(pause, [this] { return missing(); });
    }
  }

  [[nodiscard]] bool has_own_token() const {
    return tokens_.size() == static_cast<size_t>(self_.size) &&
           is_own(tokens_[static_cast<size_t>(self_.rank)]);
  }

  [[nodiscard]] bool is_own(const std::string& token) const {
    return !token.empty() && token.substr(1) == name_;
  }

  /// Throws if another process has come as this rank: the later one is valid. The key may be gone
  /// because that process has left and deleted it.
  void keep_place() {
    TORCH_CHECK_WITH(DistBackendError, is_own(peek(place_of(self_.rank))), "hetccl: rank ",
                     self_.rank, " of process group '", self_.group,
                     "': another process has come as this rank, as after a restart: this one "
                     "belongs to an attempt that has ended; end it");
  }

  /// Returns "" if the key does not exist.
  std::string peek(const std::string& key) {
    return store_.check({key}) ? store_.get_to_str(key) : std::string();
  }

  Tokens peek_tokens() {
    Tokens tokens;
    for (int rank = 0; rank < self_.size; ++rank) tokens.push_back(peek(place_of(rank)));
    return tokens;
  }

  static Tokens split(const std::string& text) {
    Tokens tokens;
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      tokens.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
    return tokens;
  }

  std::string missing() {
    const std::string ranks = name_missing(store_, self_.size, place_of);
    if (!ranks.empty() || self_.rank == 0) return ranks;
    return c10::str(": rank 0 of ", self_.size, " has not come");
  }

  c10d::Store& store_;
  const GroupRank self_;
  const std::string name_;  ///< prefixed by the mark it is this rank's token
  const char mark_;
  Patience patience_;
  Tokens tokens_;  ///< the session's, by rank
};

hetcclUniqueId publish(c10d::Store& store, const std::string& key, const std::string& group) {
  hetcclUniqueId id{};
  const hetcclResult_t result = hetcclGetUniqueId(&id);
  std::vector<uint8_t> value;
  if (result == hetcclSuccess) {
    value.assign(id.internal, id.internal + sizeof(id.internal));
    value.insert(value.begin(), kMade);
    store.set(key, value);
    return id;
  }
  const Failure failure = last_failure(result);
  value.assign(failure.text.begin(), failure.text.end());
  value.insert(value.begin(), kFailed);
  store.set(key, value);
  // States the reason first, here and below: it may be a wrong setting, not the network.
  TORCH_CHECK_WITH(DistBackendError, false, "hetccl: ", failure.text, " (rank 0 of process group '",
                   group, "' could not make a unique id)");
}

std::vector<uint8_t> await(c10d::Store& store, const std::string& key, int rank,
                           const std::string& group, milliseconds timeout) {
  try {
    store.wait({key}, timeout);
    return store.get(key);
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
  return Gathering(store, {rank, size, group}, has_gpu, timeout).gather();
}

void await_first_call(c10d::Store& store, const std::string& session, int rank, int size,
                      const std::string& group, milliseconds timeout) {
  const GroupRank self{rank, size, group};
  Patience patience(store, self, "call the group's first collective", timeout);
  Meeting(store, "hetccl/called/" + session, self).meet(patience);
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

hetcclUniqueId share_unique_id(c10d::Store& store, const std::string& session, int rank,
                               const std::string& group, milliseconds timeout) {
  if (rank == 0) return publish(store, id_key(session), group);
  const std::vector<uint8_t> value = await(store, id_key(session), rank, group, timeout);
  hetcclUniqueId id{};
  if (!value.empty() && value[0] == kMade && value.size() == 1 + sizeof(id.internal)) {
    std::memcpy(id.internal, value.data() + 1, sizeof(id.internal));
    return id;
  }
  std::string reason = value.size() > 1 ? std::string(value.begin() + 1, value.end())
                                        : "the value in the store is malformed";
  // The text comes from another process: removes control characters, which terminals interpret, and
  // limits the length.
  reason.resize(std::min(reason.size(), kMostReasonBytes));
  std::replace_if(
      reason.begin(), reason.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  TORCH_CHECK_WITH(DistBackendError, false, "hetccl: ", reason, " (rank 0 of process group '",
                   group, "' published no usable unique id)");
}

void forget_unique_id(c10d::Store& store, const std::string& session, int rank) noexcept {
  if (rank == 0) forget(store, {id_key(session)});
}

}  // namespace hetccl::torch_backend
