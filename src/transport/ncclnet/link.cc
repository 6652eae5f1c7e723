#include "transport/ncclnet/link.h"

#include <algorithm>

#include "net/auth.h"

namespace hetccl::transport::ncclnet {

Result<std::unique_ptr<Link>> Link::listen(Route route, size_t chunk_bytes, TimePoint deadline) {
  std::unique_ptr<Link> made(new Link(std::move(route), false, deadline));
  Hello& hello = made->hello_;
  hello.chunk_bytes = made->route_.chunk_bytes();
  made->chunk_bytes_ = std::min(hello.chunk_bytes, chunk_bytes);
  net::random_bytes(hello.token.data(), hello.token.size());
  const int code =
      made->calls().listen(made->route_.device.index, hello.handle.data(), &made->listener_);
  if (code != abi::kSuccess || made->listener_ == nullptr) return made->failed("listen for", code);
  return made;
}

std::unique_ptr<Link> Link::connect(Route route, const Hello& hello, TimePoint deadline) {
  std::unique_ptr<Link> made(new Link(std::move(route), true, deadline));
  made->hello_ = hello;
  made->token_ = hello.token;
  made->chunk_bytes_ = std::min(hello.chunk_bytes, made->route_.chunk_bytes());
  return made;
}

Result<bool> Link::advance(TimePoint now) {
  if (open_) return false;
  const bool connected = comm_ != nullptr;
  if (!connected) HETCCL_TRY(make_connection());
  if (comm_ != nullptr) {
    HETCCL_ASSIGN(open_, prove());
  }
  if (!open_ && now >= deadline_)
    return error(ErrorCode::Timeout,
                 "net plug-in %s made no connection %s %s over %s in time: check that the devices "
                 "reach each other, or unset HETCCL_NET_PLUGIN",
                 plugin_name(), sends_ ? "to" : "from", route_.peer.c_str(), device_name());
  return open_ || (comm_ != nullptr) != connected;
}

// Neither call waits: both are repeated until there is a connection.
Status Link::make_connection() {
  if (sends_) {
    const int code = calls().connect(route_.device.index, hello_.handle.data(), &comm_);
    return code == abi::kSuccess ? Status() : failed("connect to", code);
  }
  const int code = calls().accept(listener_, &comm_);
  if (code != abi::kSuccess) return failed("accept", code);
  if (comm_ != nullptr) close_listener();
  return {};
}

// Checks the token. Anybody who finds the plug-in's listener can connect, but only the peer has the
// token, from the authenticated connection.
Result<bool> Link::prove() {
  if (!proving_) {
    HETCCL_ASSIGN(proving_, begin({{token_.data(), token_.size()}, 0}));
  }
  if (!proving_) return false;
  HETCCL_ASSIGN(const auto moved, finish());
  if (!moved) return false;
  if (!net::same(token_, hello_.token))
    return error(ErrorCode::RemoteError,
                 "net plug-in %s accepted a connection over %s that is not from %s", plugin_name(),
                 device_name(), route_.peer.c_str());
  return true;
}

Result<bool> Link::begin(const Chunk& chunk) {
  if (requests_.size() >= kWindow) return false;
  void* region = nullptr;
  bool owns_region = chunk.known == nullptr;
  if (!owns_region) {
    const Region& known = region_of(*chunk.known);
    if (chunk.known->on_device()) HETCCL_TRY(known.refused);
    owns_region = !known.refused.ok();
    region = known.region;
  }
  if (owns_region) {
    HETCCL_ASSIGN(const bool held, hold_region(chunk));
    if (!held) return false;
    region = held_;
  }
  void* request = nullptr;
  const int code = sends_ ? calls().send(comm_, chunk.range, region, &request)
                          : calls().receive(comm_, chunk.range, region, &request);
  if (code != abi::kSuccess) return failed(sends_ ? "send to" : "receive from", code);
  if (request == nullptr) return false;
  requests_.push({request, region, chunk, owns_region});
  if (owns_region) holds_ = false;
  return true;
}

// Makes the chunk's region. The region of a chunk that waits for the plug-in is kept, because the
// same chunk is offered again. Returns false if memory is short now and other chunks will free
// some.
Result<bool> Link::hold_region(const Chunk& chunk) {
  if (holds_) return true;
  const int code = calls().register_memory(comm_, chunk.range, &held_);
  if (code != abi::kSuccess && *route_.registered > 0) return false;
  if (code != abi::kSuccess)
    return error(ErrorCode::SystemError,
                 "net plug-in %s registers no %zu bytes with %s (%s), for %s: raise the limit of "
                 "locked memory (ulimit -l unlimited), or unset HETCCL_NET_PLUGIN",
                 plugin_name(), chunk.range.bytes, device_name(), name_of_code(code).c_str(),
                 route_.peer.c_str());
  holds_ = true;
  ++*route_.registered;
  return true;
}

Result<std::optional<Chunk>> Link::finish() {
  if (requests_.empty()) return std::optional<Chunk>();
  Request& first = requests_.front();
  int done = 0, bytes = 0;
  int code = calls().test(first.request, &done, &bytes);
  if (code != abi::kSuccess) return failed(sends_ ? "send to" : "receive from", code);
  if (done == 0) return std::optional<Chunk>();
  const Request ended = first;
  if (!sends_ && !ended.flushing &&
      (bytes < 0 || static_cast<size_t>(bytes) != ended.chunk.range.bytes)) {
    requests_.pop();
    if (ended.owns_region) deregister(ended.region);
    return error(ErrorCode::RemoteError, "%s sent %d bytes by net plug-in %s where %zu are due",
                 route_.peer.c_str(), bytes, plugin_name(), ended.chunk.range.bytes);
  }
  HETCCL_ASSIGN(const bool flushing, flush(first));
  if (flushing) return std::optional<Chunk>();
  requests_.pop();
  code = ended.owns_region ? deregister(ended.region) : abi::kSuccess;
  if (code != abi::kSuccess) return failed("deregister memory for", code);
  return std::optional<Chunk>(ended.chunk);
}

void Link::close() {
  if (comm_ != nullptr) {
    for (; !requests_.empty(); requests_.pop())
      if (requests_.front().owns_region) deregister(requests_.front().region);
    if (holds_) deregister(held_);
    holds_ = false;
    while (!regions_.empty()) forget(regions_.begin()->first);
    if (sends_)
      calls().close_sender(comm_);
    else
      calls().close_receiver(comm_);
    comm_ = nullptr;
  }
  close_listener();
}

int Link::deregister(void* region) {
  --*route_.registered;
  return calls().deregister(comm_, region);
}

void Link::close_listener() {
  if (listener_ != nullptr) calls().close_listener(listener_);
  listener_ = nullptr;
}

Status Link::failed(const char* what, int code) const {
  return error(ErrorCode::RemoteError,
               "net plug-in %s failed to %s %s over %s (%s): HETCCL_DEBUG=info shows what it says "
               "itself",
               plugin_name(), what, route_.peer.c_str(), device_name(), name_of_code(code).c_str());
}

}  // namespace hetccl::transport::ncclnet
