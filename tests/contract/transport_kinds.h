// The transports that the contract is checked of.
#pragma once

#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "base/config.h"
#include "base/log.h"
#include "fake/fake_verbs.h"
#include "fake/transport_adaptor.h"
#include "transport/adaptor/adaptor_transport.h"
#include "transport/shm/shm_transport.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/verbs/verbs_transport.h"

namespace hetccl::transport {

inline constexpr size_t kVerbsBuffers = 4096;

struct Kind {
  const char* name;
  std::function<Result<std::unique_ptr<Transport>>()> make;
  /// A rank that connects within a communicator takes what others of it begin meanwhile.
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

inline std::vector<Kind> kinds() {
  const auto shm = [] { return make_shm_transport(nullptr, Log{LogLevel::Error, -1}); };
  const auto adaptor = [] {
    return make_adaptor_transport(adaptor::check(&fake::transport_adaptor(), "fake", {}).value(),
                                  Config(), Log{LogLevel::Error, -1});
  };
  const auto verbs = [](const auto& make) {
    return [=] {
      Config config;
      config.socket_ifname = "=lo";
      return make(config, Log{LogLevel::Error, -1});
    };
  };
  // In a machine that has RDMA devices (tests/rdma/run), these alone.
  if (std::getenv("HETCCL_TEST_RDMA") != nullptr) {
    const auto make = [](const Config& config, const Log& log) {
      return make_verbs_transport(config, log);
    };
    return {{"verbs", verbs(make), true, kVerbsBuffers}};
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
          {"verbs, fake", verbs(by_fake(0)), true, kVerbsBuffers},
          {"verbs, fake, late completions, encrypted connection", verbs(by_fake(5)), true,
           kVerbsBuffers},
          {"shm", shm, true, 300'000, false}};
}

}  // namespace hetccl::transport
