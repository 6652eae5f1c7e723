#include "tune/ledger.h"

#include <algorithm>
#include <array>

namespace hetccl::tune {
namespace {

// Pairs of eight calls then begin at 0, 9, 19 and 30. Modulo the period of most programs, both
// settings meet most places.
constexpr std::array<uint32_t, 4> kRests = {1, 2, 3, 1};

}  // namespace

void Ledger::add_known(const Key& key, const Setting& setting) {
  states_[key].setting = setting;
}

void Ledger::set(const Key& key, const Setting& setting, uint64_t round) {
  states_[key] = {setting, round, {}, true};
}

Vote Ledger::vote(const Proposal& proposal) {
  const bool yes = proposal.round > newest_ && proposal.from >= next_ && !open_round() &&
                   (pending_.empty() || pending_.back().proposal.from <= proposal.from);
  if (yes) {
    // Allocate now, so that `use` needs no memory: a rank that failed there would use another
    // setting.
    for (const Change& change : proposal.changes) states_.try_emplace(change.key);
    pending_.push_back({proposal, false});
    newest_ = proposal.round;
  }
  return {proposal.round, yes};
}

void Ledger::settle(const Verdict& verdict) {
  if (open_round() != verdict.round) return;
  if (verdict.commit) {
    pending_.back().committed = true;
  } else {
    pending_.pop_back();
  }
}

std::optional<uint64_t> Ledger::open_round() const {
  if (pending_.empty() || pending_.back().committed) return std::nullopt;
  return pending_.back().proposal.round;
}

std::optional<Ledger::Use> Ledger::use(const std::optional<Key>& key, uint64_t sequence,
                                       bool steady) {
  while (!pending_.empty() && pending_.front().proposal.from <= sequence) {
    const Pending& due = pending_.front();
    if (!due.committed) {
      const auto& changes = due.proposal.changes;
      const auto changed = [&](const Change& change) { return key && change.key == *key; };
      if (std::any_of(changes.begin(), changes.end(), changed)) return std::nullopt;
      break;
    }
    apply(due.proposal);
    pending_.pop_front();
  }
  next_ = sequence + 1;
  if (!key) return Use{};
  const auto found = states_.find(*key);
  if (found == states_.end()) return Use{};
  State& state = found->second;
  Use use{state.setting, state.round, {}};
  if (!state.trial || steady) return use;
  Trial& trial = *state.trial;
  if (trial.rest > 0) {
    --trial.rest;
    return use;
  }
  const Change& change = trial.change;
  const uint32_t phase = trial.next / change.phase;
  const uint32_t call = trial.next++;
  const bool ends_phase = trial.next % change.phase == 0;
  use.trial = {trial.round, trial.index, call, change.calls, phase, change.calls / change.phase,
               ends_phase};
  if (tries_candidate(phase)) {
    use.setting = change.setting;
    use.round = trial.round;
  }
  const bool ends_pair = ends_phase && phase % 2 == 1;
  if (change.rests && ends_pair) trial.rest = kRests[phase / 2 % kRests.size()];
  if (trial.next == change.calls) state.trial.reset();
  return use;
}

void Ledger::apply(const Proposal& proposal) {
  for (size_t i = 0; i < proposal.changes.size(); ++i) {
    const Change& change = proposal.changes[i];
    State& state = states_[change.key];
    if (state.set) continue;
    if (change.calls == 0) {
      state.setting = change.setting;
      state.round = proposal.round;
    } else {
      state.trial = Trial{change, proposal.round, static_cast<uint32_t>(i), 0};
    }
  }
}

}  // namespace hetccl::tune
