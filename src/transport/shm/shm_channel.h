// A channel through shared memory: each message is its header and its payload in the ring.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/fifo.h"
#include "base/shared_memory.h"
#include "host/crew.h"
#include "transport/extent.h"
#include "transport/message.h"
#include "transport/shm/pipe.h"
#include "transport/shm/segment.h"

namespace hetccl::transport::shm {

class ShmChannel;

/// Shared by the channels of one transport; the last owner frees it.
struct Channels {
  explicit Channels(std::shared_ptr<Crew> helpers) : crew(std::move(helpers)) {}
  /// Returns how much to copy at a time if `left` bytes of the message are left.
  [[nodiscard]] size_t piece_of(size_t left) const;

  const std::shared_ptr<Crew> crew;  ///< may be null
  std::mutex mutex;                  ///< held while `all` is walked or changed
  std::vector<ShmChannel*> all;
  std::atomic<uint64_t> bytes_sent{0};
};

class ShmChannel final : public Channel {
 public:
  /// `memory` holds a Segment. `side` 0 is its creator.
  ShmChannel(int peer, int side, SharedMemory memory, RemoteWaker waker,
             std::shared_ptr<Channels> channels);
  ~ShmChannel() override;

  void post_send(const Parcel& transfer) override;
  void post_recv(const Parcel& transfer) override;
  [[nodiscard]] uint64_t sends_completed() const override { return sends_completed_; }
  [[nodiscard]] uint64_t recvs_completed() const override { return recvs_completed_; }
  [[nodiscard]] bool takes_lists() const override { return true; }
  [[nodiscard]] std::optional<MessageInfo> incoming() override;
  [[nodiscard]] const Status& status() const override { return status_; }
  void close() override;
  [[nodiscard]] std::span<std::byte> window() override {
    if (memory_.bytes() <= kWindowBegin) return {};
    return {memory_.data() + kWindowBegin, memory_.bytes() - kWindowBegin};
  }

  /// Moves at most `*budget` bytes, and subtracts them from it. Returns true if anything moved.
  bool progress(size_t* budget);
  /// Asks the peer to ring after each move, or to stop ringing.
  void set_sleeping(bool sleeping);

 private:
  bool send(size_t* budget);
  bool receive(size_t* budget);
  bool begin_message();
  void complete_message();
  void ring_if_asleep();
  void fail(Status status);
  [[nodiscard]] Segment& segment() const { return *reinterpret_cast<Segment*>(memory_.data()); }

  const int peer_;
  const int side_;
  SharedMemory memory_;
  RemoteWaker waker_;
  const std::shared_ptr<Channels> channels_;
  bool open_ = true;
  Status status_;
  RingWriter out_;
  Fifo<Parcel> sends_;
  bool header_sent_ = false;  // of sends_.front()
  Extent sending_;            // its payload that is left, once the header is sent
  uint64_t sends_completed_ = 0;
  RingReader in_;
  Fifo<Parcel> recvs_;
  bool header_seen_ = false;  // of recvs_.front()
  Extent receiving_;          // its payload that is left, once the header was seen
  uint64_t recvs_completed_ = 0;
};

}  // namespace hetccl::transport::shm
