// The search during the job, for an NCCL communicator that holds all ranks of the job. All ranks
// agree on the setting of each call.
//
// As long as the coordinator lives, all ranks use the same setting for a call (tune/agreement.h):
// the coordinator relays a note to all ranks or to none before it reports a lost rank. After a
// loss, settings stay as they are. The ranks agree in the same way on rank 0's content of
// HETCCL_TUNE_FILE, for all communicators.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "nccl-tuner/calls.h"
#include "nccl-tuner/log.h"
#include "nccl-tuner/meter.h"
#include "nccl-tuner/steps.h"
#include "tune/agreement.h"
#include "tune/knowledge.h"

namespace hetccl::nccl_tuner {

/// Thread-safe; calls are made one at a time.
class Online {
 public:
  struct Options {
    int rank = 0, n_ranks = 1;
    std::string facts;  ///< about the communicator; must be equal on all ranks, else none is tuned
    std::vector<tune::Learnt> known;  ///< on rank 0: settings from earlier jobs
    std::string file;                 ///< on rank 0: the settings for all ranks (`text_for_all`)
    bool is_first = true;  ///< this process has made no other communicator of several ranks
    NcclLog log{nullptr};
  };
  /// Bounds the part of a file that ranks exchange, in bytes.
  static constexpr size_t kMostFile = size_t{768} << 10U;

  /// Waits a few seconds for all ranks. On an error all ranks use NCCL's choices: nothing is agreed
  /// without this rank.
  static Result<std::unique_ptr<Online>> join(const Config& config, Options options);
  ~Online();
  Online(const Online&) = delete;
  Online& operator=(const Online&) = delete;

  /// Returns the setting of the next call; nothing: NCCL chooses. All ranks make the same calls in
  /// the same order. Waits only while a decision on this very call is on its way (tune/ledger.h).
  std::optional<tune::Setting> use(const TunedCall& call, TimePoint now,
                                   const tune::Conductor::SpaceMaker& make_space);
  /// Returns the part of rank 0's file that all ranks use. Empty unless all ranks are `is_first`,
  /// since otherwise ranks would learn of it at different calls.
  [[nodiscard]] const tune::Knowledge& agreed() const { return agreed_; }

  /// On rank 0: returns whether more was learnt since the last time it was asked.
  [[nodiscard]] bool poll_new_results();
  /// On rank 0: all that was learnt; elsewhere empty.
  [[nodiscard]] std::vector<tune::Learnt> learnt();

 private:
  explicit Online(Options options, const Config& config);
  Status enter(const Config& config);
  Result<tune::Knowledge> exchange();
  Status await_agreement();
  // Runs `body`. If it throws, this rank retires: it no longer proposes, votes or measures, so
  // nothing new is agreed, but it follows what is agreed.
  template <typename Body>
  void attempt(const Body& body) noexcept;
  [[nodiscard]] bootstrap::JoinOptions join_options();
  // Requires mutex_.
  void lead(const TunedCall& call, uint64_t sequence, TimePoint now,
            const tune::Conductor::SpaceMaker& make_space);
  void receive_note(int from, const tune::Note& note);
  void send_note(tune::Agreement::To to, const tune::Note& note);
  void fail(const std::string& why);
  void resolve_open_round(std::unique_lock<std::mutex>& lock);

  Options options_;
  tune::Knowledge agreed_;
  std::unique_ptr<bootstrap::Service> service_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable heard_;
  std::unique_ptr<bootstrap::Session> session_;
  tune::Agreement agreement_;
  std::map<tune::Key, tune::Learnt> known_;  // on rank 0: settings not yet passed to the search
  Steps steps_;
  Meter meter_;
  uint64_t n_calls_ = 0;
  bool complete_ = true;    // no rank has left
  bool is_agreed_ = false;  // rank 0 has sent kAgreed
  bool retired_ = false;    // an exception was caught
  bool lost_ = false;       // lost a rank or the coordinator: nothing more is agreed
};

}  // namespace hetccl::nccl_tuner
