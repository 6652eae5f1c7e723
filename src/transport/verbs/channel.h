// A channel over reliable queue pairs. The first carries everything except chunks of long messages,
// which are spread over all. Short messages travel through registered slots; the receiver holds a
// message in its slot until a receive is posted, and credits count the free slots. For a longer
// message the receiver grants parts of the posted memory, and the sender writes there by RDMA.
//
// Memory that is not registered with the transport is registered for one chunk at a time. So the
// user may free or remap it between messages, and no stale registration is ever used. Device memory
// is always registered, and no host thread touches it: a loopback copies from slots to it
// (channel_device.cc).
//
// The two ends meet over the authenticated connection. They first exchange the distances of their
// ports from their devices, by which both choose the same pair of ports, then the addresses of
// their queue pairs. The connection stays open; when it ends, the peer has gone.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fifo.h"
#include "net/wire.h"
#include "transport/verbs/core.h"
#include "transport/verbs/fabric.h"
#include "transport/verbs/frame.h"
#include "transport/verbs/loopback.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs/registry.h"

namespace hetccl::transport::verbs {

/// The upper half of a work request's id. The lower half is its slot, or its chunk's index.
enum class Work : uint64_t { Arrival = 1, Frame, Chunk, Landing };
constexpr uint64_t id_of(Work work, uint32_t index) {
  return static_cast<uint64_t>(work) << 32U | index;
}

class VerbsChannel final : public Channel, public Watched {
 public:
  /// `wire` is connected with the peer and authenticated. `ends.own` are the ports of `core`, with
  /// their distances. Returns before the peer has answered; messages posted meanwhile wait.
  static Result<std::unique_ptr<VerbsChannel>> create(Ends ends, net::Wire wire,
                                                      std::shared_ptr<Core> core);
  ~VerbsChannel() override;

  void post_send(const Parcel& transfer) override;
  void post_recv(const Parcel& transfer) override;
  [[nodiscard]] uint64_t sends_completed() const override { return sends_completed_; }
  [[nodiscard]] uint64_t recvs_completed() const override { return recvs_completed_; }
  [[nodiscard]] std::optional<MessageInfo> incoming() override;
  [[nodiscard]] const Status& status() const override { return status_; }
  void close() override;

  // For the core, with its mutex held.
  bool progress();
  void on_readable() override;
  /// Requests an event for the next completion, unless one is requested.
  void arm();
  void disarm() { armed_ = false; }
  /// Handles an event of `device`, which may concern other channels.
  void take_event(const Device& device, const abi::AsyncEvent& event);

 private:
  enum class Stage : uint8_t { Choosing, Meeting, Connected, Open };
  struct Sending {
    Parcel transfer;
    bool on_device = false;
    size_t granted = 0, written = 0;  // long message: bytes
    bool complete = false;
  };
  struct Receiving {
    Parcel transfer;
    bool on_device = false;
    size_t granted = 0, received = 0;  // long message: bytes
    bool complete = false;
  };
  /// A frame under way.
  struct Outgoing {
    bool whole = false;    // carries a message that is complete once the frame has arrived
    bool message = false;  // carries a message, whole or long
    uint64_t number = 0;
  };
  /// A chunk under way, at either end.
  struct Chunk {
    bool under_way = false;
    Region region;  // registered for this chunk alone, if its memory is not registered
    std::array<Piece, QueuePair::kMostParts> pieces;  // else keeps the registered memory
    uint64_t number = 0;
    size_t bytes = 0;
  };
  /// A copy of a part of a message from a slot to device memory. Without a slot: a read of device
  /// memory, which makes the peer's writes there visible.
  struct LocalCopy {
    std::optional<uint32_t> slot;
    uint64_t number = 0;  // the message's number
    size_t offset = 0, bytes = 0;
    bool frees = false, completes = false;  // its end frees the slot, completes the message
    Piece piece;
  };
  /// The registered pieces of memory in which a part of a message lies. Empty if some of it is not
  /// registered.
  struct Parts {
    std::array<abi::Sge, QueuePair::kMostParts> list{};
    std::array<Piece, QueuePair::kMostParts> pieces;
    size_t n = 0;
  };

