// A channel over several TCP connections. Messages are cut into pieces; whichever stream can take a
// piece carries it, and its header says where it belongs. Nothing is copied on the way but what the
// read-ahead caught, and a message that has not been posted stays in the kernel: TCP holds the
// sender back.
#pragma once

#include <memory>
#include <vector>

#include "base/fifo.h"
#include "transport/tcp/stream.h"

namespace hetccl::transport::tcp {

class TcpChannel final : public Channel {
 public:
  /// `wires` are connected and authenticated; they are watched from now on.
  static Result<std::unique_ptr<TcpChannel>> create(int peer, std::vector<net::Wire> wires,
                                                    std::shared_ptr<Poller> poller);
  ~TcpChannel() override;

  void post_send(const Transfer& transfer) override;
  void post_recv(const Transfer& transfer) override;
  [[nodiscard]] uint64_t sends_completed() const override { return sends_completed_; }
  [[nodiscard]] uint64_t recvs_completed() const override { return recvs_completed_; }
  [[nodiscard]] const Status& status() const override { return status_; }
  void close() override;

  bool on_events(Stream& stream, uint32_t events, size_t* budget);

 private:
  struct Sending {
    Transfer transfer;
    size_t assigned = 0;  // bytes given to streams
    size_t written = 0;
    bool last_written = false;  // a message of no bytes is its header
  };
  struct Receiving {
    Transfer transfer;
    size_t received = 0;
    size_t expected = 0;  // payload whose headers have come, and which has not
    bool header_seen = false;
  };

  TcpChannel(int peer, std::vector<net::Wire> wires, std::shared_ptr<Poller> poller);
  // Sending.
  bool write_all(size_t* budget);
  bool assign(Stream& stream);
  Io write(Stream& stream, size_t* budget);
  [[nodiscard]] bool has_unassigned() const { return unassigned_ < sends_.size(); }
  // Receiving.
  bool read(Stream& stream, size_t* budget, bool from_socket);
  bool begin_message(Stream& stream);
  void count_payload(uint64_t message, size_t bytes);
  void end_stream(Stream& stream);
  // Both.
  void watch(Stream& stream);
  void watch_all();
  void fail(Status status);
  void forget(Stream& stream);  // no longer watched
  [[nodiscard]] Status closed(const std::string& why) const;

  const int peer_;
  const std::shared_ptr<Poller> poller_;
  std::vector<std::unique_ptr<Stream>> streams_;
  Status status_;
  Fifo<Sending> sends_;    // not complete, in order
  size_t unassigned_ = 0;  // index in sends_ of the first with pieces left to assign
  size_t next_stream_ = 0;
  uint64_t sends_completed_ = 0;
  Fifo<Receiving> recvs_;
  uint64_t recvs_completed_ = 0;
};

}  // namespace hetccl::transport::tcp
