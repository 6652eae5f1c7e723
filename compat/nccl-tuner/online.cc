#include "nccl-tuner/online.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <ranges>
#include <utility>

#include "base/json.h"

namespace hetccl::nccl_tuner {
namespace {

using std::chrono::milliseconds;

using tune::Agreement;

constexpr int kLeader = Agreement::kLeader;
constexpr int64_t kJoinMs = 5'000;
constexpr size_t kMostSaid = size_t{1} << 20U;  // bounds a rank's facts and file
// Note of rank 0 to all: the exchange has succeeded. Not one of tune/note.h.
constexpr std::string_view kAgreed = "agreed";
// Only a safeguard: the coordinator reports a lost rank long before.
constexpr std::chrono::seconds kLongestRelay(60);
// Time that a rank in doubt waits before it asks.
constexpr milliseconds kPatience(20);

bootstrap::UniqueId unique_id_of(std::string_view hex) {
  bootstrap::UniqueId id{};
  for (size_t i = 0; i < id.size() && 2 * i + 1 < hex.size(); ++i)
    std::from_chars(hex.data() + 2 * i, hex.data() + 2 * i + 2, id[i], 16);
  return id;
}

}  // namespace

Online::Online(Options options, const Config& config)
    : options_(std::move(options)),
      agreement_(options_.rank,
                 [this](Agreement::To to, const tune::Note& note) { send_note(to, note); }) {
  if (options_.rank != kLeader) return;
  agreement_.lead({.n_ranks = options_.n_ranks,
                   .budget = static_cast<double>(config.tune_budget) / 100,
                   .by_steps = true});
  for (const tune::Learnt& one : options_.known) known_[one.key] = one;
}

Result<std::unique_ptr<Online>> Online::join(const Config& config, Options options) {
  std::unique_ptr<Online> online(new Online(std::move(options), config));
  HETCCL_TRY(online->enter(config).with("HETCCL_TUNER_ID"));
  return online;
}

Status Online::enter(const Config& config) {
  const Log log{parse_log_level(config.log_level).value_or(LogLevel::Warn), options_.rank};
  HETCCL_ASSIGN(service_, bootstrap::Service::create(config, log));
  HETCCL_ASSIGN(auto session, service_->join(unique_id_of(config.tuner_id), join_options()));
  {
    const std::lock_guard lock(mutex_);
    session_ = std::move(session);
  }
  HETCCL_ASSIGN(tune::Knowledge known, exchange());
  if (agreement_.leads()) {
    const std::lock_guard lock(mutex_);
    HETCCL_TRY(session_->send_note(bootstrap::kAll, {kAgreed.begin(), kAgreed.end()}));
  }
  HETCCL_TRY(await_agreement());
  agreed_ = std::move(known);
  return {};
}

// Returns rank 0's file, provided that all ranks have parsed the same from it.
Result<tune::Knowledge> Online::exchange() {
  const std::string mine =
      Json{{"facts", options_.facts}, {"first", options_.is_first}, {"file", options_.file}}.dump();
  HETCCL_ASSIGN(const auto all, session_->all_gather({mine.begin(), mine.end()}, kJoinMs));
  tune::Knowledge known;
  bool all_first = true;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const std::string_view text(reinterpret_cast<const char*>(all[rank].data()), all[rank].size());
    HETCCL_ASSIGN(const Json said, Json::parse(text, "a rank's facts", kMostSaid));
    const std::string* facts = said["facts"].text();
    if (facts == nullptr || *facts != options_.facts) {
      return error(ErrorCode::InvalidUsage,
                   "the first communicators of all ranks differ: %s here, %s on rank %zu",
                   options_.facts.c_str(), facts == nullptr ? "?" : facts->c_str(), rank);
    }
    all_first = all_first && said["first"].boolean().value_or(false);
    const std::string* file = rank == kLeader ? said["file"].text() : nullptr;
    if (file == nullptr || file->empty()) continue;
    HETCCL_ASSIGN(known, tune::Knowledge::parse(*file));
  }
  if (!all_first) known = {};
  // Another version of this library may parse the file differently.
  const std::string digest = tune::digest_of(known.dump());
  HETCCL_ASSIGN(const auto digests, session_->all_gather({digest.begin(), digest.end()}, kJoinMs));
  for (const auto& other : digests)
    if (other != digests.front()) return tune::Knowledge();
  return known;
}

// Waits until the coordinator relays rank 0's note to all ranks, or reports a failure to all. So
// either all ranks use the file or none does.
Status Online::await_agreement() {
  std::unique_lock lock(mutex_);
  if (heard_.wait_for(lock, kLongestRelay, [&] { return is_agreed_ || lost_; }) && is_agreed_)
    return {};
  return error(ErrorCode::RemoteError, "the ranks could not agree");
}

