#include "comm/tuning.h"

#include <utility>

#include "tune/knowledge.h"

namespace hetccl::comm {
namespace {

using std::chrono::milliseconds;

constexpr int kLeader = 0;
// How long a rank in doubt waits before it asks; and again, since who was asked may have been busy.
constexpr milliseconds kPatience(20);

// Rounds of settings that users have set; proposals never count so far.
constexpr uint64_t kFirstSet = uint64_t{1} << 48U;

}  // namespace

Tuning::Tuning(bootstrap::Session& session, progress::Engine& engine, Options options)
    : session_(session), engine_(engine), options_(std::move(options)), active_(options_.searches) {
  if (session_.rank() == kLeader && options_.searches)
    conductor_.emplace(tune::ConductorOptions{.n_ranks = session_.n_ranks(),
                                              .budget = options_.budget,
                                              .by_steps = options_.by_steps,
                                              .timing_costs = options_.timing_costs});
}

void Tuning::know(std::span<const tune::Learnt> learnt) {
  const std::lock_guard lock(mutex_);
  known_.assign(learnt.begin(), learnt.end());
  for (const tune::Learnt& one : learnt) {
    ledger_.know(one.key, one.setting);
    if (leads()) conductor_->know(one);
    active_.store(true, std::memory_order_release);
  }
}

void Tuning::set(const tune::Key& key, const tune::Setting& setting) {
  const std::lock_guard lock(mutex_);
  ledger_.set(key, setting, kFirstSet + n_set_++);
  if (leads()) conductor_->leave(key);
  active_.store(true, std::memory_order_release);
}

Tuning::Use Tuning::use(const std::optional<tune::Key>& key, uint64_t bytes, uint64_t sequence,
                        bool captured, TimePoint now,
                        const tune::Conductor::SpaceMaker& make_space) {
  std::unique_lock lock(mutex_);
  if (leads() && key && !captured) propose(*key, bytes, sequence, now, make_space);
  auto use = ledger_.use(key, sequence, captured);
  while (!use) {
    const uint64_t round = *ledger_.open_round();
    if (leads()) {
      decide(conductor_->resolve(round));
    } else {
      const uint64_t settled = settled_.load();
      lock.unlock();
      const bool known = await_verdict(round, settled);
      lock.lock();
      if (!known) return {};
    }
    use = ledger_.use(key, sequence, captured);
  }
  const bool watched = leads() && key && !captured && !use->trial && conductor_->wants_time(*key);
  const bool timed = watched || use->trial.has_value();
  if (timed) timed_.push_back({sequence, use->trial, *key});
  return {use->setting, use->round, timed};
}

bool Tuning::await_verdict(uint64_t round, uint64_t settled) {
  const auto decided = [&] { return settled_.load(std::memory_order_acquire) != settled; };
  for (;;) {
    const auto over = [&] {
      return decided() || options_.failed() || leader_left_.load(std::memory_order_acquire);
    };
    if (engine_.wait(over, engine_.clock().now() + kPatience)) return decided();
    tell(kLeader, tune::Doubt{round});
  }
}

void Tuning::settle(const tune::Verdict& verdict) {
  ledger_.settle(verdict);
  settled_.fetch_add(1, std::memory_order_release);
}

void Tuning::propose(const tune::Key& key, uint64_t bytes, uint64_t sequence, TimePoint now,
                     const tune::Conductor::SpaceMaker& make_space) {
  const auto proposal = conductor_->propose(key, bytes, sequence, now, make_space);
  if (!proposal) return;
  tell_all(*proposal);
  count(kLeader, ledger_.vote(*proposal));
}

void Tuning::step(TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (leads()) conductor_->step(now);
}

void Tuning::on_timed(uint64_t sequence, Duration took, TimePoint now) {
  const std::lock_guard lock(mutex_);
  while (!timed_.empty() && timed_.front().sequence < sequence) timed_.pop_front();
  if (timed_.empty() || timed_.front().sequence != sequence) return;
  const Timed call = timed_.front();
  timed_.pop_front();
  if (call.trial) {
    add_time(call, took, now);
  } else if (leads()) {
    conductor_->watch(call.key, std::chrono::duration<double, std::micro>(took).count());
  }
}

// The first call of a phase does not count: what the phase before has left may hold it up. By steps
// a phase lasts from the end of the one before to its own end: what the program does between its
// calls is part of it.
void Tuning::add_time(const Timed& call, Duration took, TimePoint now) {
  const tune::Ledger::Use::Trial& trial = *call.trial;
  const TrialId id{trial.round, trial.change};
  Phases& phases = phases_[id];
  if (trial.call == 0) phases.since = now - took;
  const uint32_t calls = trial.calls / trial.phases;
  const bool counts = calls == 1 || trial.call % calls > 0;
  if (counts) phases.calls += took;
  if (!trial.ends_phase) return;
  const Duration phase =
      options_.by_steps ? now - phases.since : phases.calls / std::max(calls - 1, 1U);
  phases.since = now;
  phases.calls = {};
  phases.us.push_back(std::chrono::duration<double, std::micro>(phase).count());
  if (trial.phase + 1 < trial.phases) return;
  tune::Samples samples{id.first, id.second, std::move(phases.us)};
  phases_.erase(id);
  leads() ? conductor_->add(kLeader, samples) : tell(kLeader, std::move(samples));
}

void Tuning::on_note(int from, std::span<const uint8_t> bytes) {
  const auto note = tune::decode(bytes);
  if (!note) return;
  {
    const std::lock_guard lock(mutex_);
    hear(from, *note);
  }
  engine_.notify();
}

void Tuning::on_left(int rank) {
  if (rank != kLeader) return;
  leader_left_.store(true, std::memory_order_release);
  engine_.notify();
}

void Tuning::hear(int from, const tune::Note& note) {
  if (from == kLeader) {
    if (const auto* proposal = std::get_if<tune::Proposal>(&note))
      tell(kLeader, ledger_.vote(*proposal));
    if (const auto* verdict = std::get_if<tune::Verdict>(&note)) settle(*verdict);
  }
  if (!leads()) return;
  if (const auto* vote = std::get_if<tune::Vote>(&note)) count(from, *vote);
  if (const auto* doubt = std::get_if<tune::Doubt>(&note))
    decide(conductor_->resolve(doubt->round));
  if (const auto* samples = std::get_if<tune::Samples>(&note)) conductor_->add(from, *samples);
}

void Tuning::count(int rank, const tune::Vote& vote) {
  if (const auto verdict = conductor_->count(rank, vote)) decide(*verdict);
}

void Tuning::decide(const tune::Verdict& verdict) {
  settle(verdict);
  tell_all(verdict);
}

void Tuning::tell_all(const tune::Note& note) {
  if (session_.n_ranks() > 1) tell(bootstrap::kEveryone, note);
}

// A note that is lost costs a round, no more.
void Tuning::tell(int to, const tune::Note& note) {
  static_cast<void>(session_.tell(to, tune::encode(note)));
}

void Tuning::finish() {
  const std::lock_guard lock(mutex_);
  if (finished_ || !leads()) return;
  finished_ = true;
  if (const auto round = ledger_.open_round()) decide(conductor_->resolve(*round));
}

bool Tuning::take_news() {
  const std::lock_guard lock(mutex_);
  return leads() && std::exchange(n_told_, conductor_->n_finished()) != n_told_;
}

std::vector<tune::Learnt> Tuning::learnt() {
  const std::lock_guard lock(mutex_);
  return leads() ? conductor_->learnt() : std::vector<tune::Learnt>();
}

Json Tuning::describe() {
  const std::lock_guard lock(mutex_);
  Json json = leads() ? conductor_->describe() : Json();
  json.set("learnt", tune::to_json(leads() ? conductor_->learnt() : known_));
  return json;
}

}  // namespace hetccl::comm
