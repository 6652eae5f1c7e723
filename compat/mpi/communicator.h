// hetccl's state for one communicator of the program: how its ranks are spread over nodes, the
// facts that its ranks have agreed on, and hetccl's communicators over the same ranks. The first
// call on the communicator creates it; MPI_Comm_free destroys it.
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

/// Decision about one call: hetccl or the MPI, and why.
struct Routing {
  Decision decision{Algorithm::Beta};
  Reason reason = Reason::Rule;
  Volume volume;
  /// If hetccl serves the call: its endpoints, at least `decision.communicators`.
  std::vector<std::unique_ptr<Endpoint>>* endpoints = nullptr;
};

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  /// Returns a pointer that is valid as long as the program's communicator.
  static Communicator* find(Word comm, Job& job);
  /// Destroys all at MPI_Finalize.
  static void destroy_all();
  Communicator(Word comm, Job& job);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return shape_.size; }

  /// Decides whether hetccl or the MPI serves `call`; the answer is the same on all ranks. May wait
  /// for all ranks, as the call itself may, unless it is nonblocking.
  Routing route(const MpiCall& call);
  /// Reserves an endpoint of the kind of `route`'s for one request, until `release`. Waits for all
  /// ranks, which get the same one; returns null on all ranks if kMostReserved are taken.
  Endpoint* reserve(const Routing& routing);
  void release(Endpoint* endpoint);
  /// The composition for a blocking call by Algorithm::Alpha.
  Composition& composition();

  /// Returns false if another thread is in a collective on this communicator, which MPI forbids.
  bool enter() { return !busy_.exchange(true, std::memory_order_acquire); }
  void leave() { busy_.store(false, std::memory_order_release); }

 private:
  // Facts that ranks exchange, as bits, when a kind of call comes for the first time.
  enum Fact : int { kOnDevice = 1, kWithGaps = 2 };
  struct Wanted {
    size_t key;
    Question question;
    int facts;
  };
  // The rules' answers to a question: if all data is in host memory, and if some is on a device.
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
  // Aborts a protected job if this fails: the MPI would carry data in clear text that hetccl should
  // encrypt.
  Result<std::unique_ptr<Endpoint>> make_endpoint(MemorySpace place);
  // Returns whether `count` endpoints exist; creates the missing ones if the call may wait.
  bool connect(bool on_device, int count, bool may_wait);
  [[nodiscard]] Decision decide(Question question, int facts) const;
  const Decided& decide(const Question& question);

  const Word comm_;
  Job& job_;
  const int rank_;
  Shape shape_;
  Reason never_ = Reason::Hetccl;  // reason why hetccl serves no call here, if there is one
  std::atomic<bool> busy_{false};
  static constexpr size_t kSizes = 65;  // size classes
  static constexpr int8_t kUnknown = -1;
  std::array<int8_t, kCollectives * kSizes> facts_;  // agreed on by all ranks, by kind of call
  std::array<Decided, kCollectives> decided_;        // a cache: programs repeat their calls
  std::vector<Wanted> wanted_;                       // in call order, not yet agreed on
  MemorySpace device_place_;                         // this rank's memory space for endpoints_[1]
  // [0]: for calls whose data is all in host memory. [1]: for calls to which a rank passes device
  // memory.
  std::vector<std::unique_ptr<Endpoint>> endpoints_[2];
  bool broken_[2] = {false, false};  // creating an endpoint has failed
  bool shares_gpus_ = false;         // some ranks of endpoints_[1] share a GPU
  struct Reserved {
    std::unique_ptr<Endpoint> endpoint;
    bool in_use;
  };
  std::mutex reserved_mutex_;          // guards reserved_; only one thread at a time makes it grow
  std::vector<Reserved> reserved_[2];  // indexed as endpoints_
  std::unique_ptr<Composition> composition_;
};

}  // namespace hetccl::mpi
