#include "comm/tuning.h"

#include <utility>

#include "tune/knowledge.h"

namespace hetccl::comm {
namespace {

using std::chrono::milliseconds;

using tune::Agreement;
// The time after which a rank in doubt asks; it asks again, because the peer may have been busy.
constexpr milliseconds kPatience(20);

// First round number for settings of users; proposals never count that far.
constexpr uint64_t kFirstSet = uint64_t{1} << 48U;

}  // namespace

Tuning::Tuning(bootstrap::Session& session, progress::Engine& engine, Options options)
    : session_(session),
      engine_(engine),
      options_(std::move(options)),
      active_(options_.searches),
      agreement_(session.rank(),
                 [this](Agreement::To to, const tune::Note& note) { send_note(to, note); }) {
  if (session_.rank() != Agreement::kLeader || !options_.searches) return;
  agreement_.lead({.n_ranks = session_.n_ranks(),
                   .budget = options_.budget,
                   .by_steps = options_.by_steps,
                   .timing_costs = options_.timing_costs});
}

void Tuning::add_learnt(std::span<const tune::Learnt> learnt) {
  const std::lock_guard lock(mutex_);
  known_.assign(learnt.begin(), learnt.end());
  for (const tune::Learnt& one : learnt) {
    agreement_.ledger().add_known(one.key, one.setting);
    if (agreement_.leads()) agreement_.conductor().add_learnt(one);
    active_.store(true, std::memory_order_release);
  }
}

void Tuning::set(const tune::Key& key, const tune::Setting& setting) {
  const std::lock_guard lock(mutex_);
  agreement_.ledger().set(key, setting, kFirstSet + n_set_++);
  if (agreement_.leads()) agreement_.conductor().leave(key);
  active_.store(true, std::memory_order_release);
}

Tuning::Use Tuning::use(const std::optional<tune::Key>& key, uint64_t bytes, uint64_t sequence,
                        bool captured, TimePoint now,
                        const tune::Conductor::SpaceMaker& make_space) {
  std::unique_lock lock(mutex_);
  const bool leads = agreement_.leads();
  if (leads && key && !captured) agreement_.propose(*key, bytes, sequence, now, make_space);
  auto use = agreement_.ledger().use(key, sequence, captured);
  if (!use && leads) agreement_.resolve_open_round();  // only committed settings need a wait
  while (!use) {
    use = agreement_.ledger().use(key, sequence, captured);
    if (!use && !await_verdict(lock)) return {};
  }
  const bool watched =
      leads && key && !captured && !use->trial && agreement_.conductor().wants_time(*key);
  const bool timed = watched || use->trial.has_value();
  if (timed) timed_.push_back({sequence, use->trial, *key});
  return {use->setting, use->round, timed};
}

// Waits for a verdict on the next call, and asks rank 0 for one when patience ends.
bool Tuning::await_verdict(std::unique_lock<std::mutex>& lock) {
  const uint64_t settled = settled_.load();
  const auto decided = [&] { return settled_.load(std::memory_order_acquire) != settled; };
  const auto over = [&] {
    return decided() || options_.failed() || leader_left_.load(std::memory_order_acquire);
  };
  lock.unlock();
  const bool in_time = engine_.wait(over, engine_.clock().now() + kPatience);
  lock.lock();
  if (in_time) return decided();
  if (agreement_.ledger().open_round()) agreement_.resolve_open_round();
  return true;
}

void Tuning::step(TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (agreement_.leads()) agreement_.conductor().step(now);
}

void Tuning::on_timed(uint64_t sequence, Duration took, TimePoint now) {
  const std::lock_guard lock(mutex_);
  while (!timed_.empty() && timed_.front().sequence < sequence) timed_.pop_front();
  if (timed_.empty() || timed_.front().sequence != sequence) return;
  const Timed call = timed_.front();
  timed_.pop_front();
  if (call.trial) {
    add_time(call, took, now);
  } else if (agreement_.leads()) {
    agreement_.conductor().watch(call.key, std::chrono::duration<double, std::micro>(took).count());
  }
}

// Adds a call's time to its phase. The first call of a phase does not count, because work of the
// previous phase may delay it. By steps, a phase lasts from the end of the previous phase to its
// own end, since the program's work between calls is part of it.
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
  const tune::Samples samples{id.first, id.second, std::move(phases.us)};
  phases_.erase(id);
  agreement_.add(samples);
}

void Tuning::on_note(int from, std::span<const uint8_t> bytes) {
  const auto note = tune::decode(bytes);
  if (!note) return;
  {
    const std::lock_guard lock(mutex_);
    agreement_.receive_note(from, *note);
    settled_.store(agreement_.n_settled(), std::memory_order_release);
  }
  engine_.notify();
}

void Tuning::on_left(int rank) {
  if (rank != Agreement::kLeader) return;
  leader_left_.store(true, std::memory_order_release);
  engine_.notify();
}

// Sends a note. If it is lost, one round of tuning is lost.
void Tuning::send_note(Agreement::To to, const tune::Note& note) {
  using enum Agreement::To;
  const int receiver = to == Leader   ? Agreement::kLeader
                       : to == Others ? bootstrap::kEveryone
                                      : bootstrap::kAll;
  static_cast<void>(session_.send_note(receiver, tune::encode(note)));
}

void Tuning::finish() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(finished_, true)) return;
  agreement_.finish();
}

std::optional<tune::Conductor::Progress> Tuning::progress() {
  const std::lock_guard lock(mutex_);
  if (!agreement_.leads()) return std::nullopt;
  return agreement_.conductor().progress();
}

bool Tuning::poll_new_results() {
  const std::lock_guard lock(mutex_);
  return agreement_.poll_new_results();
}

std::vector<tune::Learnt> Tuning::learnt() {
  const std::lock_guard lock(mutex_);
  return agreement_.learnt();
}

Json Tuning::describe() {
  const std::lock_guard lock(mutex_);
  const bool leads = agreement_.leads();
  Json json = leads ? agreement_.conductor().describe() : Json();
  json.set("learnt", tune::to_json(leads ? agreement_.learnt() : known_));
  return json;
}

}  // namespace hetccl::comm
