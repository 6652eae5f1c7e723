// One of the two connections that a channel has by the plug-in, for the long messages of one
// direction: how it is made and proven, and the requests that are outstanding on it.
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

/// A part of a message that goes by the plug-in at once.
struct Chunk {
  Range range;
  uint64_t message = 0;  ///< its number in the channel and direction
  /// The registered memory in which it lies; null: it is the host's, and registered for itself.
  const Known* known = nullptr;
  bool last = false;  ///< of its message: a receive that needs a flush has it then
};

/// By which connections of which device a channel goes.
struct Route {
  std::string peer;  ///< "rank 3"
  std::shared_ptr<const Plugin> plugin;
  Device device;
  std::atomic<size_t>* registered = nullptr;  ///< chunks of all channels of the transport
  [[nodiscard]] size_t chunk_bytes() const {
    return std::min(kMostChunk, device.properties.max_bytes);
  }
};

/// One thread at a time.
class Link {
 public:
  /// The receiver's: listens for the peer, who must be told `hello`. `chunk_bytes`: the sender's.
  static Result<std::unique_ptr<Link>> listen(Route route, size_t chunk_bytes, TimePoint deadline);
  /// The sender's: connects with whom `hello` is from.
  static std::unique_ptr<Link> connect(Route route, const Hello& hello, TimePoint deadline);
  ~Link() { close(); }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  [[nodiscard]] const Hello& hello() const { return hello_; }
  /// Goes on connecting. Whether something has changed. RemoteError naming the peer and the device;
  /// Timeout after the deadline.
  Result<bool> advance(TimePoint now);
  /// Chunks may go.
  [[nodiscard]] bool is_open() const { return open_; }
  /// Only `advance` and `finish` show how things go on.
  [[nodiscard]] bool is_busy() const { return !open_ || !requests_.empty(); }
  /// The longest chunk, the same at both ends.
  [[nodiscard]] size_t chunk_bytes() const { return chunk_bytes_; }

  /// Begins to move a chunk. False where the plug-in takes no more now: the same chunk is to be
  /// offered again, and no other before it. Both ends move the same chunks in the same order.
  Result<bool> begin(const Chunk& chunk);
  /// Returns the first outstanding chunk if it is complete.
  Result<std::optional<Chunk>> finish();

  /// Registers memory with this connection, if it is not yet; needs a connection. SystemError.
  Status register_once(const Known& known);
  /// Deregisters the memory of that number.
  void forget(uint64_t number);

  /// Deregisters and closes: the plug-in touches no memory of chunks afterwards.
  void close();

  /// Chunks outstanding.
  static constexpr size_t kWindow = 8;
  static_assert(kWindow <= abi::kMaxRequests);

 private:
  struct Request {
    void* request;
    void* region;
    Chunk chunk;
    bool owns_region = false;  // which was registered for this chunk
    bool flushing = false;     // all has arrived
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
  alignas(64) std::array<uint8_t, sizeof(Hello::token)> token_{};  // on its way
  void* listener_ = nullptr;
  void* comm_ = nullptr;
  Fifo<Request> requests_;
  std::map<uint64_t, Region> regions_;  // of registered memory, by its number
  void* held_ = nullptr;                // region of the chunk that the plug-in has not taken
  bool holds_ = false;
};

}  // namespace hetccl::transport::ncclnet
