#include "bootstrap/coordinator.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <chrono>

#include "base/descriptors.h"
#include "bootstrap/dial.h"

namespace hetccl::bootstrap {

namespace {

using std::chrono::milliseconds;

constexpr size_t kAcceptsPerTurn = 64;
constexpr size_t kMaxNewcomers = 512;
constexpr size_t kRememberedEnds = 64;
constexpr milliseconds kAcceptPause(100);
constexpr milliseconds kComplainPause(10'000);

Failure job_is_over() {
  return {ErrorCode::InvalidUsage, -1,
          "this communicator has ended, all its ranks have left: make a new unique id"};
}

}  // namespace

/// A connection that is not a rank yet: first the handshake, then the Join frame.
class Coordinator::Newcomer final : public Connection::Owner {
 public:
  Newcomer(Coordinator& coordinator, uint64_t name, Fd fd)
      : coordinator_(coordinator),
        name_(name),
        fd_(std::move(fd)),
        peer_(net::peer_address(fd_.get())),
        seat_(coordinator.unproven_.add(name, net::source_of(peer_))),
        handshake_(coordinator.options_.encryption) {}
  ~Newcomer() override {
    if (timer_) coordinator_.loop_.cancel(*timer_);
    if (fd_.valid()) coordinator_.loop_.unwatch(watch_, fd_.get());
    if (connection_) connection_->abandon(this);
  }

  Status start(TimePoint deadline) {
    HETCCL_ASSIGN(watch_,
                  coordinator_.loop_.watch(fd_.get(), EPOLLIN, [this](uint32_t) { on_ready(); }));
    timer_ = coordinator_.loop_.at(deadline, [this] {
      timer_.reset();
      give_up("it did not authenticate in time");
    });
    return {};
  }
  /// Reads what has arrived, which may prove the newcomer or end it.
  void look() {
    if (fd_.valid()) on_ready();
  }
  [[nodiscard]] bool proven() const { return handshake_.proven(); }

  void on_frame(const Header& header, std::span<const uint8_t> payload) override {
    auto join = header.type == FrameType::Join ? decode_join(payload) : std::nullopt;
    const bool knocks = header.type == FrameType::Knock && payload.size() <= kMaxKnock;
    if (!join && !knocks) return give_up("its first frame was neither a join nor a knock");
    const auto connection = connection_;
    const uint64_t communicator = handshake_.hello().communicator;
    if (knocks) {
      coordinator_.knock(communicator, *connection, payload);
      return coordinator_.remove(name_);
    }
    Coordinator& coordinator = coordinator_;
    coordinator.remove(name_);
    coordinator.join(communicator, connection, std::move(*join));
  }
  void on_closed(const std::string& why) override { give_up(why); }
  void give_up(const std::string& why) {
    coordinator_.refusals_.add(peer_.text(), why);
    if (connection_) connection_->abandon(this);
    seat_ = {};
    coordinator_.remove(name_);
  }

 private:
  void on_ready() {
    const auto state = handshake_.advance(
        fd_.get(), [this](const net::Hello& hello) { return coordinator_.key_of(hello); });
    if (proven()) seat_ = {};
    if (state == net::ListenHandshake::State::Failed) {
      const Status& why = handshake_.failure();
      if (why.code() == ErrorCode::InvalidUsage)
        coordinator_.on_disagreement(handshake_.hello(), handshake_.proven(), why);
      return give_up(why.message());
    }
    if (state == net::ListenHandshake::State::InProgress) {
      const uint32_t events = handshake_.events() == POLLOUT ? EPOLLOUT : EPOLLIN;
      return coordinator_.loop_.change(watch_, fd_.get(), events);
    }
    coordinator_.loop_.unwatch(watch_, fd_.get());
    auto opened = Connection::open(coordinator_.loop_, handshake_.wire(std::move(fd_)), this,
                                   kMaxJoinPayload);
    if (!opened.ok()) return give_up(opened.status().message());
    connection_ = std::move(opened).value();
  }