bootstrap::JoinOptions Online::join_options() {
  bootstrap::JoinOptions join;
  join.rank = options_.rank;
  join.n_ranks = options_.n_ranks;
  join.description = format("NCCL's tuner, pid %d", static_cast<int>(getpid()));
  join.timeout_ms = kJoinMs;
  join.on_failure = [this](const bootstrap::Failure& failure) {
    const std::lock_guard lock(mutex_);
    fail(failure.reason);
  };
  join.on_left = [this](int rank, uint64_t) {
    const std::lock_guard lock(mutex_);
    complete_ = false;
    if (rank == kLeader) fail("rank 0 has left");
  };
  join.on_note = [this](int from, std::span<const uint8_t> bytes) {
    const std::lock_guard lock(mutex_);
    attempt([&] {
      const bool agrees = from == kLeader && std::ranges::equal(bytes, kAgreed);
      if (agrees) is_agreed_ = true;
      if (agrees) heard_.notify_all();
      const auto note = agrees ? std::nullopt : tune::decode(bytes);
      if (note && session_ != nullptr) receive_note(from, *note);
    });
  };
  return join;
}

Online::~Online() {
  std::unique_ptr<bootstrap::Session> session;
  {
    const std::lock_guard lock(mutex_);
    if (session_ != nullptr && !lost_) agreement_.finish();
    lost_ = true;
    session = std::move(session_);
  }
  if (session != nullptr) session->leave(0);
}

std::optional<tune::Setting> Online::use(const TunedCall& call, TimePoint now,
                                         const tune::Conductor::SpaceMaker& make_space) {
  std::unique_lock lock(mutex_);
  const uint64_t sequence = n_calls_++;
  if (agreement_.leads() && complete_ && !lost_ && !retired_)
    attempt([&] { lead(call, sequence, now, make_space); });
  auto use = agreement_.ledger().use(call.key, sequence);
  while (!use) {
    resolve_open_round(lock);
    use = agreement_.ledger().use(call.key, sequence);
  }
  attempt([&] {
    const auto samples = retired_ ? std::nullopt : meter_.call(call.key, use->trial, now);
    if (samples) agreement_.add(*samples);
  });
  return use->setting;
}

template <typename Body>
void Online::attempt(const Body& body) noexcept {
  try {
    body();
  } catch (...) {
    retired_ = true;
  }
}

void Online::lead(const TunedCall& call, uint64_t sequence, TimePoint now,
                  const tune::Conductor::SpaceMaker& make_space) {
  if (const auto found = known_.find(call.key); found != known_.end()) {
    agreement_.conductor().add_learnt(found->second, false);
    known_.erase(found);
  }
  if (steps_.begins(call.number(), now)) agreement_.conductor().step(now);
  agreement_.propose(call.key, call.bytes, sequence, now, make_space);
}

// A decision on this call is on its way. Waits until it arrives, or until all ranks learn that it
// never will.
void Online::resolve_open_round(std::unique_lock<std::mutex>& lock) {
  tune::Ledger& ledger = agreement_.ledger();
  const uint64_t round = *ledger.open_round();
  if (lost_) return ledger.settle({round, false});
  if (agreement_.leads()) attempt([&] { agreement_.resolve_open_round(); });
  const auto over = [&] { return lost_ || ledger.open_round() != round; };
  if (heard_.wait_for(lock, kPatience, over) || agreement_.leads()) return;
  attempt([&] { agreement_.resolve_open_round(); });
}

void Online::receive_note(int from, const tune::Note& note) {
  if (retired_ && std::holds_alternative<tune::Proposal>(note)) return;
  agreement_.receive_note(from, note);
  heard_.notify_all();
}

void Online::send_note(Agreement::To to, const tune::Note& note) {
  if (lost_) return;
  using enum Agreement::To;
  const int receiver = to == Leader   ? kLeader
                       : to == Others ? bootstrap::kEveryone
                                      : bootstrap::kAll;
  const Status told = session_->send_note(receiver, tune::encode(note));
  if (!told.ok()) fail(told.message());
}

void Online::fail(const std::string& why) {
  if (std::exchange(lost_, true)) return;
  options_.log.info("settings stay as they are, since the ranks cannot agree any more: " + why);
  heard_.notify_all();
}

bool Online::poll_new_results() {
  const std::lock_guard lock(mutex_);
  return agreement_.poll_new_results();
}

std::vector<tune::Learnt> Online::learnt() {
  const std::lock_guard lock(mutex_);
  return agreement_.learnt();
}

}  // namespace hetccl::nccl_tuner
