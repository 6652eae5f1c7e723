// hetccl's state of one communicator of the program: how its ranks are spread over nodes, what they
// have agreed on, and hetccl's communicators over the same ranks. The first call on the
// communicator makes it; MPI_Comm_free ends it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "mpi/compositions.h"
#include "mpi/endpoint.h"
#include "mpi/exchange.h"
#include "mpi/job.h"
#include "mpi/rules.h"
#include "mpi/summary.h"

namespace hetccl::mpi {

/// Who serves a call.
struct Routing {
  Decision decision{Algorithm::Beta};
  Reason reason = Reason::Rule;
  Volume volume;
  /// Of hetccl: `decision.communicators` of them.
  std::vector<std::unique_ptr<Endpoint>>* endpoints = nullptr;
};

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  /// Valid as long as the program's communicator.
  static Communicator* find(Word comm, Job& job);
  /// At MPI_Finalize.
  static void destroy_all();
  Communicator(Word comm, Job& job);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return shape_.size; }

  /// Who serves `call`: the same on all ranks. May wait for all of them, as the call may, unless it
  /// is nonblocking.
  Routing route(const MpiCall& call);
  /// An endpoint as those of `route` that no other call uses until `release`. Waits for all ranks,
  /// which get the same one; null on all where there are too many.
  Endpoint* reserve(const Routing& routing);
  void release(Endpoint* endpoint);
  /// For Algorithm::Alpha, of a blocking call.
  Composition& composition();

  /// Whether this thread may go on: another may be in a collective, which MPI forbids.
  bool enter() { return !busy_.exchange(true, std::memory_order_acquire); }
  void leave() { busy_.store(false, std::memory_order_release); }

 private:
  // What ranks tell each other of a kind of call, as bits: the first time that it comes.
  enum Fact : int { kOnDevice = 1, kWithGaps = 2 };
  struct Wanted {
    size_t key;
    Question question;
    int facts;
  };
  // How the rules answer a question where all data is in host memory, and where some is not.
  struct Decided {
    Question question;
    Decision on_host, on_device;
    bool is_known = false;
  };
  static size_t key_of(const MpiCall& call, const Volume& volume);
  static std::shared_ptr<Communicator> add(Word comm, Job& job);
  static int forget(Word comm, int keyval, void* value, void* extra);

  [[nodiscard]] Routing served_by_mpi(Reason reason, Volume volume) const;
  [[nodiscard]] Question question_of(const MpiCall& call, const Volume& volume) const;
  [[nodiscard]] int facts_of(const MpiCall& call) const;
  void want(size_t key, const Question& question, const MpiCall& call);
  void agree();
  // Ends a protected job where it fails: the MPI would carry in clear what hetccl should.
  Result<std::unique_ptr<Endpoint>> make_endpoint(MemorySpace place);
  // Whether there are so many; makes them where the call may wait.
  bool connect(bool on_device, int count, bool may_wait);
  [[nodiscard]] Decision decide(Question question, int facts) const;
  const Decided& decide(const Question& question);

  const Word comm_;
  Job& job_;
  const int rank_;
  Shape shape_;
  Reason never_ = Reason::Hetccl;  // why hetccl serves no call here, if so
  std::atomic<bool> busy_{false};
  static constexpr size_t kSizes = 65;  // classes of size
  static constexpr int8_t kUnknown = -1;
  std::array<int8_t, kCollectives * kSizes> facts_;  // agreed on, by kind of call
  std::array<Decided, kCollectives> decided_;        // the latest; programs repeat their calls
  std::vector<Wanted> wanted_;                       // of nonblocking calls, in their order
  MemorySpace device_place_;                         // this rank's, in endpoints_[1]
  // Of host memory, and where a rank has device memory.
  std::vector<std::unique_ptr<Endpoint>> endpoints_[2];
  bool broken_[2] = {false, false};  // they could not be made
  bool shares_gpus_ = false;         // ranks of endpoints_[1] do
  struct Reserved {
    std::unique_ptr<Endpoint> endpoint;
    bool in_use;
  };
  std::mutex reserved_mutex_;          // guards reserved_, but for its growth: one thread grows it
  std::vector<Reserved> reserved_[2];  // as endpoints_
  std::unique_ptr<Composition> composition_;
};

}  // namespace hetccl::mpi
