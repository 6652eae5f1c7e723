// A channel over several TCP connections. Messages are cut into pieces. Any stream with room
// carries a piece, whose header says where it belongs. Payload is read straight to its place,
// except for the few bytes in the read-ahead buffer. A message without a posted receive stays in
// the kernel, so TCP's back-pressure stops the sender.
//
// The engine's driver, which posts, and the transport's movers share the streams. Each stream
// belongs to one of them for ever; all of them share only the two lists of messages. The driver
// starts to write at once, and kicks movers if there is more than one piece.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/fifo.h"
#include "transport/tcp/address.h"
#include "transport/tcp/movers.h"
#include "transport/tcp/stream.h"

namespace hetccl::transport::tcp {

class TcpChannel final : public Channel {
 public:
  /// `wires` are connected and authenticated; they are watched from now on. `cards`: the NIC of
  /// each wire if this host has several, else empty.
  static Result<std::unique_ptr<TcpChannel>> create(int peer, std::vector<net::Wire> wires,
                                                    const std::vector<CardOf>& cards,
                                                    std::shared_ptr<Movers> movers);
  ~TcpChannel() override;

  void post_send(const Parcel& transfer) override;
  void post_recv(const Parcel& transfer) override;
  [[nodiscard]] uint64_t sends_completed() const override {
    return sends_completed_.load(std::memory_order_acquire);
  }
  [[nodiscard]] uint64_t recvs_completed() const override {
    return recvs_completed_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool takes_lists() const override { return true; }
  [[nodiscard]] std::optional<MessageInfo> incoming() override;
  [[nodiscard]] const Status& status() const override { return failed() ? status_ : fine_; }
  void close() override;
  /// Returns the number of streams of the NIC that has most, because Parcel::streams counts per
  /// NIC.
  [[nodiscard]] size_t streams() const override { return n_lanes_; }

  // Called by the thread that owns the share or stream.
  bool on_events(Stream& stream, uint32_t events, size_t* budget);
  bool on_kick(Share& share, size_t* budget);
  /// Called by the engine's driver. Fails the channel if data is on its way and the peer's host has
  /// acknowledged nothing for `limit`.
  void check_path(TimePoint now, Duration limit);

 private:
  struct Sending {
    Parcel transfer;
    size_t assigned = 0;  // bytes given to streams
    size_t written = 0;
    bool last_written = false;  // the header of an empty message is written
  };
  struct Receiving {
    Parcel transfer;
    size_t received = 0;
    size_t expected = 0;  // payload bytes whose header has come, but not they
    bool header_seen = false;
  };

  TcpChannel(int peer, std::vector<net::Wire> wires, const std::vector<CardOf>& cards,
             std::shared_ptr<Movers> movers);
  // Sending. Requires mutex_.
  void share_out(const Parcel& transfer, bool idle);
  [[nodiscard]] bool may_write(size_t lane);
  bool write_all(Share& share, size_t* budget);
  bool assign(Stream& stream);
  Io write(Stream& stream, size_t* budget);
  [[nodiscard]] bool has_unassigned() { return unassigned_ < sends_.size(); }
  // Receiving.
  bool resume(Share& share, size_t* budget);
  bool read(Stream& stream, size_t* budget, bool from_socket);
  bool begin_message(Stream& stream, bool* news);
  // Require mutex_. Return how much of the piece was buffered, and whether messages are complete.
  Result<size_t> begin_payload(Stream& stream, const Header& header);
  bool count_payload(uint64_t message, size_t bytes);
  void end_stream(Stream& stream);
  // Sending and receiving.
  bool handle_events(Stream& stream, uint32_t events, size_t* budget);
  bool handle_kick(Share& share, size_t* budget);
  void fail_without_memory(Share& share);
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
  void wake_engine(const Share& share);
  void watch(Stream& stream);
  void watch_all(Share& share);
  void fail(Share& share, Status status);
  void record(Status status);
  void forget(Share& share);  // stops watching its streams
  [[nodiscard]] Status closed(const Stream& stream, const std::string& why) const;
  [[nodiscard]] std::string text_of(const Stream& stream) const;

  const int peer_;
  size_t n_lanes_ = 1;
  const size_t piece_bytes_;  // upper limit
  const std::shared_ptr<Movers> movers_;
  std::vector<std::unique_ptr<Share>> shares_;  // the engine's is the first
  const Status fine_;
  Status status_;  // written once, before failed_
  Status out_of_memory_;
  std::atomic<bool> failed_{false};
  std::atomic<int> streams_left_{0};  // streams not read to the end
  std::atomic<uint64_t> sends_completed_{0}, recvs_completed_{0};

  std::mutex mutex_;       // guards the members below, and writes of the above
  Fifo<Sending> sends_;    // incomplete, in order
  size_t unassigned_ = 0;  // index in sends_ of the first with pieces left to assign
  size_t next_share_ = 0;  // index of the mover's share to kick next
  Fifo<Receiving> recvs_;
  std::optional<MessageInfo> next_;  // a message whose receive has not been posted
};

}  // namespace hetccl::transport::tcp
