// The transports that the contract is checked of.
#pragma once

#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "base/config.h"
#include "base/log.h"
#include "fake/fake_verbs.h"
#include "fake/net_plugin.h"
#include "fake/transport_adaptor.h"
#include "host/crew.h"
#include "transport/adaptor/adaptor_transport.h"
#include "transport/ncclnet/frame.h"
#include "transport/ncclnet/ncclnet_transport.h"
#include "transport/shm/shm_transport.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/verbs/verbs_transport.h"

namespace hetccl::transport {

inline constexpr size_t kVerbsBuffers = 4096;

struct Kind {
  const char* name;
  std::function<Result<std::unique_ptr<Transport>>()> make;
  /// A connect of a rank also accepts the other connects to it in that communicator.
  bool takes_all = true;
  /// A message of so many bytes completes though no receive is posted.
  size_t buffers = 300'000;
  /// Sends fail once the peer has left, though a message of its is unread.
  bool fails_sends = true;
};

inline Kind tcp_kind(const char* name, int streams, int threads, bool encrypt = false) {
  return {name, [=] {
            Config config;
            config.tcp_streams = streams;
            config.tcp_threads = threads;
            config.encrypt = encrypt;
            config.socket_ifname = "=lo";
            return make_tcp_transport(config, Log{LogLevel::Error, -1});
          }};
}

// By the plug-in with that version of the interface. `difficult`: it is slow, takes requests
// seldom, and the control connection is encrypted.
inline Kind ncclnet_kind(const char* name, int version, bool difficult = false) {
  fake::NetPlugin& plugin = fake::reset_net_plugin(version);
  plugin.works_one_in = difficult ? 3 : 1;
  plugin.late = difficult ? 5 : 0;
  return {name,
          [=] {
            Config config;
            config.net_plugin = fake::net_plugin_path(version);
            config.encrypt = difficult;
            config.socket_ifname = "=lo";
            return make_ncclnet_transport(config, Log{LogLevel::Error, -1});
          },
          true, ncclnet::kMostWhole};
}

inline std::vector<Kind> kinds() {
  const auto shm = [](int threads) {
    return [threads] {
      return make_shm_transport(nullptr, Log{LogLevel::Error, -1}, std::make_shared<Crew>(threads));
    };
  };
  const auto adaptor = [] {
    return make_adaptor_transport(adaptor::check(&fake::transport_adaptor(), "fake", {}).value(),
                                  Config(), Log{LogLevel::Error, -1});
  };
  const auto local = [](const auto& make) {
    return [=] {
      Config config;
      config.socket_ifname = "=lo";
      return make(config, Log{LogLevel::Error, -1});
    };
  };
  // On a machine with RDMA devices (tests/rdma/run), test only verbs.
  if (std::getenv("HETCCL_TEST_RDMA") != nullptr) {
    const auto make = [](const Config& config, const Log& log) {
      return make_verbs_transport(config, log);
    };
    return {{"verbs", local(make), true, kVerbsBuffers}};
  }
  // With another's plug-in (tests/ncclnet/run), test only that.
  if (const char* plugin = std::getenv("HETCCL_TEST_NET_PLUGIN"); plugin != nullptr) {
    const auto make = [plugin = std::string(plugin)](Config config, const Log& log) {
      config.net_plugin = plugin;
      return make_ncclnet_transport(config, log);
    };
    return {{"ncclnet", local(make), true, ncclnet::kMostWhole}};
  }
  const auto by_fake = [](uint32_t late) {
    return [late](const Config& config, const Log& log) {
      fake::verbs_fabric().late = late;
      Config encrypted = config;
      encrypted.encrypt = late > 0;  // the connection over which queue pairs are exchanged
      return make_verbs_transport(fake::verbs_api(), encrypted, log);
    };
  };
  return {{"adaptor", adaptor, false, 300'000, false},
          tcp_kind("tcp, 1 stream", 1, 0),
          tcp_kind("tcp, 2 streams", 2, 0),
          tcp_kind("tcp, 5 streams, 3 threads", 5, 3),
          tcp_kind("tcp, 3 streams, 1 thread, encrypted", 3, 1, true),
          {"verbs, fake", local(by_fake(0)), true, kVerbsBuffers},
          {"verbs, fake, late completions, encrypted connection", local(by_fake(5)), true,
           kVerbsBuffers},
          ncclnet_kind("ncclnet, interface 8", 8),
          ncclnet_kind("ncclnet, interface 10, slow, encrypted connection", 10, true),
          ncclnet_kind("ncclnet, interface 12", 12),
          {"shm", shm(1), true, 300'000, false},
          {"shm, 3 threads", shm(3), true, 300'000, false}};
}

}  // namespace hetccl::transport
