// A channel over a control connection and up to two connections of a plug-in, one each way. Headers
// and short messages travel over the control connection. A long message waits until the receiver
// has posted its receive and grants it; then the plug-in moves it in chunks.
//
// The plug-in's connections are made with the first long message, and have requests outstanding
// only while long messages move, because some plug-ins give up a whole device when a connection
// closes under a request (aws-ofi-nccl). A message from GPU memory is always long. A short message
// to GPU memory arrives over the control connection, and a loopback copies it to the GPU.
#pragma once

#include <memory>
#include <vector>

#include "base/fifo.h"
#include "transport/ncclnet/core.h"
#include "transport/ncclnet/link.h"
#include "transport/ncclnet/loopback.h"
#include "transport/ncclnet/stream.h"

namespace hetccl::transport::ncclnet {

class NetChannel final : public Channel {
 public:
  /// `wire` is connected with `peer` and authenticated. `device` is an index in the core's devices.
  /// Returns before the peer has answered; messages posted meanwhile wait.
  static Result<std::unique_ptr<NetChannel>> create(int peer, size_t device, net::Wire wire,
                                                    std::shared_ptr<Core> core);
  ~NetChannel() override;

  void post_send(const Parcel& transfer) override;
  void post_recv(const Parcel& transfer) override;
  [[nodiscard]] uint64_t sends_completed() const override { return sends_completed_; }
  [[nodiscard]] uint64_t recvs_completed() const override { return recvs_completed_; }
  [[nodiscard]] std::optional<MessageInfo> incoming() override;
  [[nodiscard]] const Status& status() const override { return status_; }
  void close() override;

  // For the core, with its mutex held.
  bool progress(TimePoint now);
  void on_event();
  /// Returns whether the plug-in must be polled, because no event tells its progress.
  [[nodiscard]] bool is_busy() const;
  /// Deregisters memory `number` (Known::number) from its connections.
  void forget(uint64_t number);

 private:
  struct Sending {
    Parcel transfer;
    const Known* known = nullptr;    // the registered memory that holds it; or null
    uint64_t end = 0;                // short message: complete once the stream has written this
                                     // many bytes
    size_t begun = 0, complete = 0;  // long message: bytes
    [[nodiscard]] bool is_whole() const {
      return transfer.bytes == 0 || (transfer.bytes <= kMostWhole && !is_on_device(known));
    }
  };
  struct Receiving {
    Parcel transfer;
    const Known* known = nullptr;
    size_t begun = 0, received = 0;  // long message: bytes
    bool complete = false;
  };
  /// A message that has no receive yet. If it is short, its bytes are in a slot.
  struct Arrived {
    Header header;
    bool whole = false;
    uint32_t slot = 0;
    size_t chunk_bytes = 0;  // long message: the sender's longest chunk
  };
  static bool is_on_device(const Known* known) { return known != nullptr && known->on_device(); }

  NetChannel(int peer, size_t device, net::Wire wire, std::shared_ptr<Core> core);
  Status prepare();
  // The control connection (channel.cc).
  void put(const Frame& frame);
  void write();
  void read();
  void take_all();
  Result<bool> take();
  Result<bool> take_message(const Frame& frame);
  Result<bool> take_hello();
  Status handle(const Frame& frame);
  Status accept_grant(uint64_t message);
  void look_for_end(bool moved, TimePoint now);
  bool awaits_chunks(TimePoint now);
  // Messages (messages.cc).
  Status listen(size_t chunk_bytes);
  Result<bool> advance_links(TimePoint now);
  void send_messages();
  Status send_chunks();
  Status finish_chunks();
  void complete_sends();
  void complete_recvs();
  Status match();
  Status begin(Receiving& receiving, const Arrived& arrived, uint64_t number);
  Status receive_chunks();
  [[nodiscard]] bool may_begin(const Receiving& receiving, const Arrived& arrived) const;
  Status write_to_device(const Receiving& receiving, const Arrived& arrived, uint64_t number);
  Status advance_copies(TimePoint now);
  void return_credits();
  bool advance(TimePoint now);

  uint8_t* slot_at(uint32_t slot) { return slots_.data() + slot * kMostWhole; }
  [[nodiscard]] Route route() const;
  [[nodiscard]] TimePoint deadline() const;
  [[nodiscard]] bool ended() const { return !status_.ok(); }
  void keep(const Status& status);
  /// Records a failure of the plug-in. A failure that the control connection reports precedes it.
  void keep_broken(const Status& status);
  [[nodiscard]] Status closed() const;
  [[nodiscard]] Status defect(const std::string& what) const;

  const int peer_;
  const size_t device_;
  const std::shared_ptr<Core> core_;
  const size_t chunk_bytes_;  // the most that this end can send or receive at a time
  Status status_;

  Stream stream_;
  bool watched_ = false;  // the core watches the control connection
  bool watches_writes_ = false;
  bool closed_ = true;
  ConnectionPair pair_;                 // the right to make out_ and in_
  std::unique_ptr<Link> out_, in_;      // made with the first long message
  std::unique_ptr<Loopback> loopback_;  // made with the first short message to a GPU
  Fifo<uint64_t> copies_;               // messages that the loopback is copying
  uint64_t copied_ = 0;                 // number of messages that the loopback has copied
  Status why_broken_;                   // the failure of a link or of the loopback
  uint64_t chunks_sent_ = 0;            // complete
  uint64_t chunks_received_ = 0;        // complete
  uint64_t peer_chunks_sent_ = 0;       // as the peer counted when it closed
  std::optional<TimePoint> gives_up_;   // when to stop waiting for chunks that the peer says it has
                                        // sent

  Fifo<Sending> sends_;
  size_t begun_ = 0;  // number of sends_ whose headers are written
  uint64_t sends_completed_ = 0;
  uint32_t credits_ = kCredits;
  Fifo<uint64_t> granted_;  // long messages with chunks left to send

  Fifo<Receiving> recvs_;
  size_t matched_ = 0;  // number of recvs_ that have met their message
  uint64_t recvs_completed_ = 0;
  Fifo<Arrived> inbox_;
  std::vector<uint8_t> slots_;
  uint32_t next_slot_ = 0;
  uint32_t owed_ = 0;         // credits to return
  Fifo<uint64_t> receiving_;  // long messages with chunks left to receive
};

}  // namespace hetccl::transport::ncclnet
