#include "meeting.h"

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace hetccl::torch_backend {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kReminder(10'000);
constexpr milliseconds kFirstLook(50), kLaterLook(2'000);  // intervals for asking `is_over`
constexpr size_t kNamedRanks = 16;
// Exceeds any number of ranks, so that once a rank has left, the count never equals that of all
// ranks.
constexpr int64_t kGone = int64_t{1} << 40U;
const std::vector<uint8_t> kHere{1};

}  // namespace

void forget(c10d::Store& store, std::initializer_list<std::string> keys) noexcept {
  try {
    for (const std::string& key : keys) store.deleteKey(key);
  } catch (const std::exception&) {
    // Failing would be worse than a leftover key: the Store cannot delete.
  }
}

std::string name_missing(c10d::Store& store, int size,
                         const std::function<std::string(int rank)>& key_of) {
  std::string text;
  size_t count = 0;
  try {
    for (int rank = 0; rank < size; ++rank) {
      if (store.check({key_of(rank)}) || ++count > kNamedRanks) continue;
      text += c10::str(text.empty() ? "" : ", ", rank);
    }
  } catch (const std::exception&) {
    return "";
  }
  if (count == 0) return "";
  if (count > kNamedRanks) text += c10::str(" and ", count - kNamedRanks, " more");
  return c10::str(": rank", count > 1 ? "s " : " ", text, " of ", size,
                  count > 1 ? " have" : " has", " not come");
}

Patience::Patience(c10d::Store& store, const GroupRank& self, const char* purpose,
                   milliseconds timeout)
    : store_(store),
      self_(self),
      purpose_(purpose),
      timeout_(timeout),
      begin_(Clock::now()),
      next_reminder_(begin_ + kReminder) {}

bool Patience::wait_for(const std::vector<std::string>& keys, milliseconds longest,
                        const Missing& missing) {
  const auto now = Clock::now();
  const auto end = std::min({begin_ + timeout_, next_reminder_, now + longest});
  const auto turn = std::max(std::chrono::ceil<milliseconds>(end - now), milliseconds(1));
  try {
    store_.wait(keys, turn);
    return true;
  } catch (const std::exception& error) {
    look(Clock::now() < now + turn, error.what(), missing);
  }
  return false;
}

void Patience::rest(milliseconds pause, const Missing& missing) {
  std::this_thread::sleep_for(pause);
  look(false, "nothing", missing);
}

void Patience::look(bool store_failed, const char* store_says, const Missing& missing) {
  const auto now = Clock::now();
  TORCH_CHECK_WITH(DistBackendError, !store_failed && now < begin_ + timeout_, "hetccl: rank ",
                   self_.rank, " of process group '", self_.group, "': not all of its ", self_.size,
                   " ranks have come within ", timeout_.count(), " ms",
                   store_failed ? "" : missing(), "; check that all of them ", purpose_,
                   ". The torch Store says: ", store_says);
  if (now < next_reminder_) return;
  next_reminder_ = now + kReminder;
  const auto waited = std::chrono::floor<std::chrono::seconds>(now - begin_);
  LOG(WARNING) << "hetccl: rank " << self_.rank << " of process group '" << self_.group
               << "' has waited for " << waited.count() << " s" << missing()
               << "; check that all of them " << purpose_;
}

Meeting::Meeting(c10d::Store& store, std::string name, const GroupRank& self)
    : store_(store), name_(std::move(name)), self_(self) {}

std::string Meeting::key_of(int rank) const {
  return c10::str(name_, "/", rank);
}

bool Meeting::meet(Patience& patience, const std::function<bool()>& is_over) {
  store_.set(key_of(self_.rank), kHere);
  if (store_.add(name_ + "/come", 1) == self_.size) store_.set(name_ + "/all", kHere);
  try {
    if (!await_all(patience, is_over)) return false;
  } catch (...) {
    store_.add(name_ + "/come", -1);
    forget(store_, {key_of(self_.rank)});
    throw;
  }
  forget(store_, {key_of(self_.rank)});
  if (store_.add(name_ + "/read", 1) == self_.size) {
    forget(store_, {name_ + "/come", name_ + "/all", name_ + "/read"});
  }
  return true;
}

bool Meeting::await_all(Patience& patience, const std::function<bool()>& is_over) {
  const auto missing = [this] {
    return name_missing(store_, self_.size, [this](int rank) { return key_of(rank); });
  };
  for (milliseconds look = kFirstLook;; look = std::min(2 * look, kLaterLook)) {
    if (patience.wait_for({name_ + "/all"}, is_over ? look : kReminder, missing)) return true;
    if (is_over && is_over()) return leave();
  }
}

// Leaves the meeting. Returns true if all had come before, so that the meeting counts.
bool Meeting::leave() {
  forget(store_, {key_of(self_.rank)});
  if (store_.add(name_ + "/come", -kGone) != self_.size - kGone) return false;
  store_.set(name_ + "/all", kHere);
  return true;
}

}  // namespace hetccl::torch_backend
