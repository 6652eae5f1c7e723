// One connection of the plug-in, which carries the long messages of one direction of a channel: how
// it is made and proven, and its outstanding requests.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/fifo.h"
#include "transport/ncclnet/frame.h"
#include "transport/ncclnet/known.h"
#include "transport/ncclnet/plugin.h"

namespace hetccl::transport::ncclnet {

/// A part of a message that the plug-in moves with one request.
struct Chunk {
  Range range;
  uint64_t message = 0;  ///< the message's number in its channel and direction
  /// The registered memory in which it lies. Null: host memory, registered for this chunk alone.
  const Known* known = nullptr;
  bool last = false;  ///< the last of its message; if the memory needs a flush, it follows this
                      ///< chunk
};

/// The plug-in and device that a channel's connections use.
struct Route {
  std::string peer;  ///< "rank 3"
  std::shared_ptr<const Plugin> plugin;
  Device device;
  std::atomic<size_t>* registered = nullptr;  ///< counts chunks with a registration of their own,
                                              ///< over all channels of the transport
  [[nodiscard]] size_t chunk_bytes() const {
    return std::min(kMostChunk, device.properties.max_bytes);
  }
};

/// Used by one thread at a time.
class Link {
 public:
  /// Makes the receiver's end, which listens. The caller must send `hello` to the peer.
  /// `chunk_bytes` is the longest chunk that the sender can send.
  static Result<std::unique_ptr<Link>> listen(Route route, size_t chunk_bytes, TimePoint deadline);
  /// Makes the sender's end, which connects to the listener that `hello` describes.
  static std::unique_ptr<Link> connect(Route route, const Hello& hello, TimePoint deadline);
  ~Link() { close(); }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  [[nodiscard]] const Hello& hello() const { return hello_; }
  /// Advances the connection without blocking. Returns whether anything has changed, RemoteError
  /// naming the peer and the device, or Timeout after the deadline.
  Result<bool> advance(TimePoint now);
  /// Returns whether chunks can be moved.
  [[nodiscard]] bool is_open() const { return open_; }
  /// Returns whether `advance` or `finish` must be called again, because no event tells progress.
  [[nodiscard]] bool is_busy() const { return !open_ || !requests_.empty(); }
  /// Returns the longest chunk, which is the same at both ends.
  [[nodiscard]] size_t chunk_bytes() const { return chunk_bytes_; }

  /// Begins to move a chunk. Returns false if the plug-in takes no further request now: offer the
  /// same chunk again, and no other before it. Both ends move the same chunks in the same order.
  Result<bool> begin(const Chunk& chunk);
  /// Returns the first outstanding chunk if it is complete.
  Result<std::optional<Chunk>> finish();

  /// Registers memory with this connection unless it is registered. Requires a connection. Returns
  /// SystemError if the plug-in refuses.
  Status register_once(const Known& known);
  /// Deregisters memory `number` (Known::number).
  void forget(uint64_t number);

  /// Deregisters all memory and closes. Afterwards the plug-in touches no memory of chunks.
  void close();

  /// The most outstanding chunks.
  static constexpr size_t kWindow = 8;
  static_assert(kWindow <= abi::kMaxRequests);

 private:
  struct Request {
    void* request;
    void* region;
    Chunk chunk;
    bool owns_region = false;  // the region was registered for this chunk alone
    bool flushing = false;     // all bytes have arrived, and a flush is under way
  };
  struct Region {
    Status refused;
    void* region = nullptr;
  };

  Link(Route route, bool sends, TimePoint deadline)
      : route_(std::move(route)), sends_(sends), deadline_(deadline) {}
  Status make_connection();
  Result<bool> prove();
  Result<bool> hold_region(const Chunk& chunk);
  const Region& region_of(const Known& known);
  Status register_known(const Known& known, void** region);
  Result<bool> flush(Request& request);
  int deregister(void* region);
  void close_listener();
  [[nodiscard]] Calls& calls() const { return route_.plugin->calls(); }
  [[nodiscard]] const char* plugin_name() const { return route_.plugin->name().c_str(); }
  [[nodiscard]] const char* device_name() const { return route_.device.properties.name.c_str(); }
  [[nodiscard]] Status failed(const char* what, int code) const;

  const Route route_;
  const bool sends_;
  const TimePoint deadline_;
  Hello hello_;
  size_t chunk_bytes_ = 0;
  bool proving_ = false, open_ = false;
  alignas(64) std::array<uint8_t, sizeof(Hello::token)> token_{};  // being sent or received
  void* listener_ = nullptr;
  void* comm_ = nullptr;
  Fifo<Request> requests_;
  std::map<uint64_t, Region> regions_;  // by Known::number
  void* held_ = nullptr;                // region of the chunk that the plug-in has yet to take
  bool holds_ = false;
};

}  // namespace hetccl::transport::ncclnet
