// The plug-in's two connections of a channel, one each way: how they are made and proven, and the
// requests that are outstanding on them.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/fifo.h"
#include "transport/ncclnet/frame.h"
#include "transport/ncclnet/plugin.h"

namespace hetccl::transport::ncclnet {

/// A part of a message that goes by the plug-in at once.
struct Chunk {
  Range range;
  uint64_t message = 0;  ///< its number in the channel and direction
};

/// One thread at a time.
class Link {
 public:
  /// Listens for rank `peer`, and connects nowhere yet.
  static Result<std::unique_ptr<Link>> listen(int peer, std::shared_ptr<const Plugin> plugin,
                                              const Device& device);
  ~Link() { close(); }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// What the peer must know.
  [[nodiscard]] const Hello& hello() const { return own_; }
  /// The peer's, who proved itself where this came from. `deadline`: when both connections must be
  /// made.
  void meet(const Hello& theirs, TimePoint deadline);
  /// Goes on connecting. Whether something has changed. RemoteError naming the peer and the device;
  /// Timeout after the deadline.
  Result<bool> advance(TimePoint now);
  /// Chunks may go both ways.
  [[nodiscard]] bool is_open() const { return open_; }
  /// Whether requests are outstanding, or connections being made: only `advance` and `finish_*`
  /// show how these go on.
  [[nodiscard]] bool is_busy() const {
    return (met_ && !open_) || !out_.requests.empty() || !in_.requests.empty();
  }
  /// The longest chunk, the same at both ends.
  [[nodiscard]] size_t chunk_bytes() const {
    return own_.chunk_bytes < theirs_.chunk_bytes ? own_.chunk_bytes : theirs_.chunk_bytes;
  }

  /// Begin to move a chunk. False where the plug-in takes no more now: the same chunk is to be
  /// offered again, and no other before it. Both ends move the same chunks in the same order.
  Result<bool> send(const Chunk& chunk) { return begin(out_, chunk); }
  Result<bool> receive(const Chunk& chunk) { return begin(in_, chunk); }
  /// Return the first outstanding chunk if it is complete.
  Result<std::optional<Chunk>> finish_send() { return finish(out_); }
  Result<std::optional<Chunk>> finish_receive() { return finish(in_); }

  /// Deregisters and closes: the plug-in touches no memory of chunks afterwards.
  void close();

  /// Chunks outstanding each way.
  static constexpr size_t kWindow = 8;
  static_assert(kWindow <= abi::kMaxRequests);

 private:
  struct Request {
    void* request;
    void* region;
    Chunk chunk;
  };
  /// A connection one way.
  struct Way {
    void* comm = nullptr;
    Fifo<Request> requests;
    void* held = nullptr;  ///< region of the chunk that the plug-in has not taken
    bool holds = false;
  };

  Link(int peer, std::shared_ptr<const Plugin> plugin, const Device& device)
      : peer_(peer), plugin_(std::move(plugin)), device_(device) {}
  Result<bool> begin(Way& way, const Chunk& chunk);
  Result<std::optional<Chunk>> finish(Way& way);
  Result<bool> connect();
  Result<bool> prove();
  [[nodiscard]] bool is_proving() const { return token_received_ || token_sent_; }
  void drain();
  void close_listener();
  [[nodiscard]] Status failed(const char* what, int code) const;

  const int peer_;
  const std::shared_ptr<const Plugin> plugin_;
  const Device device_;
  Hello own_, theirs_;
  TimePoint deadline_{};
  bool met_ = false, open_ = false;
  bool token_sent_ = false, token_received_ = false;      // asked for
  bool token_arrived_ = false, token_delivered_ = false;  // complete
  alignas(64) std::array<uint8_t, sizeof(Hello::token)> token_in_{}, token_out_{};
  void* listener_ = nullptr;
  Way out_, in_;
};

}  // namespace hetccl::transport::ncclnet
