#include "bootstrap/job.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/descriptors.h"
#include "bootstrap/compact.h"

namespace hetccl::bootstrap {

namespace {

using std::chrono::milliseconds;

// Collects departures before telling them: usually all ranks leave, and nobody is left to tell.
constexpr milliseconds kDepartureDelay(100);

std::string name(const Join& rank) {
  return format("rank %d (%s)", rank.rank, rank.description.c_str());
}

}  // namespace

class Job::Member final : public Connection::Owner {
 public:
  Member(Job& job, std::shared_ptr<Connection> its_connection, Join its_join)
      : connection(std::move(its_connection)), join(std::move(its_join)), job_(job) {}
  ~Member() override { connection->abandon(this); }
  void on_frame(const Header& header, std::span<const uint8_t> payload) override {
    job_.on_frame(*this, header, payload);
  }
  void on_closed(const std::string& why) override { job_.fail_lost_rank(*this, why); }

  std::shared_ptr<Connection> connection;
  Join join;
  bool left = false;
  uint64_t called = 0;      ///< once it has left
  bool lost_notes = false;  ///< already logged
  std::optional<Bytes> contribution;

 private:
  Job& job_;
};

Job::Job(Loop& loop, Options options) : loop_(loop), options_(std::move(options)) {}

Job::~Job() = default;

bool Job::complete() const {
  return n_ranks_ > 0 && members_.size() == static_cast<size_t>(n_ranks_);
}

bool Job::has_local_ranks() const {
  return std::any_of(members_.begin(), members_.end(), [this](const auto& entry) {
    return entry.second->join.service == options_.service && !entry.second->left;
  });
}

std::optional<Failure> Job::check_join(const Join& join) const {
  const std::string who = name(join);
  if (join.n_ranks < 1 || join.n_ranks > kMaxRanks) {
    return Failure{ErrorCode::InvalidArgument, join.rank,
                   format("%s asks for a communicator of %d ranks: 1 to %d are possible",
                          who.c_str(), join.n_ranks, kMaxRanks)};
  }
  if (join.rank < 0 || join.rank >= join.n_ranks) {
    return Failure{ErrorCode::InvalidArgument, join.rank,
                   format("%s is out of range: this communicator's ranks are 0 to %d", who.c_str(),
                          join.n_ranks - 1)};
  }
  if (members_.empty()) {
    const Status room = reserve_descriptors(static_cast<size_t>(join.n_ranks));
    if (room.ok()) return std::nullopt;
    return Failure{room.code(), -1, "the coordinator: " + room.message()};
  }
  const Join& first = members_.begin()->second->join;
  if (join.n_ranks != n_ranks_) {
    return Failure{ErrorCode::InvalidArgument, join.rank,
                   format("ranks disagree on the communicator's size: %s says %d, %s says %d",
                          name(first).c_str(), n_ranks_, who.c_str(), join.n_ranks)};
  }
  if (const auto same = members_.find(join.rank); same != members_.end()) {
    return Failure{
        ErrorCode::InvalidArgument, join.rank,
        format("rank %d was given twice, to %s and to %s: every process needs its own "
               "number",
               join.rank, same->second->join.description.c_str(), join.description.c_str())};
  }
  return std::nullopt;
}

void Job::join(std::shared_ptr<Connection> connection, Join join) {
  if (const auto failure = check_join(join)) return refuse_or_fail(*connection, *failure);
  n_ranks_ = join.n_ranks;
  const TimePoint deadline = loop_.now() + bounded_wait(join.remaining_ms);
  const int64_t timeout_ms = join.timeout_ms;
  auto member = std::make_unique<Member>(*this, std::move(connection), std::move(join));
  member->connection->hand_over(member.get(), kMaxPayload);
  const int32_t rank = member->join.rank;
  members_.emplace(rank, std::move(member));
  if (deadline < join_deadline_) {
    join_deadline_ = deadline;
    if (join_timer_) loop_.cancel(*join_timer_);
    join_timer_ = loop_.at(deadline, [this, timeout_ms] { on_join_timeout(timeout_ms); });
  }
  if (!reminder_) {
    reminder_.emplace();
    remind_timer_ = loop_.at(reminder_->next(), [this] { remind(); });
  }
  if (!tick_timer_) tick_timer_ = loop_.at(loop_.now() + tick_period(), [this] { tick(); });
  if (complete()) send_welcome();
}

void Job::refuse_or_fail(Connection& newcomer, const Failure& failure) {
  newcomer.send(encode(FrameType::Failed, failure));
  newcomer.finish();
  refuse_rank(failure);
}

void Job::refuse_rank(const Failure& failure) {
  if (!complete()) fail(failure);
}

void Job::note_refused(int32_t rank, const std::string& why) {
  refused_ = format("; a process that claimed to be rank %d was refused: %s", rank, why.c_str());
}

void Job::send_welcome() {
  for (auto* timer : {&join_timer_, &remind_timer_}) {
    loop_.cancel(**timer);
    timer->reset();
  }
  Welcome welcome;
  for (const auto& [rank, member] : members_) {
    if (member->join.service != options_.service) continue;
    welcome = {rank, member->join.description};
    break;
  }
  const Bytes frame = encode(welcome);
  for (const auto& [rank, member] : members_) member->connection->send(frame);
}

std::vector<int32_t> Job::missing() const {
  std::vector<int32_t> ranks;
  for (int32_t rank = 0; rank < n_ranks_; ++rank) {
    if (members_.count(rank) == 0) ranks.push_back(rank);
  }
  return ranks;
}

// Logs the missing ranks. Joined ranks log nothing, because they only know that some rank is
// missing.
void Job::remind() {
  if (reminder_->is_due()) {
    options_.log.warn(
        "waiting for %s of %d at %s for %lld s: check that they run and reach this address, else "
        "%s%s",
        rank_list(missing()).c_str(), n_ranks_, options_.where.c_str(),
        static_cast<long long>(reminder_->seconds()), net::kReachRemedy, refused_.c_str());
  }
  remind_timer_ = loop_.at(reminder_->next(), [this] { remind(); });
}

void Job::on_join_timeout(int64_t timeout_ms) {
  join_timer_.reset();
  const std::vector<int32_t> absent = missing();
  fail({ErrorCode::Timeout, absent.front(),
        format("%s of %d never came within %lld ms to %s: check that they run and reach this "
               "address, else %s%s",
               rank_list(absent).c_str(), n_ranks_, static_cast<long long>(timeout_ms),
               options_.where.c_str(), net::kReachRemedy, refused_.c_str())});
}

void Job::on_frame(Member& member, const Header& header, std::span<const uint8_t> payload) {
  if (header.type == FrameType::Heartbeat) return;
  if (header.type == FrameType::Leave) {
    if (const auto called = decode_number(payload)) return leave(member, *called);
  }
  if (header.type == FrameType::Report) {
    if (const auto failure = decode_failure(payload)) return fail(*failure);
  }
  if (header.type == FrameType::Stalled && complete()) {
    if (auto stall = decode_stall(payload)) return inquire(std::move(*stall));
  }
  if (header.type == FrameType::Whereabouts && inquest_) {
    if (auto position = decode_position(payload)) return answer(member, std::move(*position));
  }
  if (header.type == FrameType::Contribution && complete()) {
    const auto contribution = decode_contribution(payload);
    const bool expected =
        contribution && contribution->sequence == gather_sequence_ && !member.contribution;
    if (expected) return contribute(member, *contribution);
  }
  if (header.type == FrameType::Note && complete()) {
    const auto note = decode_note(payload);
    if (note && relay(member, *note)) return;
  }
  fail_lost_rank(member, "it broke the control plane's protocol");
}

// Returns false for a receiver that does not exist.
bool Job::relay(const Member& sender, const Note& note) {
  const bool to_all = note.peer == kEveryone || note.peer == kAll;
  if (!to_all && members_.count(note.peer) == 0) return false;
  const auto frame =
      std::make_shared<const Bytes>(encode(FrameType::Noted, Note{sender.join.rank, note.bytes}));
  for (const auto& [rank, member] : members_) {
    const bool excepted = note.peer == kEveryone && member.get() == &sender;
    const bool receives = to_all ? !excepted : rank == note.peer;
    if (!receives || member->left || member->connection->send_note(frame)) continue;
    if (!std::exchange(member->lost_notes, true)) {
      options_.log.info("%s reads too slowly: notes of other ranks to it are dropped",
                        name(member->join).c_str());
    }
  }
  return true;
}

void Job::contribute(Member& member, const Contribution& contribution) {
  member.contribution.emplace(contribution.bytes.begin(), contribution.bytes.end());
  ++n_contributions_;
  if (n_contributions_ == members_.size()) return send_gathered();
  for (const auto& [rank, other] : members_) {
    if (!other->left || other->contribution) continue;
    return fail({ErrorCode::RemoteError, rank,
                 name(other->join) + " left the communicator while others exchange data"});
  }
  const TimePoint deadline = loop_.now() + bounded_wait(contribution.timeout_ms);
  if (deadline >= gather_deadline_) return;
  gather_deadline_ = deadline;
  if (gather_timer_) loop_.cancel(*gather_timer_);
  gather_timer_ =
      loop_.at(deadline, [this, ms = contribution.timeout_ms] { on_gather_timeout(ms); });
}

void Job::send_gathered() {
  if (gather_timer_) loop_.cancel(*gather_timer_);
  gather_timer_.reset();
  gather_deadline_ = TimePoint::max();
  std::vector<Bytes> parts;
  parts.reserve(members_.size());
  for (const auto& [rank, member] : members_) parts.push_back(std::move(*member->contribution));
  for (const auto& [rank, member] : members_) member->contribution.reset();
  Bytes concatenation = concatenate(parts);
  const size_t expanded = concatenation.size();
  const auto all = std::make_shared<const Bytes>(compact(std::move(concatenation)));
  size_t begin = 0;
  do {
    const size_t end = std::min(begin + kMaxContribution, all->size());
    const std::span piece = std::span(*all).subspan(begin, end - begin);
    const Bytes head =
        encode_without_bytes({gather_sequence_, expanded, all->size(), begin, piece});
    for (const auto& [rank, member] : members_) member->connection->send(head, {all, begin, end});
    begin = end;
  } while (begin < all->size());
  n_contributions_ = 0;
  ++gather_sequence_;
}

void Job::on_gather_timeout(int64_t timeout_ms) {
  gather_timer_.reset();
  std::vector<int32_t> missing;
  for (const auto& [rank, member] : members_) {
    if (!member->contribution) missing.push_back(rank);
  }
  // A contribution cannot be taken back, so a late rank's would match nothing: the communicator has
  // failed.
  fail({ErrorCode::Timeout, missing.front(),
        format("%s of %d did not enter the exchange within %lld ms", rank_list(missing).c_str(),
               n_ranks_, static_cast<long long>(timeout_ms))});
}

void Job::leave(Member& member, uint64_t called) {
  if (!complete()) return fail_lost_rank(member, "it gave up before all ranks had joined");
  member.left = true;
  member.called = called;
  member.connection->finish();
  if (++n_left_ == members_.size()) return end(std::nullopt);
  if (n_contributions_ > 0 && !member.contribution) {
    return fail({ErrorCode::RemoteError, member.join.rank,
                 name(member.join) + " left the communicator while others exchange data"});
  }
  departures_.push_back({member.join.rank, called});
  if (!departure_timer_) {
    departure_timer_ = loop_.at(loop_.now() + kDepartureDelay, [this] { send_departures(); });
  }
  if (inquest_) {
    inquest_->add_departure(member.join.rank, called);
    if (inquest_->complete()) return conclude();
  }
  if (member.join.service != options_.service || said_farewell_) return;
  // This process may end in order from now on, because nobody here waits for it.
  send_departures();
  said_farewell_ = true;
  for (const auto& [rank, other] : members_) {
    if (!other->left) other->connection->send(encode_empty(FrameType::Farewell));
  }
}

void Job::send_departures() {
  if (departure_timer_) loop_.cancel(*departure_timer_);
  departure_timer_.reset();
  const Bytes frame = encode(departures_);
  departures_.clear();
  for (const auto& [rank, member] : members_) {
    if (!member->left) member->connection->send(frame);
  }
}

// Explain the first collective that does not complete.
void Job::inquire(Stall stall) {
  if (inquest_) return;
  const Bytes frame = encode_number(FrameType::Inquiry, stall.sequence);
  inquest_.emplace(std::move(stall), n_ranks_);
  for (const auto& [rank, member] : members_) {
    if (member->left) {
      inquest_->add_departure(rank, member->called);
    } else {
      member->connection->send(frame);
    }
  }
  inquest_timer_ = loop_.at(loop_.now() + milliseconds(shortest_liveness_ms() / 2), [this] {
    inquest_timer_.reset();
    conclude();
  });
}

void Job::answer(const Member& member, Position position) {
  inquest_->add_answer(member.join.rank, std::move(position));
  if (inquest_->complete()) conclude();
}

void Job::conclude() {
  fail(inquest_->conclusion());
}

void Job::fail_lost_rank(Member& member, const std::string& why) {
  fail({ErrorCode::RemoteError, member.join.rank, name(member.join) + " was lost: " + why});
}

// A lost host or network takes several ranks along, none of which is the cause.
void Job::fail_silent_ranks(Member& first, int64_t silence_ms) {
  std::vector<int32_t> silent;
  for (const auto& [rank, member] : members_) {
    const bool is_silent = member->connection->silence() >= bounded_wait(silence_ms / 2);
    if (member.get() == &first || (!member->left && is_silent)) silent.push_back(rank);
  }
  const std::string why =
      format("silent for %lld ms (stopped, hung or cut off)", static_cast<long long>(silence_ms));
  if (silent.size() == 1) return fail_lost_rank(first, why);
  fail({ErrorCode::RemoteError, first.join.rank,
        format("%s of %d were lost at once: %s; check the network between their hosts and the "
               "coordinator's, %s",
               rank_list(silent).c_str(), n_ranks_, why.c_str(), options_.where.c_str())});
}

void Job::fail(const Failure& failure) {
  if (ended_) return;
  const Bytes frame = encode(FrameType::Failed, failure);
  for (const auto& [rank, member] : members_) {
    member->connection->send(frame);
    member->connection->finish();
  }
  end(failure);
}

void Job::farewell(std::optional<int32_t> abandoned) {
  // A rank of this process that has not left ends with it, which is a loss to the others.
  if (const auto rank = members_.find(abandoned.value_or(-1)); rank != members_.end()) {
    return fail_lost_rank(*rank->second, "its process shut hetccl down without leaving");
  }
  for (const auto& [rank, member] : members_) {
    member->connection->send(encode_empty(FrameType::Farewell));
    member->connection->finish();
  }
  end(std::nullopt);
}

void Job::end(const std::optional<Failure>& failure) {
  if (ended_) return;
  ended_ = true;
  for (auto* timer : {&join_timer_, &remind_timer_, &gather_timer_, &tick_timer_, &departure_timer_,
                      &inquest_timer_}) {
    if (*timer) loop_.cancel(**timer);
    timer->reset();
  }
  options_.on_end(failure, {missing(), join_deadline_});
}

int64_t Job::shortest_liveness_ms() const {
  int64_t shortest = options_.liveness_ms;
  for (const auto& [rank, member] : members_) {
    shortest = std::min(shortest, member->join.liveness_ms);
  }
  return shortest;
}

Duration Job::tick_period() const {
  return std::max(milliseconds(shortest_liveness_ms() / kHeartbeatsPerLiveness), milliseconds(10));
}

void Job::tick() {
  tick_timer_.reset();
  const TimePoint now = loop_.now();
  const Duration period = tick_period();
  for (const auto& [rank, member] : members_) {
    if (member->left) continue;
    Connection& connection = *member->connection;
    // A rank's heartbeats follow its own setting, which may be longer than the one here.
    const int64_t silence_ms = std::max(options_.liveness_ms, member->join.liveness_ms);
    if (connection.is_silent(period, bounded_wait(silence_ms))) {
      return fail_silent_ranks(*member, silence_ms);
    }
    if (ended_) return;
    if (now - connection.last_sent() >= period / 2) {
      connection.send(encode_empty(FrameType::Heartbeat));
    }
  }
  tick_timer_ = loop_.at(now + period, [this] { tick(); });
}

}  // namespace hetccl::bootstrap
