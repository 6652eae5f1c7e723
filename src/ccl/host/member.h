// One rank's membership of a host cluster: it advances enqueued operations through the shared
// segment. All ranks walk the same sequence of chunks; each chunk goes through
//   contribute  copy this rank's data into its slot, once all ranks are through with the slot;
//   reduce      once all have contributed: compute or copy what this rank needs;
//   gather      two-stage operations, once all have reduced: copy the others' results.
// Contributing runs up to kDepth chunks ahead, into the next operations too: a rank that is done
// with its own part of an operation does not wait for the others to finish theirs.
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

/// How a rank writes what it makes of the others' slots: large results past the caches.
Caching caching_of(const HostCall& operation);

class Member : public ShmSource {
 public:
  /// `waker` may be null. `peers[r]` rings rank r, where it could be opened.
  Member(Segment segment, int rank, Waker* waker, std::vector<RemoteWaker> peers);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int n_ranks() const { return segment_.n_ranks(); }
  [[nodiscard]] const Geometry& geometry() const { return segment_.geometry(); }
  /// Whether every peer can ring this rank, so that it may sleep.
  [[nodiscard]] bool wakeable() const;

  /// The caller's operation to which what is opened next belongs.
  void number_calls(uint64_t number) { number_ = number; }
  /// The next operation of the communicator's sequence, prepared. One thread at a time.
  HostCall& open(Kind kind, std::span<const Shard> shards, DataType type, const Reducer& how);
  HostCall& open_exchange(std::span<const Transfer> transfers, DataType type);
  /// Advances `operation` by a bounded piece; operations advance in the order of `open`, on
  /// whatever queue they are. Once Done, the operation is gone.
  TaskState poll(HostCall& operation, const TaskQueue& queue);

  /// The first failure, of this rank or of the cluster.
  [[nodiscard]] Status error() const;
  /// The ranks that called different operations, where `error` is about that.
  [[nodiscard]] std::optional<Disagreement> disagreement() const;
  void abort();
  /// The communicator goes: operations that have not finished end, here and at the peers.
  void leave();

  void arm() override;
  void disarm() override;

 private:
  // Goes on towards the operation's end: whether anything moved.
  bool advance(HostCall& operation, const TaskQueue& queue);
  // Each returns whether it could do its next chunk, and adds the bytes that it moved to `work`.
  bool contribute(HostCall& operation, const TaskQueue& queue, size_t& work);
  bool reduce(HostCall& operation, const TaskQueue& queue, size_t& work);
  bool gather(const HostCall& operation, const TaskQueue& queue, size_t& work);

  void contribute_chunk(const HostCall& operation, const TaskQueue& queue, size_t& work);
  void reduce_chunk(const HostCall& operation, const TaskQueue& queue, size_t& work);
  void receive_chunk(const HostCall& operation, const TaskQueue& queue, size_t& work);
  void all_reduce_chunk(const HostCall& operation, const TaskQueue& queue, size_t& work);
  // Exchange: fill this rank's slot; take this rank's data out of the others'.
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
  // Whether the ranks' calls fit together. Where they do not, a rank that can tell fails the
  // cluster.
  [[nodiscard]] bool read_calls(HostCall& operation);
  [[nodiscard]] bool compare_call(const HostCall& operation, int r);
  void find_unmatched(HostCall& operation);
  [[nodiscard]] Parcel* parcels(int rank, uint64_t chunk) const;
  void fail(const Status& status, const std::optional<Disagreement>& between = {});
  void ring_sleepers();
  HostCall& take_idle();
  void close(HostCall& operation);

  Segment segment_;
  const int rank_;
  Waker* const waker_;
  std::vector<RemoteWaker> peers_;

  // Owned by the task whose turn it is.
  uint64_t contributed_ = 0, reduced_ = 0, gathered_ = 0;
  uint64_t all_contributed_ = 0, all_reduced_ = 0, all_gathered_ = 0;  // at least
  std::vector<const void*> sources_;
  std::vector<size_t> offsets_;
  std::vector<Copy> copies_;
  std::vector<Factor> factors_;  // of the ranks, in the operation whose turn it is
  std::atomic<uint64_t> turn_{0};

  uint64_t number_ = 0;  // of the caller's operation
  uint64_t opened_ = 0;
  std::vector<size_t> scratch_;
  std::vector<std::unique_ptr<HostCall>> operations_;  // all that were ever needed at once
  std::vector<HostCall*> idle_;
  std::mutex idle_mutex_;

  std::atomic<bool> stopped_{false};
  mutable std::mutex error_mutex_;
  Status error_;
  std::optional<Disagreement> between_;  // of `error_`
};

}  // namespace hetccl::ccl::host
