// The job that this process is a rank of, between MPI_Init and MPI_Finalize: what its ranks have
// agreed on at the beginning, and what is to be ended at the end.
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
  /// Null before MPI_Init and after MPI_Finalize, and where hetccl serves nothing.
  static Job* get();
  /// Right after MPI_Init, on all ranks of MPI_COMM_WORLD. Ends the job where a rank does not
  /// answer within HETCCL_INIT_TIMEOUT_MS: it has not loaded this library. Ends it, too, where it
  /// would run without the protection that it asks for (protection.h).
  static void start(Library& library);
  /// Whether hetccl serves calls, or will once the program calls MPI_Init.
  static bool may_serve();

  /// The algorithm that serves a call which `question` describes.
  [[nodiscard]] Decision decide(const Question& question) const {
    return forced_ ? *forced_ : rules_.decide(question);
  }
  /// From the next call on, whatever the rules say; nothing: the rules again. Alike on all ranks.
  void force(std::optional<Decision> decision) { forced_ = decision; }
  [[nodiscard]] bool is_forced() const { return forced_.has_value(); }
  [[nodiscard]] const Log& log() const { return log_; }
  [[nodiscard]] const Library& library() const { return library_; }
  [[nodiscard]] bool multithreaded() const { return multithreaded_; }
  /// Whether the job asks for encryption or a secret file: then no call that hetccl should serve
  /// goes to the MPI because hetccl has failed.
  [[nodiscard]] bool is_protected() const {
    return config_.encrypt || !config_.secret_file.empty();
  }
  /// On all ranks: ends the job, for a reason that rank 0, at least, has.
  [[noreturn]] void end(const std::string& why) const;
  /// This rank's host, as a hash.
  [[nodiscard]] uint64_t host() const { return host_; }
  /// For one call of hetccl. MPI knows no deadline: without HETCCL_TIMEOUT_MS there is none.
  [[nodiscard]] int64_t timeout_ms() const;
  /// How ranks of `comm` are spread over nodes, and nothing where one is not of this job's.
  [[nodiscard]] std::optional<Shape> shape_of(Word comm, int size) const;
  [[nodiscard]] int node_of(int world_rank) const {
    return nodes_[static_cast<size_t>(world_rank)];
  }
  [[nodiscard]] Requests& requests() { return requests_; }
  [[nodiscard]] Summary& summary() { return summary_; }

 private:
  Job(Library& library, Config config);
  // `mine` lacks what this object knows. False where hetccl serves nothing.
  bool agree(Settings mine);
  void meet_ranks();
  void meet_as_first(int size, int tag);
  void meet_first(int tag);
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
  std::vector<int> nodes_;  // by rank in MPI_COMM_WORLD: 0, 1, ... in the order of first ranks
  Requests requests_;
  Summary summary_;
};

/// While it lives, what this thread waits for in hetccl lets the MPI move its messages.
class InsideCall {
 public:
  InsideCall();
  ~InsideCall();
  InsideCall(const InsideCall&) = delete;
  InsideCall& operator=(const InsideCall&) = delete;
};

}  // namespace hetccl::mpi
