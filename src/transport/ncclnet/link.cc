#include "transport/ncclnet/link.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "net/auth.h"

namespace hetccl::transport::ncclnet {

Result<std::unique_ptr<Link>> Link::listen(int peer, std::shared_ptr<const Plugin> plugin,
                                           const Device& device) {
  std::unique_ptr<Link> made(new Link(peer, std::move(plugin), device));
  Hello& own = made->own_;
  own.chunk_bytes = std::min(kMostChunk, device.properties.max_bytes);
  net::random_bytes(own.token.data(), own.token.size());
  const int code =
      made->plugin_->calls().listen(device.index, own.handle.data(), &made->listener_);
  if (code != abi::kSuccess || made->listener_ == nullptr) return made->failed("listen for", code);
  return made;
}

void Link::meet(const Hello& theirs, TimePoint deadline) {
  theirs_ = theirs;
  token_out_ = theirs.token;
  deadline_ = deadline;
  met_ = true;
}

Result<bool> Link::advance(TimePoint now) {
  if (!met_ || open_) return false;
  HETCCL_ASSIGN(const bool connected, connect());
  HETCCL_ASSIGN(const bool proven, prove());
  if (!open_ && now >= deadline_)
    return error(ErrorCode::Timeout,
                 "net plug-in %s made no connection to rank %d over %s in time: check that the "
                 "devices reach each other, or unset HETCCL_NET_PLUGIN",
                 plugin_->name().c_str(), peer_, device_.properties.name.c_str());
  return connected || proven;
}

Result<bool> Link::connect() {
  bool moved = false;
  if (out_.comm == nullptr) {
    const int code =
        plugin_->calls().connect(device_.index, theirs_.handle.data(), &out_.comm);
    if (code != abi::kSuccess) return failed("connect to", code);
    moved = out_.comm != nullptr;
  }
  if (in_.comm == nullptr) {
    const int code = plugin_->calls().accept(listener_, &in_.comm);
    if (code != abi::kSuccess) return failed("accept", code);
    if (in_.comm == nullptr) return moved;
    close_listener();
    moved = true;
  }
  return moved;
}

// Whoever finds the plug-in's listener can connect there. The peer alone knows the token, which it
// has from the authenticated connection.
Result<bool> Link::prove() {
  if (in_.comm != nullptr && !token_received_) {
    HETCCL_ASSIGN(token_received_, receive({{token_in_.data(), token_in_.size()}, 0}));
  }
  if (out_.comm != nullptr && !token_sent_) {
    HETCCL_ASSIGN(token_sent_, send({{token_out_.data(), token_out_.size()}, 0}));
  }
  if (!in_.requests.empty()) {
    HETCCL_ASSIGN(const auto arrived, finish_receive());
    token_arrived_ = arrived.has_value();
  }
  if (!out_.requests.empty()) {
    HETCCL_ASSIGN(const auto delivered, finish_send());
    token_delivered_ = delivered.has_value();
  }
  if (token_arrived_ && !net::same(token_in_, own_.token))
    return error(ErrorCode::RemoteError,
                 "net plug-in %s accepted a connection over %s that is not from rank %d",
                 plugin_->name().c_str(), device_.properties.name.c_str(), peer_);
  open_ = token_arrived_ && token_delivered_;
  return open_;
}

// The region of a chunk that waits for the plug-in is kept, since the same chunk comes again.
Result<bool> Link::begin(Way& way, const Chunk& chunk) {
  if (way.requests.size() >= kWindow) return false;
  Calls& calls = plugin_->calls();
  if (!way.holds) {
    const int code = calls.register_memory(way.comm, chunk.range, &way.held);
    if (code != abi::kSuccess && !way.requests.empty()) return false;  // memory may be freed soon
    if (code != abi::kSuccess)
      return error(ErrorCode::SystemError,
                   "net plug-in %s registers no %zu bytes with %s (%s), for rank %d: raise the "
                   "limit of locked memory (ulimit -l unlimited), or unset HETCCL_NET_PLUGIN",
                   plugin_->name().c_str(), chunk.range.bytes, device_.properties.name.c_str(),
                   name_of_code(code).c_str(), peer_);
    way.holds = true;
  }
  void* request = nullptr;
  const bool sends = &way == &out_;
  const int code = sends ? calls.send(way.comm, chunk.range, way.held, &request)
                         : calls.receive(way.comm, chunk.range, way.held, &request);
  if (code != abi::kSuccess) return failed(sends ? "send to" : "receive from", code);
  if (request == nullptr) return false;
  way.requests.push({request, way.held, chunk});
  way.holds = false;
  return true;
}

Result<std::optional<Chunk>> Link::finish(Way& way) {
  if (way.requests.empty()) return std::optional<Chunk>();
  const Request& first = way.requests.front();
  const bool sends = &way == &out_;
  int done = 0, bytes = 0;
  int code = plugin_->calls().test(first.request, &done, &bytes);
  if (code != abi::kSuccess) return failed(sends ? "send to" : "receive from", code);
  if (done == 0) return std::optional<Chunk>();
  const Request ended = first;
  way.requests.pop();
  code = plugin_->calls().deregister(way.comm, ended.region);
  if (code != abi::kSuccess) return failed("deregister memory for", code);
  if (!sends && (bytes < 0 || static_cast<size_t>(bytes) != ended.chunk.range.bytes))
    return error(ErrorCode::RemoteError,
                 "rank %d sent %d bytes over net plug-in %s where %zu are due", peer_, bytes,
                 plugin_->name().c_str(), ended.chunk.range.bytes);
  return std::optional<Chunk>(ended.chunk);
}

// Plug-ins may give up a whole device when a connection closes under a request (aws-ofi-nccl does).
// A channel may close while the peer still answers the token.
void Link::drain() {
  constexpr std::chrono::milliseconds kMost{100};
  constexpr std::chrono::microseconds kRest{50};
  for (const TimePoint end = steady_clock().now() + kMost; steady_clock().now() < end;) {
    const auto sent = finish_send();
    const auto received = finish_receive();
    if (!sent.ok() || !received.ok()) return;
    if (out_.requests.empty() && in_.requests.empty()) return;
    std::this_thread::sleep_for(kRest);
  }
}

void Link::close() {
  if (!open_ && is_proving()) drain();
  Calls& calls = plugin_->calls();
  for (Way* way : {&out_, &in_}) {
    if (way->comm == nullptr) continue;
    for (; !way->requests.empty(); way->requests.pop())
      calls.deregister(way->comm, way->requests.front().region);
    if (way->holds) calls.deregister(way->comm, way->held);
    way->holds = false;
    if (way == &out_)
      calls.close_sender(way->comm);
    else
      calls.close_receiver(way->comm);
    way->comm = nullptr;
  }
  close_listener();
}

void Link::close_listener() {
  if (listener_ != nullptr) plugin_->calls().close_listener(listener_);
  listener_ = nullptr;
}

Status Link::failed(const char* what, int code) const {
  return error(ErrorCode::RemoteError,
               "net plug-in %s failed to %s rank %d over %s (%s): HETCCL_DEBUG=info shows what it "
               "says itself",
               plugin_->name().c_str(), what, peer_, device_.properties.name.c_str(),
               name_of_code(code).c_str());
}

}  // namespace hetccl::transport::ncclnet
