#include "tune/agreement.h"

#include <utility>

namespace hetccl::tune {

void Agreement::lead(const ConductorOptions& options) {
  alone_ = options.n_ranks == 1;
  conductor_.emplace(options);
}

void Agreement::propose(const Key& key, uint64_t bytes, uint64_t sequence, TimePoint now,
                        const Conductor::SpaceMaker& make_space) {
  if (ledger_.open_round()) return;  // committed, and on its way back to this rank
  const auto proposal = conductor_->propose(key, bytes, sequence, now, make_space);
  if (!proposal) return;
  if (!alone_) tell_(To::Others, *proposal);
  count(kLeader, ledger_.vote(*proposal));
}

void Agreement::add(const Samples& samples) {
  leads() ? conductor_->add(rank_, samples) : tell_(To::Leader, samples);
}

void Agreement::receive_note(int from, const Note& note) {
  if (from == kLeader) {
    if (const auto* proposal = std::get_if<Proposal>(&note))
      tell_(To::Leader, ledger_.vote(*proposal));
    if (const auto* verdict = std::get_if<Verdict>(&note)) settle(*verdict);
  }
  if (!leads()) return;
  if (const auto* vote = std::get_if<Vote>(&note)) count(from, *vote);
  if (const auto* doubt = std::get_if<Doubt>(&note)) decide(conductor_->resolve(doubt->round));
  if (const auto* samples = std::get_if<Samples>(&note)) conductor_->add(from, *samples);
}

void Agreement::resolve_open_round() {
  const uint64_t round = *ledger_.open_round();
  leads() ? decide(conductor_->resolve(round)) : tell_(To::Leader, Doubt{round});
}

void Agreement::finish() {
  if (leads() && ledger_.open_round()) resolve_open_round();
}

bool Agreement::poll_new_results() {
  return leads() && std::exchange(n_told_, conductor_->n_finished()) != n_told_;
}

std::vector<Learnt> Agreement::learnt() const {
  return leads() ? conductor_->learnt() : std::vector<Learnt>();
}

void Agreement::count(int rank, const Vote& vote) {
  if (const auto verdict = conductor_->count(rank, vote)) decide(*verdict);
}

void Agreement::decide(const Verdict& verdict) {
  if (!verdict.commit || alone_) settle(verdict);
  if (!alone_) tell_(verdict.commit ? To::All : To::Others, verdict);
}

void Agreement::settle(const Verdict& verdict) {
  ledger_.settle(verdict);
  ++n_settled_;
}

}  // namespace hetccl::tune
