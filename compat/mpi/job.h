// The MPI job of this process, from MPI_Init to MPI_Finalize: the facts that its ranks agree on at
// the start, and the objects to destroy at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/log.h"
#include "mpi/library.h"
#include "mpi/protection.h"
#include "mpi/requests.h"
#include "mpi/rules.h"
#include "mpi/summary.h"

namespace hetccl::mpi {

class Job {
 public:
  /// Returns null before MPI_Init, after MPI_Finalize, and if hetccl serves nothing.
  static Job* get();
  /// Runs right after MPI_Init, on all ranks of MPI_COMM_WORLD. Ends the job if a rank does not
  /// answer within HETCCL_INIT_TIMEOUT_MS, because it has not loaded this library, and if the job
  /// would run without the protection that it asks for (protection.h).
  static void start(Library& library);
  /// Whether hetccl serves calls, or will once the program calls MPI_Init.
  static bool may_serve();

  /// The algorithm for a call that `question` describes.
  [[nodiscard]] Decision decide(const Question& question) const {
    return forced_ ? *forced_ : rules_.decide(question);
  }
  /// Overrides the rules from the next call on; nothing ends the override. All ranks must pass the
  /// same.
  void force(std::optional<Decision> decision) { forced_ = decision; }
  [[nodiscard]] bool is_forced() const { return forced_.has_value(); }
  [[nodiscard]] const Log& log() const { return log_; }
  [[nodiscard]] const Library& library() const { return library_; }
  [[nodiscard]] bool multithreaded() const { return multithreaded_; }
  /// Whether the job asks for encryption or a secret file. If so, a failure of hetccl never sends
  /// its calls to the MPI.
  [[nodiscard]] bool is_protected() const {
    return config_.encrypt || !config_.secret_file.empty();
  }
  /// Ends the job, on all ranks. At least rank 0 passes the reason.
  [[noreturn]] void end(const std::string& why) const;
  /// Hash of this rank's host identity.
  [[nodiscard]] uint64_t host() const { return host_; }
  /// Deadline of one call of hetccl. MPI has none, so without HETCCL_TIMEOUT_MS there is none.
  [[nodiscard]] int64_t timeout_ms() const;
  /// Distribution of the ranks of `comm` over nodes; nothing if a rank belongs to another job.
  [[nodiscard]] std::optional<Shape> shape_of(Word comm, int size) const;
  [[nodiscard]] int node_of(int world_rank) const {
    return nodes_[static_cast<size_t>(world_rank)];
  }
  [[nodiscard]] Requests& requests() { return requests_; }
  [[nodiscard]] Summary& summary() { return summary_; }

 private:
  Job(Library& library, Config config);
  // Fills in `mine` and exchanges it with all ranks. Returns false if hetccl serves nothing.
  bool agree(Settings mine);
  void meet_ranks();
  void meet_as_rank_0(int size, int tag);
  void meet_rank_0(int tag);
  void agree_on_rules();
  [[nodiscard]] std::vector<Settings> exchange(Settings mine);
  void learn_nodes(const std::vector<Settings>& ranks);
  void finish();
  static int finish_job(Word comm, int keyval, void* value, void* extra);

  const Library& library_;
  const Config config_;
  Log log_;
  Rules rules_;
  std::optional<Decision> forced_;
  bool multithreaded_ = false;
  uint64_t host_ = 0;
  std::vector<int> nodes_;  // by rank of MPI_COMM_WORLD; numbered in the order of first ranks
  Requests requests_;
  Summary summary_;
};

/// While it lives, waits of this thread inside hetccl also let the MPI move its messages.
class InsideCall {
 public:
  InsideCall();
  ~InsideCall();
  InsideCall(const InsideCall&) = delete;
  InsideCall& operator=(const InsideCall&) = delete;
};

}  // namespace hetccl::mpi