  VerbsChannel(Ends ends, net::Wire wire, std::shared_ptr<Core> core);
  Status start();
  // The authenticated connection.
  Status write_wire(const uint8_t* data, size_t bytes);
  void read_wire();
  Status take_wire_bytes();
  Status choose_port();
  Status make_queues();
  Status meet();
  [[nodiscard]] bool is_concerned(const abi::AsyncEvent& event) const;
  // Completions.
  bool poll();
  bool poll(QueuePair& queue);
  Status handle(const abi::Wc& completion, QueuePair& queue);
  Status handle_arrival(const abi::Wc& completion);
  void note_error(const abi::Wc& completion);
  bool advance();
  void look_for_end(bool moved);
  bool awaits_more();
  // Sending (channel_send.cc).
  Status send_messages();
  Status send_message(Sending& sending, uint64_t number);
  Status send_frame(uint32_t slot, FrameKind kind, size_t bytes, const Outgoing& outgoing);
  Status return_credits();
  Status accept_grant(const Grant& grant);
  Status write_chunks();
  void finish_frame(uint32_t slot);
  void finish_chunk(uint32_t index);
  // Receiving (channel_recv.cc).
  Status match();
  Status begin(Receiving& receiving, uint32_t slot, uint64_t number);
  Status grant_chunks();
  Status grant_chunk(Receiving& receiving, uint64_t number, uint32_t index);
  Status finish_grant(uint32_t index, size_t bytes);
  Status repost(uint32_t slot);
  Status free_slot(uint32_t slot);
  // Registered memory, above all that of devices (channel_device.cc).
  [[nodiscard]] Piece find(const Parcel& transfer, size_t offset) const;
  [[nodiscard]] bool is_on_device(const Parcel& transfer) const;
  [[nodiscard]] Parts parts_of(const Parcel& transfer, size_t offset, size_t bytes) const;
  Status copy_from_slot(const Receiving& receiving, uint32_t slot, uint64_t number);
  Status flush(uint64_t number, Piece piece);
  Status make_loopback();
  Status begin_copies();
  Status begin_copy(const LocalCopy& copy);
  Status end_copies();
  [[nodiscard]] Status unknown_memory() const;

  /// Removes complete transfers from the front, because transfers complete in the order posted.
  template <typename Transfer>
  static void end_complete(Fifo<Transfer>& transfers, size_t& begun, uint64_t& completed) {
    for (; begun > 0 && transfers.front().complete; --begun, ++completed) transfers.pop();
  }
  void complete_sends() { end_complete(sends_, begun_, sends_completed_); }
  void complete_recvs() { end_complete(recvs_, matched_, recvs_completed_); }
  Result<Region> register_chunk(void* data, size_t bytes, unsigned access, bool* again);
  static void release(Chunk& chunk, std::atomic<size_t>& under_way);
  [[nodiscard]] bool is_long(uint32_t slot) const;
  uint8_t* slot_at(uint32_t index) { return slots_.get() + index * kSlotBytes; }
  [[nodiscard]] Header header_of(uint32_t slot) const;
  [[nodiscard]] bool ended() const { return !status_.ok(); }
  void keep(const Status& status);
  [[nodiscard]] Status closed() const;
  [[nodiscard]] Status explain(const Status& status) const;
  [[nodiscard]] Status defect(const char* what) const;

  Ends ends_;
  const int peer_;
  const std::shared_ptr<Core> core_;
  Port port_;  // valid once chosen
  Status status_;
  bool closed_ = false;

  net::Wire wire_;
  std::vector<uint8_t> from_wire_;
  Stage stage_ = Stage::Choosing;
  bool peer_closed_ = false;
  bool broken_ = false;  // a queue pair has failed: no completion brings data any more
  Status why_broken_;
  bool looked_ = false;     // the core was asked to look for an event that explains it
  uint64_t arrived_ = 0;    // frames and chunks that have arrived from the peer
  uint64_t delivered_ = 0;  // frames and chunks of this end that the peer has
  // The same two counts as the peer sent them when it closed.
  uint64_t peer_delivered_ = 0, peer_arrived_ = 0;
  TimePoint gives_up_{};  // when to stop waiting for what these counts promise; unset while data
                          // moves

  // Set once the port is chosen. Slots for receives come first, then those for sends.
  std::unique_ptr<uint8_t, void (*)(void*)> slots_;
  Region slots_region_;
  std::vector<std::unique_ptr<QueuePair>> queues_;  // the first also carries frames
  bool armed_ = false;

  Fifo<Sending> sends_;
  size_t begun_ = 0;  // number of sends_ that have begun
  uint64_t sends_completed_ = 0;
  uint32_t credits_ = kCredits;
  std::vector<uint32_t> free_slots_;
  std::array<Outgoing, kReceives + kSendSlots> outgoing_;  // by slot
  uint32_t messages_out_ = 0;                              // number of outgoing_ that carry a
                                                           // message
  Fifo<Grant> grants_;  // grants of the peer that no write has used yet
  std::array<Chunk, kGrants> writes_;

  Fifo<Receiving> recvs_;
  size_t matched_ = 0;  // number of recvs_ that have met their message
  uint64_t recvs_completed_ = 0;
  Fifo<uint32_t> inbox_;  // slots with messages that have no receive yet
  uint32_t owed_ = 0;     // credits to return
  std::array<Chunk, kGrants> granted_;
  size_t device_ = 0;  // number of the port's device in the registry
  std::unique_ptr<Loopback> loopback_;
  Fifo<LocalCopy> copies_;  // the ones under way come first
  size_t copying_ = 0;      // number of copies_ under way
};

}  // namespace hetccl::transport::verbs
