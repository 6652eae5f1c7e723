// A channel that an adaptor moves. A message is two posts, its header and its payload. The receive
// of the next header is always posted, so that the next message and the peer's leaving are seen
// whether or not the engine expects anything.
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

/// Which channel of the job this is, and who this end is.
struct Name {
  std::string transport;
  uint64_t communicator = 0;
  int self = 0, peer = 0;
  [[nodiscard]] int side() const { return self < peer ? 0 : 1; }
  /// HMAC(secret, `what` | this channel | `more`), equal at both ends.
  [[nodiscard]] net::Mac derive(const char* what, const net::Secret& secret,
                                const std::vector<uint8_t>& more = {}) const;
};

class AdaptorChannel final : public Channel {
 public:
  /// `channel`: the adaptor's, to be closed by this.
  AdaptorChannel(Name name, std::shared_ptr<Core> core, void* channel)
      : name_(std::move(name)), core_(std::move(core)), channel_(channel) {}
  ~AdaptorChannel() override { close(); }
  AdaptorChannel(const AdaptorChannel&) = delete;
  AdaptorChannel& operator=(const AdaptorChannel&) = delete;

  /// Proves to the other end that this one knows `secret`, and waits for its proof. Only then can
  /// anything be posted; `meanwhile` is called now and then. RemoteError where the other end does
  /// not know it, or has gone.
  Status prove(const net::Secret& secret, TimePoint deadline, const WaitLimit& limit,
               const std::function<void()>& meanwhile);

  void post_send(const Parcel& transfer) override;
  void post_recv(const Parcel& transfer) override;
  [[nodiscard]] uint64_t sends_completed() const override { return sends_completed_; }
  [[nodiscard]] uint64_t recvs_completed() const override { return recvs_completed_; }
  [[nodiscard]] std::optional<MessageInfo> incoming() override;
  [[nodiscard]] const Status& status() const override { return status_; }
  void close() override;

  // With the core's mutex held: true where something has changed.
  bool advance();
  bool fail(const Status& why);

 private:
  struct Sending {
    std::array<uint8_t, kHeaderBytes> header;
    uint64_t end = 0;  // complete once the adaptor has sent so many posts
  };
  // What the ends prove themselves by; the adaptor reads and writes it.
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
  Status ended_;  // as the adaptor says; told once what has come is taken
  Proof proof_{};
  uint64_t posted_sends_ = 0, posted_receives_ = 0;  // of the adaptor's
  uint64_t done_sends_ = 0, done_receives_ = 0;
  uint64_t sends_completed_ = 0, recvs_completed_ = 0;
  uint64_t next_number_ = 0, expected_number_ = 0;
  std::deque<Sending> sends_;  // not complete; they do not move
  Fifo<Parcel> recvs_;         // not complete
  std::array<uint8_t, kHeaderBytes> header_{};
  uint64_t header_at_ = 0;         // that many receives include the next header
  uint64_t payload_at_ = 0;        // and the first receive's payload; 0: that is not posted
  std::optional<Header> arrived_;  // a header whose receive has not begun
};

}  // namespace hetccl::transport::adaptors
