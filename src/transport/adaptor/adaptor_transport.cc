#include "transport/adaptor/adaptor_transport.h"

#include <netdb.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include "base/exception.h"
#include "base/thread.h"
#include "net/reminder.h"
#include "net/socket.h"
#include "transport/adaptor/adaptor_channel.h"

namespace hetccl::transport {
namespace {

using adaptors::AdaptorChannel;
using adaptors::Core;
using adaptors::Part;
using std::chrono::milliseconds;

constexpr uint8_t kMagic = 'A';             // precedes the adaptor's own address
constexpr milliseconds kBeforeAnother{50};  // before the next attempt, after one met a stranger
constexpr milliseconds kLastVisits{1'000};  // for connects that hetccl has abandoned
constexpr int kBestScore = 1'000'000;

std::string host_of(const net::SocketAddress& address) {
  char text[NI_MAXHOST] = {};
  const int failed = ::getnameinfo(reinterpret_cast<const sockaddr*>(&address.storage),
                                   address.length(), text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return failed == 0 ? text : "";
}

// State of a connect that may outlast its caller inside the adaptor. Shared, because std::function
// copies.
struct Attempt {
  Attempt(std::shared_ptr<Core> its_core, std::shared_ptr<adaptors::Visits> its_visits,
          adaptors::Name its_name, Address its_address)
      : core(std::move(its_core)),
        visits(std::move(its_visits)),
        name(std::move(its_name)),
        address(std::move(its_address)) {
    visits->begin();
  }
  // Release the core first: whoever waits for the visits then owns the last reference.
  ~Attempt() {
    core.reset();
    visits->end();
  }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  Result<std::unique_ptr<AdaptorChannel>> run() {
    peer.size = sizeof peer;
    peer.address = address.data() + 1;
    peer.address_bytes = address.size() - 1;
    peer.side = name.side();
    peer.given_up = [](void* context) {
      return static_cast<const std::atomic<bool>*>(context)->load() ? 1 : 0;
    };
    peer.context = &given_up;
    void* channel = nullptr;
    HETCCL_TRY(adaptor::ask(core->part(), "connect", [&] {
      return core->part().calls.connect(core->transport(), &peer, &channel);
    }));
    if (channel == nullptr) {
      return error(ErrorCode::SystemError, "%s: connect has made no channel, but returned success",
                   core->part().name.c_str());
    }
    return std::make_unique<AdaptorChannel>(name, core, channel);
  }

  std::shared_ptr<Core> core;
  const std::shared_ptr<adaptors::Visits> visits;
  const adaptors::Name name;
  const Address address;
  hetcclTransportPeer peer{};
  std::atomic<bool> given_up{false};
};

class AdaptorTransport final : public Transport {
 public:
  AdaptorTransport(std::string name, std::shared_ptr<Core> core, Address address, const Log& log)
      : name_(std::move(name)), core_(std::move(core)), address_(std::move(address)), log_(log) {}
  // A thread inside an adaptor at the end of the process might crash it.
  ~AdaptorTransport() override { visits_->wait(kLastVisits); }
  AdaptorTransport(const AdaptorTransport&) = delete;
  AdaptorTransport& operator=(const AdaptorTransport&) = delete;

  [[nodiscard]] std::string name() const override { return name_; }
  Result<Address> listen() override { return address_; }
  void connect_later(const PeerId& id, const Address& address, const std::vector<uint8_t>& secret,
                     const WaitLimit& limit, Connected connected) override;
  // The adaptor keeps connects that a peer has begun and this rank has not, until the peer gives
  // up.
  void forget(uint64_t /*communicator*/, int /*self*/) override {}
  bool progress() override { return core_->progress(); }
  [[nodiscard]] int poll_fd() const override { return core_->poll_fd(); }
  [[nodiscard]] ShmSource* shm_source() override { return nullptr; }
  [[nodiscard]] uint64_t bytes_sent() const override {
    return core_->bytes_sent.load(std::memory_order_relaxed);
  }

 private:
  // The arguments of a connect.
  struct Wish {
    const PeerId& id;
    const Address& address;
    const net::Secret& secret;
    const WaitLimit& limit;
    const TimePoint deadline;
    const std::function<void()> remind;
  };
  Result<std::unique_ptr<Channel>> attempt(const Wish& wish);
  Result<std::unique_ptr<Channel>> connect_now(const PeerId& id, const Address& address,
                                               const net::Secret& secret, const WaitLimit& limit);

  const std::string name_;
  const std::shared_ptr<Core> core_;
  const std::shared_ptr<adaptors::Visits> visits_ = std::make_shared<adaptors::Visits>();
  const Address address_;
  const Log log_;
};

Result<std::unique_ptr<Channel>> AdaptorTransport::attempt(const Wish& wish) {
  const auto attempt = std::make_shared<Attempt>(
      core_, visits_, adaptors::Name{name_, wish.id.communicator, wish.id.self, wish.id.peer},
      wish.address);
  const net::Mac channel_id = attempt->name.derive("id", wish.secret);
  const net::Mac key = attempt->name.derive("key", wish.secret);
  std::memcpy(attempt->peer.id, channel_id.data(), sizeof attempt->peer.id);
  std::memcpy(attempt->peer.key, key.data(), sizeof attempt->peer.key);
  WaitLimit left = wish.limit;
  left.timeout_ms = std::chrono::ceil<milliseconds>(wish.deadline - wish.limit.now()).count();
  auto made = adaptor::run_within<std::unique_ptr<AdaptorChannel>>(
      left, "connect", [attempt] { return attempt->run(); }, wish.remind);
  attempt->given_up = true;
  if (!made.ok()) return made.status();
  HETCCL_TRY(made.value()->prove(wish.secret, wish.deadline, wish.limit, wish.remind));
  return std::unique_ptr<Channel>(std::move(made).value());
}

// Connects on a thread of its own. An adaptor's `connect` blocks until the peer comes
// (hetccl/adaptor.h), and peers connect in different orders, so a shared thread could wait in a
// circle.
void AdaptorTransport::connect_later(const PeerId& id, const Address& address,
                                     const std::vector<uint8_t>& secret, const WaitLimit& limit,
                                     Connected connected) {
  const auto told = std::make_shared<const Connected>(std::move(connected));
  visits_->begin();
  auto thread = start_thread("hetccl-adaptor", [=, this, visits = visits_] {
    try {
      (*told)(connect_now(id, address, secret, limit));
    } catch (...) {
      report_exception([&](const Status& why) { (*told)(why); });
    }
    visits->end();
  });
  if (thread.ok()) return thread->detach();
  visits_->end();
  (*told)(thread.status().with(format("connecting to rank %d over %s", id.peer, name_.c_str())));
}

Result<std::unique_ptr<Channel>> AdaptorTransport::connect_now(const PeerId& id,
                                                               const Address& address,
                                                               const net::Secret& secret,
                                                               const WaitLimit& limit) {
  const std::string what = format("connecting to rank %d over %s", id.peer, name_.c_str());
  if (id.self == id.peer || secret.empty())
    return error(ErrorCode::InvalidArgument, "%s: needs another rank, and a secret", what.c_str());
  if (address.size() < 2 || address.size() > 1 + HETCCL_TRANSPORT_ADDRESS_BYTES ||
      address.front() != kMagic)
    return error(ErrorCode::InvalidArgument, "%s: %zu bytes that are not an address of an adaptor",
                 what.c_str(), address.size());
  net::Reminder reminder(*limit.clock);
  const auto remind = [&] {
    if (!limit.patient && reminder.is_due())
      log_.warn("waiting for rank %d to connect over %s for %lld s", id.peer, name_.c_str(),
                static_cast<long long>(reminder.seconds()));
  };
  const TimePoint deadline = limit.deadline();
  const Wish wish{id, address, secret, limit, deadline, remind};
  while (true) {
    auto made = attempt(wish);
    if (made.ok()) {
      log_.info("rank %d and rank %d are connected over %s", id.self, id.peer, name_.c_str());
      return made;
    }
    // A peer that did not prove itself may be a stranger, so try again.
    const bool final = made.status().code() != ErrorCode::RemoteError || !limit.cancelled().ok();
    if (final || limit.now() + kBeforeAnother >= deadline) {
      return made.status().with(
          what + format(", within %lld ms", static_cast<long long>(limit.timeout_ms)));
    }
    std::this_thread::sleep_for(kBeforeAnother);
  }
}

}  // namespace

std::string name_of_transport(const adaptor::Adaptor& adaptor) {
  return adaptor.transport->name + "-" + adaptor.transport->version;
}

int score_adaptor(const adaptor::Adaptor& adaptor, const ChannelEnd& local,
                  const ChannelEnd& peer) {
  const Part& part = *adaptor.transport;
  const bool same_host = local.host == peer.host;
  // GPUs of one host exchange data in windows, which only shm has.
  const bool has_window = same_host && local.shares_memory && peer.shares_memory &&
                          (local.memory == MemoryKind::Device || peer.memory == MemoryKind::Device);
  if (!same_host && (part.calls.capabilities & HETCCL_TRANSPORT_JOINS_HOSTS) == 0) return 0;
  int score = 0;
  const Status told = adaptor::ask(part, "score", [&] {
    score = std::clamp(part.calls.score(same_host ? 1 : 0), 0,
                       has_window ? HETCCL_SHM_SCORE - 1 : kBestScore);
    return 0;
  });
  return told.ok() ? score : 0;
}

bool encrypts(const adaptor::Adaptor& adaptor) {
  return (adaptor.transport->calls.capabilities & HETCCL_TRANSPORT_ENCRYPTS) != 0;
}

Result<std::unique_ptr<Transport>> make_adaptor_transport(
    const std::shared_ptr<const adaptor::Adaptor>& adaptor, const Config& config, const Log& log) {
  HETCCL_ASSIGN(const auto interfaces, net::interfaces(config));
  std::vector<std::string> hosts;
  for (const net::Interface& interface : interfaces) {
    if (std::string host = host_of(interface.address); !host.empty())
      hosts.push_back(std::move(host));
  }
  using Opened = std::pair<std::shared_ptr<Core>, Address>;
  const auto open = [part = std::shared_ptr<const Part>(adaptor, &adaptor->transport.value()),
                     hosts]() -> Result<Opened> {
    Address address;
    HETCCL_ASSIGN(auto core, Core::open(part, hosts, address));
    address.insert(address.begin(), kMagic);
    return Opened(std::move(core), std::move(address));
  };
  HETCCL_ASSIGN(auto opened, adaptor::run_within<Opened>(config.init_timeout_ms, "open", open));
  return std::unique_ptr<Transport>(std::make_unique<AdaptorTransport>(
      name_of_transport(*adaptor), std::move(opened.first), std::move(opened.second), log));
}

}  // namespace hetccl::transport
