// The search while the job runs, of one NCCL communicator that holds all ranks of the job: which
// setting each call uses, agreed by all ranks.
//
// All ranks use the same setting for a call, as long as the coordinator lives (tune/agreement.h):
// it relays a note to all or to none before it tells of a lost rank. After a loss, settings stay as
// they are. What rank 0 has read in HETCCL_TUNE_FILE is agreed on in the same way, for all
// communicators.
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
    std::string facts;  ///< of the communicator: alike on all its ranks, or none is tuned
    std::vector<tune::Learnt> known;  ///< on rank 0: from earlier jobs
    std::string file;                 ///< on rank 0: what all may use of them (`text_for_all`)
    bool is_first = true;  ///< this process has made no communicator of several ranks before
    NcclLog log{nullptr};
  };
  /// Bounds the part of a file that ranks exchange, in bytes.
  static constexpr size_t kMostFile = size_t{768} << 10U;

  /// Waits a few seconds for all ranks. An error leaves all ranks with what NCCL chooses: without
  /// this rank nothing is agreed.
  static Result<std::unique_ptr<Online>> join(const Config& config, Options options);
  ~Online();
  Online(const Online&) = delete;
  Online& operator=(const Online&) = delete;

  /// How the next call runs; none: as NCCL chooses. All ranks make the same calls in one order.
  /// Waits only where a decision on this very call is on its way (tune/ledger.h).
  std::optional<tune::Setting> use(const TunedCall& call, TimePoint now,
                                   const tune::Conductor::SpaceMaker& make_space);
  /// Returns the part of rank 0's file that all ranks use. Empty unless all ranks are `is_first`:
  /// others would learn of it at different moments.
  [[nodiscard]] const tune::Knowledge& agreed() const { return agreed_; }

  /// On rank 0: whether more was learnt since it was last asked.
  [[nodiscard]] bool take_news();
  /// On rank 0; elsewhere empty.
  [[nodiscard]] std::vector<tune::Learnt> learnt();

 private:
  explicit Online(Options options, const Config& config);
  Status enter(const Config& config);
  Result<tune::Knowledge> exchange();
  Status await_agreement();
  // Runs what an exception may leave; then this rank proposes, votes and measures no more, so
  // nothing new is agreed, and follows what is.
  template <typename Body>
  void attempt(const Body& body) noexcept;
  [[nodiscard]] bootstrap::JoinOptions join_options();
  // With mutex_ held.
  void lead(const TunedCall& call, uint64_t sequence, TimePoint now,
            const tune::Conductor::SpaceMaker& make_space);
  void hear(int from, const tune::Note& note);
  void tell(tune::Agreement::To to, const tune::Note& note);
  void lose(const std::string& why);
  void resolve_doubt(std::unique_lock<std::mutex>& lock);

  Options options_;
  tune::Knowledge agreed_;
  std::unique_ptr<bootstrap::Service> service_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable heard_;
  std::unique_ptr<bootstrap::Session> session_;
  tune::Agreement agreement_;
  std::map<tune::Key, tune::Learnt> known_;  // on rank 0: not proposed yet
  Steps steps_;
  Meter meter_;
  uint64_t n_calls_ = 0;
  bool complete_ = true;    // no rank has left
  bool is_agreed_ = false;  // rank 0 has told so
  bool retired_ = false;    // after an exception
  bool lost_ = false;       // a rank or the coordinator: nothing is agreed any more
};

}  // namespace hetccl::nccl_tuner
