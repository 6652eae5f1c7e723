// One TCP connection of a channel, with its partly written and partly read pieces, and the epoll
// events that it waits for.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/path.h"
#include "net/wire.h"
#include "transport/extent.h"
#include "transport/message.h"
#include "transport/tcp/poller.h"

namespace hetccl::transport::tcp {

using net::Io;

/// The piece that a stream is writing: its header, then its payload.
class PieceWriter {
 public:
  [[nodiscard]] bool active() const { return left_header_ + payload_.bytes() > 0; }
  [[nodiscard]] uint64_t message() const { return message_; }
  [[nodiscard]] size_t header_left() const { return left_header_; }
  void start(const Header& header, const Extent& payload);
  /// Writes as much as the wire takes, mostly in one call. Returns Blocked if the piece is not
  /// complete.
  Io write(net::Wire& wire, size_t* written);

 private:
  std::array<uint8_t, kHeaderBytes> header_;
  Extent payload_;
  size_t left_header_ = 0;
  uint64_t message_ = 0;
};

/// The state of reading a stream. A small read-ahead buffer takes headers and short payloads; all
/// other payload goes straight to user memory.
class PieceReader {
 public:
  static constexpr size_t kReadAheadBytes = 8192;
  /// Return whether a whole header is buffered, and whether payload is expected.
  [[nodiscard]] bool has_header() const { return end_ - begin_ >= kHeaderBytes; }
  [[nodiscard]] bool in_payload() const { return target_.bytes() > 0; }
  [[nodiscard]] bool empty() const { return begin_ == end_ && !in_payload(); }
  [[nodiscard]] const uint8_t* header() const { return buffer_.data() + begin_; }
  /// Drops the buffered header. The payload that follows belongs into `target`. Returns how many of
  /// its bytes were buffered already.
  size_t begin_payload(const Extent& target);
  /// Reads what has arrived, in one call: payload to its target, the rest into the read-ahead
  /// buffer. Sets `*payload` to the bytes stored at the target, and `*more` if there may be more to
  /// read. Requires that payload is expected or no header is buffered. Without `from_socket` it
  /// only reads what is already in this process.
  Io read(net::Wire& wire, bool from_socket, size_t* payload, bool* more);

 private:
  std::array<uint8_t, kReadAheadBytes> buffer_;
  size_t begin_ = 0, end_ = 0;
  Extent target_;
};

class TcpChannel;

struct Stream;

/// The streams of a channel that one thread moves.
struct Share final : Kicked {
  Share(TcpChannel& owner, Poller& its_poller) : channel(owner), poller(its_poller) {}
  bool on_kick(size_t* budget) override;

  TcpChannel& channel;
  Poller& poller;
  std::vector<std::unique_ptr<Stream>> streams;
  size_t lane = 0;          // number of its lowest stream
  size_t next = 0;          // the stream that writes next
  bool unfinished = false;  // its last write left unassigned data

  // Guarded by the channel's mutex. A thread that changes them from true must kick.
  bool idle = true;      // has written everything assigned
  bool waiting = false;  // read a header whose receive has not been posted
};

struct Stream final : Watched {
  Stream(net::Wire its_wire, Share& its_share, std::string its_card, size_t its_lane)
      : wire(std::move(its_wire)), share(its_share), card(std::move(its_card)), lane(its_lane) {}
  bool on_events(uint32_t events, size_t* budget) override;

  net::Wire wire;
  net::Path path;  // the engine's driver watches it
  Share& share;
  const std::string card;  // that it goes by; "": that of all
  const size_t lane;       // its number among the channel's streams of its NIC
  PieceWriter writer;
  PieceReader reader;
  uint64_t reading = 0;          // number of the message whose payload is read
  std::optional<Header> parked;  // a header whose receive has not been posted
  bool full = false;             // the socket took no more: wait for EPOLLOUT
  bool stalled = false;          // readable while parked: EPOLLIN off
  bool ending = false;           // the peer has closed, with data left to read: not watched
  bool ended = false;            // read to the end
  uint32_t watched = 0;          // events registered with epoll; 0: none
};

}  // namespace hetccl::transport::tcp
