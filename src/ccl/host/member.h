// One rank's membership of a host cluster: advances enqueued operations through the shared segment.
// All ranks walk the same sequence of chunks. Each chunk goes through these steps:
// - contribute: copies this rank's data into its slot, once all ranks are done with the slot.
// - reduce: once all have contributed, computes or copies what this rank needs.
// - gather (two-stage operations): once all have reduced, copies the others' results.
// Contributing runs up to kDepth chunks ahead, even into the next operations, so a rank that has
// done its part of an operation does not wait for the others.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/waker.h"
#include "ccl/host/operation.h"
#include "ccl/host/segment.h"
#include "host/task_queue.h"

namespace hetccl::ccl::host {

/// Returns how a rank writes results from the others' slots: large results bypass the caches.
Caching caching_of(const HostCall& operation);

class Member : public ShmSource {
 public:
  /// `waker` may be null. `peers[r]` rings rank r, if it could be opened.
  Member(Segment segment, int rank, Waker* waker, std::vector<RemoteWaker> peers);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int n_ranks() const { return segment_.n_ranks(); }
  [[nodiscard]] const Geometry& geometry() const { return segment_.geometry(); }
  /// Returns whether every peer can ring this rank, so that it may sleep.
  [[nodiscard]] bool wakeable() const;

  /// Sets the caller's number of the operation that is opened next.
  void number_calls(uint64_t number) { number_ = number; }
  /// Returns the next operation of the communicator's sequence, prepared. One thread at a time.
  HostCall& open(Kind kind, std::span<const Shard> shards, DataType type, const Reducer& how);
  HostCall& open_exchange(std::span<const Transfer> transfers, DataType type);
  /// Advances `operation` by a bounded piece. Operations advance in the order of `open`, whatever
  /// their queues. Once Done, the operation is gone.
  TaskState poll(HostCall& operation, const TaskQueue& queue);

  /// Returns the first failure of this rank or of the cluster.
  [[nodiscard]] Status error() const;
  /// Returns the ranks that called different operations, if `error` is about that.
  [[nodiscard]] std::optional<Disagreement> disagreement() const;
  void abort();
  /// Ends unfinished operations, here and at the peers, because the communicator ends.
  void leave();

  void arm() override;
  void disarm() override;

 private:
  // Advances the operation. Returns whether anything moved.
  bool advance(HostCall& operation, const TaskQueue& queue);
  // Each does its next chunk if it can and returns whether it did; it adds the bytes moved to
  // `work`.
  bool contribute(HostCall& operation, const TaskQueue& queue, size_t& work);
  bool reduce(HostCall& operation, const TaskQueue& queue, size_t& work);
  bool gather(const HostCall& operation, const TaskQueue& queue, size_t& work);

  void contribute_chunk(const HostCall& operation, const TaskQueue& queue, size_t& work);
  void reduce_chunk(const HostCall& operation, const TaskQueue& queue, size_t& work);
  void receive_chunk(const HostCall& operation, const TaskQueue& queue, size_t& work);
  void all_reduce_chunk(const HostCall& operation, const TaskQueue& queue, size_t& work);
  // Exchange: `send_chunk` fills this rank's slot; `take_chunk` copies this rank's data from the
  // others' slots.
  void send_chunk(HostCall& operation, const TaskQueue& queue, size_t& work);
  void take_chunk(HostCall& operation, const TaskQueue& queue, size_t& work);
  void take_own(HostCall& operation, const TaskQueue& queue, size_t& work);
  void combine(const HostCall& operation, const TaskQueue& queue, std::byte* dst,
               const std::byte* own, size_t offset, size_t count, Caching caching);

  [[nodiscard]] std::byte* slot(const HostCall& operation, int rank, uint64_t chunk) const {
    return segment_.slot(rank, chunk) + operation.place(chunk);
  }
  [[nodiscard]] bool all_reached(Counter RankControl::* counter, uint64_t target,
                                 uint64_t& known) const;
  [[nodiscard]] bool failed() const;
  // Returns whether the ranks' calls agree. If not, a rank that can tell fails the cluster.
  [[nodiscard]] bool read_calls(HostCall& operation);
  [[nodiscard]] bool compare_call(const HostCall& operation, int r);
  void find_unmatched(HostCall& operation);
  [[nodiscard]] Parcel* parcels(int rank, uint64_t chunk) const;
  void fail(const Status& status, const std::optional<Disagreement>& between = {});
  void wake_members();
  HostCall& take_idle();
  void close(HostCall& operation);

  Segment segment_;
  const int rank_;
  Waker* const waker_;
  std::vector<RemoteWaker> peers_;

  // Used by the task of the current operation.
  uint64_t contributed_ = 0, reduced_ = 0, gathered_ = 0;
  uint64_t all_contributed_ = 0, all_reduced_ = 0, all_gathered_ = 0;  // lower bounds
  std::vector<const void*> sources_;
  std::vector<size_t> offsets_;
  std::vector<Copy> copies_;
  std::vector<Factor> factors_;  // of the ranks, in the current operation
  std::atomic<uint64_t> turn_{0};

  uint64_t number_ = 0;  // of the caller's operation
  uint64_t opened_ = 0;
  std::vector<size_t> scratch_;
  std::vector<std::unique_ptr<HostCall>> operations_;  // recycled; as many as were ever needed at
                                                       // once
  std::vector<HostCall*> idle_;
  std::mutex idle_mutex_;

  std::atomic<bool> stopped_{false};
  mutable std::mutex error_mutex_;
  Status error_;
  std::optional<Disagreement> between_;  // if `error_` is about that
};

}  // namespace hetccl::ccl::host
