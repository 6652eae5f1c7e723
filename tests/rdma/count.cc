// Moves messages by transport/verbs between two ranks of this process, one at a time, for
// tests/rdma/count, which counts the instructions and system calls of the process.
//
//   rdma_count BYTES MESSAGES [registered]     registered: the transports know the memory
#include <poll.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "base/config.h"
#include "transport/verbs/verbs_transport.h"

namespace hetccl::transport {
namespace {

constexpr int64_t kTimeoutMs = 300'000;  // under valgrind in an emulated machine

template <typename T>
T demand(Result<T> made) {
  if (made.ok()) return std::move(made).value();
  std::fprintf(stderr, "rdma_count: %s\n", made.status().message().c_str());
  std::exit(1);
}

class Ranks {
 public:
  Ranks(size_t bytes, bool registered) : registered_(registered), out_(bytes, 1), in_(bytes) {
    const Config config = demand(Config::from_environment());
    for (auto& transport : transports_)
      transport = demand(make_verbs_transport(config, Log{LogLevel::Warn, -1}));
    for (int i = 0; i < 2; ++i) addresses_[i] = demand(transports_[i]->listen());
    std::thread other([this] { join(1); });
    join(0);
    other.join();
    if (!registered) return;
    for (int i = 0; i < 2; ++i) {
      auto& memory = i == 0 ? out_ : in_;
      registrations_[i] = demand(transports_[i]->register_memory(
          {.data = reinterpret_cast<std::byte*>(memory.data()), .bytes = memory.size()}));
    }
  }
  ~Ranks() {
    for (auto& channel : channels_) channel->close();
  }

  // Sends from rank 0 to rank 1, and waits until both ends are through.
  void pass() {
    ++passed_;
    channels_[1]->post_recv(parcel(in_));
    channels_[0]->post_send(parcel(out_));
    while (!is_through())
      if (!progress()) sleep();
  }

 private:
  void join(int self) {
    const PeerId id{77, self, 1 - self};
    channels_[self] = demand(transports_[self]->connect(id, addresses_[1 - self],
                                                        std::vector<uint8_t>(32, 1), kTimeoutMs));
  }
  Parcel parcel(std::vector<uint8_t>& memory) const {
    return {.data = memory.data(),
            .bytes = memory.size(),
            .info = {77, passed_, 0, 0, {}},
            .registered = registered_};
  }
  [[nodiscard]] bool is_through() const {
    for (const auto& channel : channels_)
      if (!channel->status().ok()) demand<bool>(channel->status());
    return channels_[0]->sends_completed() == passed_ && channels_[1]->recvs_completed() == passed_;
  }
  bool progress() {
    const bool first = transports_[0]->progress();
    return transports_[1]->progress() || first;
  }
  // Sleeps as the engine does after it has spun.
  void sleep() {
    for (auto& transport : transports_) transport->arm(true);
    pollfd waits[2];
    for (int i = 0; i < 2; ++i) waits[i] = {transports_[i]->poll_fd(), POLLIN, 0};
    if (!progress()) ::poll(waits, 2, -1);
    for (auto& transport : transports_) transport->arm(false);
  }

  const bool registered_;
  std::vector<uint8_t> out_, in_;
  std::unique_ptr<Transport> transports_[2];
  Address addresses_[2];
  std::unique_ptr<Registration> registrations_[2];
  std::unique_ptr<Channel> channels_[2];
  uint64_t passed_ = 0;
};

}  // namespace
}  // namespace hetccl::transport

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const bool registered = argc > 3 && std::string_view(argv[3]) == "registered";
  hetccl::transport::Ranks ranks(std::strtoul(argv[1], nullptr, 10), registered);
  for (long i = std::strtol(argv[2], nullptr, 10); i > 0; --i) ranks.pass();
  return 0;
}
