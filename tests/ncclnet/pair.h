// Two ranks with a channel between them by a net plug-in, driven by one thread.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/config.h"
#include "base/log.h"
#include "fake/net_plugin.h"
#include "fake/patience.h"
#include "fake/random_traffic.h"
#include "fake/thread.h"
#include "transport/ncclnet/ncclnet_transport.h"

namespace hetccl::transport::ncclnet {

using fake::Bytes;
using fake::parcel;

inline Result<std::unique_ptr<Transport>> make_transport(int version, Config config = {}) {
  config.net_plugin = fake::net_plugin_path(version);
  config.socket_ifname = "=lo";
  return make_ncclnet_transport(config, Log{LogLevel::Error, -1});
}

struct Pair {
  explicit Pair(int version, const Config& config = {}) : Pair(version, version, config) {}
  Pair(int version, int other_version, const Config& config = {}) {
    transports[0] = make_transport(version, config).value();
    transports[1] = make_transport(other_version, config).value();
    for (int i = 0; i < 2; ++i) addresses[i] = transports[i]->listen().value();
    fake::Thread other([this] { join(1); });
    join(0);
    other.join();
    REQUIRE(channels[0]);
    REQUIRE(channels[1]);
  }
  void join(int self) {
    auto made = transports[self]->connect({77, self, 1 - self}, addresses[1 - self], Bytes(32, 1),
                                          fake::kHangMs);
    CHECK_MESSAGE(made.ok(), made.status().message());
    if (made.ok()) channels[self] = std::move(made).value();
  }
  void until(const std::function<bool()>& done) {
    for (const auto end = steady_clock().now() + fake::kHang; !done();) {
      for (auto& transport : transports) transport->progress();
      REQUIRE(steady_clock().now() < end);
    }
  }
  // The only message, from rank 0 to rank 1.
  void pass(size_t bytes) {
    sent.assign(bytes, 3);
    received.assign(bytes, 0);
    channels[0]->post_send(parcel(sent, 0));
    channels[1]->post_recv(parcel(received, 0));
    until([&] { return channels[1]->recvs_completed() == 1; });
    CHECK(received == sent);
  }
  // Sends a message of so many bytes from rank 0 to rank 1. Returns the failure of rank `told`'s
  // channel.
  Status failure_of(int told, size_t bytes) {
    sent.assign(bytes, 3);
    received.assign(bytes, 0);
    channels[0]->post_send(parcel(sent, 0));
    channels[1]->post_recv(parcel(received, 0));
    until([&] { return !channels[told]->status().ok(); });
    return channels[told]->status();
  }
  Bytes sent, received;  // outlive the channels
  std::unique_ptr<Transport> transports[2];
  Address addresses[2];
  std::unique_ptr<Channel> channels[2];
};

}  // namespace hetccl::transport::ncclnet
