#include "comm/gathering.h"

#include <algorithm>
#include <cstring>

namespace hetccl::comm {
namespace {

constexpr size_t kHead = 2 + sizeof(uint64_t);  // the mark, the kind, and the number
constexpr std::chrono::milliseconds kLook{20};  // polls for events that nothing announces
constexpr size_t kMostNamed = 8;

std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < std::min(ranks.size(), kMostNamed); ++i)
    text += format("%s%d", i == 0 ? "" : ", ", ranks[i]);
  return ranks.size() > kMostNamed ? text + ", ..." : text;
}

bool has(const std::vector<uint8_t>& bits, size_t rank) {
  return (bits[rank / 8] >> (rank % 8) & 1U) != 0;
}

}  // namespace

Result<bootstrap::UniqueId> Gathering::agree(const std::vector<int>& members, const MakeId& make_id,
                                             TimePoint deadline, const Cancel& cancel) {
  const int leader = members.front();
  const Limit limit{deadline, cancel};
  return leader == of_.session().rank() ? lead(members, make_id, limit)
                                        : follow(leader, members, limit);
}

// One bit for each rank of the communicator.
Gathering::Bytes Gathering::ask_of(const std::vector<int>& members) const {
  Bytes bits((static_cast<size_t>(of_.session().n_ranks()) + 7) / 8);
  for (const int rank : members) {
    uint8_t& byte = bits[static_cast<size_t>(rank) / 8];
    byte = static_cast<uint8_t>(byte | 1U << (rank % 8));
  }
  return bits;
}

Result<bootstrap::UniqueId> Gathering::lead(const std::vector<int>& members, const MakeId& make_id,
                                            const Limit& limit) {
  Status status = await_asks(members, limit);
  if (status.ok()) status = compare_asks(members);
  Result<bootstrap::UniqueId> id = status.ok() ? make_id() : status;
  if (id.ok()) {
    answer(members, Kind::Id, {id->begin(), id->end()});
  } else {
    const std::string text = format("rank %d: %s", members.front(), id.status().message().c_str());
    Bytes bytes = {static_cast<uint8_t>(id.status().code())};
    bytes.insert(bytes.end(), text.begin(), text.end());
    bytes.resize(std::min(bytes.size(), bootstrap::kMaxNote - kHead));
    answer(members, Kind::Refusal, bytes);
  }
  return id;
}

bool Gathering::has_asked(int member) {
  return asked_[member].number > answered_[member].number;
}

// Fails if a member has left. Every rank learns of departures, so a late caller does not wait for
// an answer.
Status Gathering::check_left(const std::vector<int>& members) const {
  for (const int rank : members) {
    if (of_.has_left(rank)) {
      return error(ErrorCode::RemoteError, "rank %d has left the communicator: exclude it, too",
                   rank);
    }
  }
  return {};
}

Status Gathering::await_asks(const std::vector<int>& members, const Limit& limit) {
  std::unique_lock lock(mutex_);
  for (;;) {
    std::vector<int> missing;
    for (const int rank : members) {
      if (rank != of_.session().rank() && !has_asked(rank)) missing.push_back(rank);
    }
    if (missing.empty()) return {};
    HETCCL_TRY(check_left(missing));
    HETCCL_ASSIGN(const bool in_time, await_news(lock, limit));
    if (in_time) continue;
    return error(ErrorCode::Timeout, "rank %s has not called hetcclCommShrink: exclude it, too",
                 list_of(missing).c_str());
  }
}

Status Gathering::compare_asks(const std::vector<int>& members) {
  const Bytes mine = ask_of(members);
  const std::lock_guard lock(mutex_);
  for (const int rank : members) {
    if (rank == of_.session().rank()) continue;
    const Bytes& theirs = asked_[rank].bytes;
    if (theirs == mine) continue;
    if (theirs.size() != mine.size())
      return error(ErrorCode::RemoteError, "rank %d sent a malformed note", rank);
    size_t other = 0;
    while (has(mine, other) == has(theirs, other)) ++other;
    const int by = has(mine, other) ? rank : members.front();
    return error(ErrorCode::InvalidUsage,
                 "rank %d excludes rank %zu, rank %d does not: pass the same list on all ranks "
                 "that stay",
                 by, other, by == rank ? members.front() : rank);
  }
  return {};
}

