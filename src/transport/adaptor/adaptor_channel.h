// A channel that moves data by an adaptor. Each message is two posts: its header and its payload.
// The receive of the next header is always posted, so that the next message and the peer's
// departure are noticed even if the engine expects nothing.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "base/fifo.h"
#include "net/auth.h"
#include "transport/adaptor/core.h"
#include "transport/message.h"

namespace hetccl::transport::adaptors {

/// Identifies a channel of the job and this end of it.
struct Name {
  std::string transport;
  uint64_t communicator = 0;
  int self = 0, peer = 0;
  [[nodiscard]] int side() const { return self < peer ? 0 : 1; }
  /// Returns HMAC(secret, `what` | this channel | `more`), equal at both ends.
  [[nodiscard]] net::Mac derive(const char* what, const net::Secret& secret,
                                const std::vector<uint8_t>& more = {}) const;
};

class AdaptorChannel final : public Channel {
 public:
  /// `channel`: the adaptor's channel, which this closes.
  AdaptorChannel(Name name, std::shared_ptr<Core> core, void* channel)
      : name_(std::move(name)), core_(std::move(core)), channel_(channel) {}
  ~AdaptorChannel() override { close(); }
  AdaptorChannel(const AdaptorChannel&) = delete;
  AdaptorChannel& operator=(const AdaptorChannel&) = delete;

  /// Proves to the peer that this end knows `secret`, and waits for the peer's proof. Nothing may
  /// be posted before. Calls `meanwhile` now and then. Returns RemoteError if the peer does not
  /// know `secret`, or has gone.
  Status prove(const net::Secret& secret, TimePoint deadline, const WaitLimit& limit,
               const std::function<void()>& meanwhile);

  void post_send(const Parcel& transfer) override;
  void post_recv(const Parcel& transfer) override;
  [[nodiscard]] uint64_t sends_completed() const override { return sends_completed_; }
  [[nodiscard]] uint64_t recvs_completed() const override { return recvs_completed_; }
  [[nodiscard]] std::optional<MessageInfo> incoming() override;
  [[nodiscard]] const Status& status() const override { return status_; }
  void close() override;

  // Requires the core's mutex. Returns true if something has changed.
  bool advance();
  bool fail(const Status& why);

 private:
  struct Sending {
    std::array<uint8_t, kHeaderBytes> header;
    uint64_t end = 0;  // complete once the adaptor has sent that many posts
  };
  // The proofs exchanged by the ends; the adaptor reads and writes this memory.
  struct Proof {
    std::array<std::array<uint8_t, net::kNonceBytes>, 2> nonces;  // by side
    net::Mac mine, theirs;
  };

  Status send(const void* data, size_t bytes);
  Status receive(void* data, size_t bytes);
  Status count();
  Status await(uint64_t receives, TimePoint deadline, const WaitLimit& limit,
               const std::function<void()>& meanwhile);
  [[nodiscard]] net::Mac proof_of(int side, const net::Secret& secret) const;
  Status expect_header();
  Result<bool> take_header();
  Status begin_payload();
  Result<bool> take_all();
  void finish_receive();

  const Name name_;
  const std::shared_ptr<Core> core_;
  void* channel_;  // null once closed
  Status status_;
  Status ended_;  // the adaptor's error; reported once all received data is taken
  Proof proof_{};
  uint64_t posted_sends_ = 0, posted_receives_ = 0;  // posts to the adaptor
  uint64_t done_sends_ = 0, done_receives_ = 0;
  uint64_t sends_completed_ = 0, recvs_completed_ = 0;
  uint64_t next_number_ = 0, expected_number_ = 0;
  std::deque<Sending> sends_;  // incomplete; elements do not move in memory
  Fifo<Parcel> recvs_;         // incomplete
  std::array<uint8_t, kHeaderBytes> header_{};
  uint64_t header_at_ = 0;         // count of receives that includes the next header
  uint64_t payload_at_ = 0;        // count that includes the first receive's payload; 0: not posted
  std::optional<Header> arrived_;  // a header whose receive has not begun
};

}  // namespace hetccl::transport::adaptors
