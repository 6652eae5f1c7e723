// A channel over several TCP connections. Messages are cut into pieces; whichever stream can take a
// piece carries it, and its header says where it belongs. Nothing is copied on the way but what the
// read-ahead caught, and a message that has not been posted stays in the kernel: TCP holds the
// sender back.
//
// The streams are shared out among the engine's driver, which posts, and the transport's movers. A
// stream belongs to one of them for ever; what all of them touch is the two lists of messages. The
// driver begins to write at once, and kicks movers where there is more than a piece.
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
  /// `wires` are connected and authenticated; they are watched from now on. `cards`: by which each
  /// goes, where this host has several; else empty.
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
  [[nodiscard]] std::optional<MessageInfo> incoming() override;
  [[nodiscard]] const Status& status() const override { return failed() ? status_ : fine_; }
  void close() override;
  /// Of that card which has most: Parcel::streams are those of each card.
  [[nodiscard]] size_t streams() const override { return n_lanes_; }

  // Called by the thread that the share or stream belongs to.
  bool on_events(Stream& stream, uint32_t events, size_t* budget);
  bool on_kick(Share& share, size_t* budget);
  /// By the engine's driver: fails the channel where the peer's host has acknowledged nothing for
  /// `limit`, though data is on its way to it.
  void check_path(TimePoint now, Duration limit);

 private:
  struct Sending {
    Parcel transfer;
    size_t assigned = 0;  // bytes given to streams
    size_t written = 0;
    bool last_written = false;  // a message of no bytes is its header
  };
  struct Receiving {
    Parcel transfer;
    size_t received = 0;
    size_t expected = 0;  // payload whose headers have come, and which has not
    bool header_seen = false;
  };

  TcpChannel(int peer, std::vector<net::Wire> wires, const std::vector<CardOf>& cards,
             std::shared_ptr<Movers> movers);
  // Sending.
  // With mutex_ held.
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
  // With mutex_ held: how much of the piece was buffered; whether messages are complete.
  Result<size_t> begin_payload(Stream& stream, const Header& header);
  bool count_payload(uint64_t message, size_t bytes);
  void end_stream(Stream& stream);
  // Both.
  bool handle_events(Stream& stream, uint32_t events, size_t* budget);
  bool handle_kick(Share& share, size_t* budget);
  void fail_without_memory(Share& share);
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
  void tell_engine(const Share& share);
  void watch(Stream& stream);
  void watch_all(Share& share);
  void fail(Share& share, Status status);
  void record(Status status);
  void forget(Share& share);  // its streams are no longer watched
  [[nodiscard]] Status closed(const Stream& stream, const std::string& why) const;
  [[nodiscard]] std::string text_of(const Stream& stream) const;

  const int peer_;
  size_t n_lanes_ = 1;
  const size_t piece_bytes_;  // at most
  const std::shared_ptr<Movers> movers_;
  std::vector<std::unique_ptr<Share>> shares_;  // the engine's is the first
  const Status fine_;
  Status status_;  // written once, before failed_
  Status out_of_memory_;
  std::atomic<bool> failed_{false};
  std::atomic<int> streams_left_{0};  // not read to the end
  std::atomic<uint64_t> sends_completed_{0}, recvs_completed_{0};

  std::mutex mutex_;       // guards what follows, and who writes the above
  Fifo<Sending> sends_;    // not complete, in order
  size_t unassigned_ = 0;  // index in sends_ of the first with pieces left to assign
  size_t next_share_ = 0;  // of the movers', whose turn it is to be kicked
  Fifo<Receiving> recvs_;
  std::optional<MessageInfo> next_;  // whose receive has not been posted
};

}  // namespace hetccl::transport::tcp