void Gathering::answer(const std::vector<int>& members, Kind kind, const Bytes& bytes) {
  for (const int rank : members) {
    Note note{0, bytes, kind};
    {
      const std::lock_guard lock(mutex_);
      if (rank == of_.session().rank() || !has_asked(rank)) continue;
      note.number = asked_[rank].number;
      answered_[rank] = note;
    }
    static_cast<void>(send_note(rank, note));  // a rank that has failed reports it by other means
  }
}

Result<bootstrap::UniqueId> Gathering::read_answer(int leader, const Note& heard) const {
  constexpr auto kLast = static_cast<uint8_t>(ErrorCode::Unsupported);
  const Bytes& bytes = heard.bytes;
  bootstrap::UniqueId id;
  if (heard.kind == Kind::Id && bytes.size() == id.size()) {
    std::copy(bytes.begin(), bytes.end(), id.begin());
    return id;
  }
  if (heard.kind != Kind::Refusal || bytes.empty() || bytes[0] == 0 || bytes[0] > kLast)
    return error(ErrorCode::RemoteError, "rank %d sent a malformed note", leader);
  return Status(static_cast<ErrorCode>(bytes[0]), {bytes.begin() + 1, bytes.end()});
}

Result<bootstrap::UniqueId> Gathering::follow(int leader, const std::vector<int>& members,
                                              const Limit& limit) {
  const Note ask{++asks_, ask_of(members), Kind::Ask};
  const Status status = await_answer(ask, members, limit);
  if (!status.ok()) {  // else the leader would take it for an answer to its next call
    static_cast<void>(send_note(leader, {ask.number, {}, Kind::Withdrawal}));
    return status;
  }
  const std::lock_guard lock(mutex_);
  return read_answer(leader, heard_[leader]);
}

Status Gathering::await_answer(const Note& ask, const std::vector<int>& members,
                               const Limit& limit) {
  const int leader = members.front();
  const auto& clock = steady_clock();
  TimePoint due = clock.now();
  for (std::unique_lock lock(mutex_); heard_[leader].number != ask.number;) {
    HETCCL_TRY(check_left(members));
    if (clock.now() >= due) {
      due += reminder_;
      lock.unlock();
      HETCCL_TRY(send_note(leader, ask));
      lock.lock();
      continue;
    }
    HETCCL_ASSIGN(const bool in_time, await_news(lock, limit));
    if (in_time) continue;
    return error(ErrorCode::Timeout,
                 "rank %d, the lowest that stays, has not called hetcclCommShrink, or waits for "
                 "others: pass the same list on all ranks that stay",
                 leader);
  }
  return {};
}

// Waits for a note. Returns false at the deadline; true: something may have changed.
Result<bool> Gathering::await_news(std::unique_lock<std::mutex>& lock, const Limit& limit) {
  lock.unlock();
  const Status ended = of_.ended();
  lock.lock();
  HETCCL_TRY(ended);
  HETCCL_TRY(limit.cancel.reason());
  if (steady_clock().now() >= limit.deadline) return false;
  news_.wait_for(lock, kLook);
  return true;
}

Status Gathering::send_note(int to, const Note& note) {
  Bytes bytes(kHead + note.bytes.size());
  bytes[0] = kMark;
  bytes[1] = static_cast<uint8_t>(note.kind);
  std::memcpy(&bytes[2], &note.number, sizeof note.number);
  std::copy(note.bytes.begin(), note.bytes.end(), bytes.begin() + kHead);
  return of_.session().send_note(to, std::move(bytes));
}

void Gathering::on_note(int from, std::span<const uint8_t> note) {
  if (note.size() < kHead || note[1] > static_cast<uint8_t>(Kind::Refusal)) return;
  Note heard{0, {note.begin() + kHead, note.end()}, static_cast<Kind>(note[1])};
  std::memcpy(&heard.number, &note[2], sizeof heard.number);
  Note again;
  {
    const std::lock_guard lock(mutex_);
    if (heard.kind == Kind::Withdrawal) {
      if (asked_[from].number == heard.number) asked_.erase(from);
    } else if (heard.kind != Kind::Ask) {
      heard_[from] = std::move(heard);
    } else if (const Note& last = answered_[from]; last.number >= heard.number) {
      if (last.number == heard.number) again = last;
    } else {
      asked_[from] = std::move(heard);
    }
  }
  news_.notify_all();
  if (again.number > 0) static_cast<void>(send_note(from, again));  // its answer was lost
}

}  // namespace hetccl::comm