  Coordinator& coordinator_;
  const uint64_t name_;
  Fd fd_;
  const net::SocketAddress peer_;
  net::Crowd::Admission seat_;  // while it is not proven
  uint64_t watch_ = 0;
  net::ListenHandshake handshake_;
  std::shared_ptr<Connection> connection_;
  std::optional<Loop::Timer> timer_;
};

Coordinator::Coordinator(Loop& loop, net::Listener listener, Options options)
    : loop_(loop),
      listener_(std::move(listener)),
      options_(std::move(options)),
      unproven_(kMaxNewcomers),
      refusals_("the coordinator", options_.log) {}

Coordinator::~Coordinator() = default;

Result<std::unique_ptr<Coordinator>> Coordinator::create(Loop& loop, net::Listener listener,
                                                         Options options) {
  std::unique_ptr<Coordinator> made(new Coordinator(loop, std::move(listener), std::move(options)));
  HETCCL_TRY(made->watch_listener());
  return made;
}

Status Coordinator::watch_listener() {
  HETCCL_ASSIGN(listener_watch_,
                loop_.watch(listener_.fd.get(), EPOLLIN, [this](uint32_t) { accept_waiting(); }));
  return {};
}

void Coordinator::add(uint64_t communicator, net::Key key, std::string where) {
  auto job = std::make_shared<Job>(
      loop_, Job::Options{options_.liveness_ms, options_.service, options_.log, std::move(where),
                          [this, communicator](const auto& failure, Missing missing) {
                            on_end(communicator, failure, std::move(missing));
                          }});
  jobs_.emplace(communicator, Entry{std::move(key), std::move(job)});
}

void Coordinator::accept_waiting() {
  for (size_t i = 0; i < kAcceptsPerTurn; ++i) {
    auto accepted = net::accept(listener_);
    if (!accepted.ok()) {
      // Its descriptor closes before the next round, in which the listener is ready again.
      if (drop_one("it had not proven itself when descriptors ran out")) return;
      if (reserve_descriptors(kAcceptsPerTurn).ok()) accepted = net::accept(listener_);
      if (!accepted.ok()) return pause_accepting(accepted.status());
    }
    if (!accepted->valid()) return;
    make_room();
    admit(std::move(*accepted));
  }
}

// Drops unproven newcomers. Proven ones are ranks of a job here and stay, however many.
void Coordinator::make_room() {
  while (newcomers_.size() >= kMaxNewcomers) {
    if (!drop_one("it had not proven itself when many others came")) return;
  }
}

// Drops an unproven newcomer; reads from it first, because its proof may have come. Returns false
// if all are proven.
bool Coordinator::drop_one(const char* why) {
  const auto name = unproven_.next_to_drop();
  if (!name) return false;
  const std::shared_ptr<Newcomer> newcomer = newcomers_.at(*name);
  newcomer->look();
  if (newcomers_.contains(*name) && !newcomer->proven()) newcomer->give_up(why);
  return true;
}

// Pauses when descriptors run out: otherwise the pending connection would keep the thread spinning.
void Coordinator::pause_accepting(const Status& why) {
  if (const TimePoint now = loop_.now(); now >= complains_from_) {
    complains_from_ = now + kComplainPause;
    options_.log.warn("the coordinator cannot accept more ranks: %s (raise ulimit -Hn)",
                      why.message().c_str());
  }
  loop_.unwatch(listener_watch_, listener_.fd.get());
  listener_watch_ = 0;
  loop_.at(loop_.now() + kAcceptPause, [this] {
    if (!listener_.fd.valid()) return;
    const Status watched = watch_listener();
    if (!watched.ok()) pause_accepting(watched);
  });
}

void Coordinator::admit(Fd fd) {
  const uint64_t name = next_newcomer_++;
  const auto newcomer = std::make_shared<Newcomer>(*this, name, std::move(fd));
  const TimePoint deadline = loop_.now() + handshake_patience(options_.liveness_ms);
  const Status started = newcomer->start(deadline);
  if (!started.ok()) return;
  newcomers_.emplace(name, newcomer);
  newcomer->look();  // its hello usually comes with the connection
}

const net::Key* Coordinator::key_of(const net::Hello& hello) {
  if (hello.purpose != kPurpose) return nullptr;
  if (const auto door = doors_.find(hello.communicator); door != doors_.end()) {
    return &door->second.key;
  }
  if (const auto job = jobs_.find(hello.communicator); job != jobs_.end()) {
    return &job->second.key;
  }
  const Ended* ended = find_ended(hello.communicator);
  return ended != nullptr ? &ended->key : nullptr;
}

Coordinator::Ended* Coordinator::find_ended(uint64_t communicator) {
  const auto found = std::ranges::find(ended_, communicator, &Ended::communicator);
  return found != ended_.end() ? &*found : nullptr;
}

// Ends the job if one of its ranks has other settings. A rank with another secret file cannot prove
// that it belongs to the job; if it does, the others learn of it when it is missing.
void Coordinator::on_disagreement(const net::Hello& hello, bool proven, const Status& why) {
  const auto entry = jobs_.find(hello.communicator);
  if (entry == jobs_.end()) return;
  const std::shared_ptr<Job> job = entry->second.job;
  if (proven)
    job->refuse_rank({why.code(), hello.rank, why.message()});
  else
    job->note_refused(hello.rank, why.message());
}

void Coordinator::join(uint64_t communicator, std::shared_ptr<Connection> connection, Join join) {
  if (const auto entry = jobs_.find(communicator); entry != jobs_.end()) {
    const std::shared_ptr<Job> job = entry->second.job;  // joining may end it
    return job->join(std::move(connection), std::move(join));
  }
  Ended* ended = find_ended(communicator);
  if (ended != nullptr) std::erase(ended->missing.ranks, join.rank);
  connection->send(encode(FrameType::Failed, ended != nullptr ? ended->answer : job_is_over()));
  connection->finish();
}

void Coordinator::open_door(uint64_t number, net::Key key, OnKnock on_knock) {
  doors_.emplace(number, Door{std::move(key), std::move(on_knock)});
}

void Coordinator::close_door(uint64_t number) {
  auto door = doors_.extract(number);
  if (door.empty()) return;
  remember({number,
            std::move(door.mapped().key),
            {ErrorCode::RemoteError, -1, "whoever opened at this id has closed"},
            {}});
}

void Coordinator::withdraw(uint64_t communicator) {
  const auto entry = jobs_.find(communicator);
  if (entry == jobs_.end()) return;
  const std::shared_ptr<Job> job = entry->second.job;
  job->fail({ErrorCode::Aborted, -1, "whoever made the id has given it up"});
}

void Coordinator::knock(uint64_t number, Connection& connection, std::span<const uint8_t> words) {
  const auto door = doors_.find(number);
  if (door == doors_.end()) {
    const Failure nobody = {ErrorCode::InvalidUsage, -1, "nobody opens at this id"};
    const Ended* ended = find_ended(number);
    connection.send(encode(FrameType::Failed, ended != nullptr ? ended->answer : nobody));
  } else if (const Status answer = door->second.on_knock(words); answer.ok()) {
    connection.send(encode_empty(FrameType::Heard));
  } else {
    connection.send(encode(FrameType::Failed, {answer.code(), -1, answer.message()}));
  }
  connection.finish();
}

void Coordinator::on_end(uint64_t communicator, const std::optional<Failure>& failure,
                         Missing missing) {
  const auto entry = jobs_.find(communicator);
  if (entry == jobs_.end()) return;
  Entry& over = finished_.insert(jobs_.extract(entry)).position->second;
  clear_later();
  remember({communicator, over.key, failure.value_or(job_is_over()), std::move(missing)});
}

void Coordinator::remember(Ended ended) {
  ended_.push_back(std::move(ended));
  if (ended_.size() > kRememberedEnds) ended_.pop_front();
}

// Defers destruction to the loop's next round, because the objects may be on the call stack.
void Coordinator::clear_later() {
  loop_.at(loop_.now(), [this] {
    finished_.clear();
    removed_.clear();
  });
}

void Coordinator::fail_all(const Status& why) {
  std::vector<std::shared_ptr<Job>> all;  // they end meanwhile
  for (const auto& [communicator, entry] : jobs_) all.push_back(entry.job);
  for (const auto& job : all) job->fail({why.code(), -1, "the coordinator: " + why.message()});
}

bool Coordinator::has_local_ranks() const {
  return std::any_of(jobs_.begin(), jobs_.end(),
                     [](const auto& entry) { return entry.second.job->has_local_ranks(); });
}

bool Coordinator::is_needed() const {
  const auto expects = [&](const Ended& ended) {
    return !ended.missing.ranks.empty() && loop_.now() < ended.missing.until;
  };
  return !jobs_.empty() || !doors_.empty() || std::ranges::any_of(ended_, expects);
}

void Coordinator::remove(uint64_t newcomer) {
  auto found = newcomers_.extract(newcomer);
  if (found.empty()) return;
  removed_.insert(std::move(found));
  clear_later();
}

void Coordinator::farewell(const std::map<uint64_t, int32_t>& abandoned) {
  if (listener_watch_ != 0) loop_.unwatch(listener_watch_, listener_.fd.get());
  listener_ = {};
  newcomers_.clear();
  doors_.clear();
  while (!jobs_.empty()) {
    const std::shared_ptr<Job> job = jobs_.begin()->second.job;
    const auto rank = abandoned.find(jobs_.begin()->first);
    job->farewell(rank != abandoned.end() ? std::optional(rank->second) : std::nullopt);
  }
}

}  // namespace hetccl::bootstrap
