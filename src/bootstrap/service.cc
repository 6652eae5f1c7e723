// The Service: one control thread, started on first use, for the coordinator of ids made here and
// for every session joined here.
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "bootstrap/bootstrap.h"
#include "bootstrap/client.h"
#include "bootstrap/coordinator.h"
#include "bootstrap/dial.h"
#include "bootstrap/knock.h"
#include "bootstrap/loop.h"
#include "bootstrap/unique_id.h"
#include "net/auth.h"
#include "net/resolve.h"
#include "net/secret_file.h"

namespace hetccl::bootstrap {

namespace {

using std::chrono::milliseconds;

// How long the end of a Service waits for peers to take its last messages.
constexpr milliseconds kFarewellTime(500);

}  // namespace

struct Service::Impl {
  Config config;
  Log log;
  uint64_t token = 0;
  net::Secret file_secret;     // of HETCCL_SECRET_FILE; empty: none
  net::Encryption encryption;  // null: without HETCCL_ENCRYPT
  std::shared_ptr<Clients> clients = std::make_shared<Clients>();

  std::mutex mutex;  // guards the start of what follows
  std::shared_ptr<Loop> loop;
  uint16_t port = 0;
  std::unique_ptr<Coordinator> coordinator;  // used on the loop's thread

  Result<std::shared_ptr<Loop>> start_loop();
  Status start_coordinator();
  /// Makes a new id. Without `parent` it has a secret of its own; otherwise one known to ranks that
  /// know `parent`.
  Result<Invitation> prepare(const net::Secret* parent);
  Result<UniqueId> invite(const net::Secret* parent);
  [[nodiscard]] net::Secret secret_of(const Invitation& door) const {
    return net::job_key(door.secret, file_secret).secret;
  }
  void on_exception(const Status& why);
};

// Called on the loop's thread. All sessions and the coordinator share it, and any state may be half
// changed, so all end.
void Service::Impl::on_exception(const Status& why) {
  const Status told = why.with("the control thread");
  log.warn("every communicator of this process fails: %s", told.message().c_str());
  const Clients all = *clients;
  for (Client* client : all) client->give_up(told);
  if (coordinator) coordinator->fail_all(told);
}

Result<std::shared_ptr<Loop>> Service::Impl::start_loop() {
  std::lock_guard lock(mutex);
  if (!loop) {
    HETCCL_ASSIGN(loop, Loop::create([this](const Status& why) { on_exception(why); }));
  }
  if (!loop->is_mine()) {
    return error(ErrorCode::InvalidUsage,
                 "hetccl was started before fork: a child process must start its own");
  }
  return loop;
}

Status Service::Impl::start_coordinator() {
  std::lock_guard lock(mutex);
  if (coordinator) return {};
  HETCCL_ASSIGN(net::Listener listener, net::listen(config));
  const uint16_t listening = listener.port;
  Status status = error(ErrorCode::Aborted, "the control plane has shut down");
  loop->run([&] {
    auto made = Coordinator::create(*loop, std::move(listener),
                                    {config.liveness_ms, token, log, encryption});
    status = made.status();
    if (made.ok()) coordinator = std::move(made).value();
  });
  if (status.ok()) port = listening;
  return status;
}

Service::Service(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Service>> Service::create(const Config& config, const Log& log) {
  auto impl = std::make_unique<Impl>();
  impl->config = config;
  impl->log = log;
  net::random_bytes(&impl->token, sizeof impl->token);
  if (!config.secret_file.empty()) {
    HETCCL_ASSIGN(impl->file_secret, net::read_secret_file(config.secret_file));
  }
  if (config.encrypt) {
    HETCCL_ASSIGN(impl->encryption, net::TlsContext::create());
  }
  return std::unique_ptr<Service>(new Service(std::move(impl)));
}

Service::~Service() {
  if (!impl_->loop) return;
  if (!impl_->loop->is_mine()) {
    // A forked child has no control thread, and must not send on the parent's connections.
    [[maybe_unused]] const Impl* parents = impl_.release();
    return;
  }
  impl_->loop->run([this] {
    std::map<uint64_t, int32_t> abandoned;
    for (const Client* client : *impl_->clients) {
      abandoned.emplace(client->communicator(), client->rank());
    }
    if (impl_->coordinator) impl_->coordinator->farewell(abandoned);
    for (Client* client : *impl_->clients) client->abandon();
    impl_->clients->clear();
  });
  impl_->loop->stop(kFarewellTime);
}

bool is_id(const UniqueId& id) {
  return decode(id).ok();
}

Result<bool> is_at(const UniqueId& id, const std::string& place) {
  HETCCL_ASSIGN(const Invitation invitation, decode(id));
  HETCCL_ASSIGN(const auto addresses, net::resolve(place));
  return invitation.addresses.front().text() == addresses.front().text();
}

// The id has no secret; that of the file is mixed in when it is used.
Result<UniqueId> Service::id_at(const std::string& place, uint64_t number) {
  if (impl_->config.secret_file.empty()) {
    return error(ErrorCode::InvalidUsage,
                 "ranks that meet at a known place need HETCCL_SECRET_FILE, the same on all: "
                 "without it anybody could join them");
  }
  Invitation invitation;
  HETCCL_ASSIGN(invitation.addresses, net::resolve(place));
  if (invitation.addresses.size() > kMaxAddresses) invitation.addresses.resize(kMaxAddresses);
  const std::string text =
      format("%s #%llu", place.c_str(), static_cast<unsigned long long>(number));
  constexpr std::string_view kSalt = "hetccl known place";
  const net::Mac digest = net::authenticate({kSalt.begin(), kSalt.end()}, text.data(), text.size());
  invitation.secret.assign(digest.begin(), digest.end());
  std::memcpy(&invitation.communicator, invitation.secret.data(), sizeof invitation.communicator);
  return encode(invitation);
}

Status Service::serve(const UniqueId& id) {
  HETCCL_ASSIGN(const Invitation invitation, decode(id));
  HETCCL_ASSIGN(const std::shared_ptr<Loop> running, impl_->start_loop());
  HETCCL_TRY(impl_->start_coordinator().with("starting the coordinator"));
  net::Key key = net::job_key(invitation.secret, impl_->file_secret);
  running->run([&] {
    impl_->coordinator->add(invitation.communicator, std::move(key),
                            net::list_of(invitation.addresses));
  });
  return {};
}

Result<Invitation> Service::Impl::prepare(const net::Secret* parent) {
  HETCCL_TRY(start_loop().status());
  HETCCL_ASSIGN(const std::vector<net::Interface> interfaces, net::interfaces(config));
  HETCCL_TRY(start_coordinator().with("starting the coordinator"));
  Invitation invitation;
  net::random_bytes(&invitation.communicator, sizeof invitation.communicator);
  invitation.secret =
      parent != nullptr ? child_secret(*parent, invitation.communicator) : net::random_secret();
  invitation.addresses = choose_addresses(interfaces, port);
  mark_host(invitation);
  return invitation;
}

Result<UniqueId> Service::Impl::invite(const net::Secret* parent) {
  HETCCL_ASSIGN(const Invitation invitation, prepare(parent));
  net::Key key = net::job_key(invitation.secret, file_secret);
  loop->run([&] {
    coordinator->add(invitation.communicator, std::move(key), net::list_of(invitation.addresses));
  });
  return encode(invitation);
}

void Service::settle() {
  const TimePoint end = steady_clock().now() + kFarewellTime;
  bool pending = impl_->loop != nullptr;
  while (pending && steady_clock().now() < end) {
    const bool asked = impl_->loop->run(
        [&] { pending = impl_->coordinator != nullptr && impl_->coordinator->has_local_ranks(); });
    if (!asked) return;
    if (pending) std::this_thread::sleep_for(milliseconds(1));
  }
}

bool Service::idle() {
  const std::lock_guard lock(impl_->mutex);
  bool idle = true;
  if (impl_->loop == nullptr) return idle;
  impl_->loop->run([&] {
    const auto& coordinator = impl_->coordinator;
    idle = impl_->clients->empty() && (coordinator == nullptr || !coordinator->is_needed());
  });
  return idle;
}

Result<UniqueId> Service::unique_id() {
  return impl_->invite(nullptr);
}

Result<UniqueId> Service::unique_id(const Session& parent) {
  return impl_->invite(&parent.secret());
}

Result<UniqueId> Service::open_door(OnKnock on_knock) {
  HETCCL_ASSIGN(const Invitation invitation, impl_->prepare(nullptr));
  net::Key key = net::job_key(invitation.secret, impl_->file_secret);
  impl_->loop->run([&] {
    impl_->coordinator->open_door(invitation.communicator, std::move(key), std::move(on_knock));
  });
  return encode(invitation);
}

void Service::close_door(const UniqueId& door) {
  const auto invitation = decode(door);
  if (!invitation.ok()) return;
  impl_->loop->run([&] { impl_->coordinator->close_door(invitation.value().communicator); });
}

Status Service::knock(const UniqueId& door, std::span<const uint8_t> words,
                      const WaitLimit& limit) {
  if (words.size() > kMaxKnock) {
    return error(ErrorCode::InvalidArgument, "a knock of %zu bytes: at most %zu are possible",
                 words.size(), kMaxKnock);
  }
  HETCCL_ASSIGN(const Invitation invitation, decode(door));
  HETCCL_TRY(check_host(invitation));
  HETCCL_ASSIGN(const std::shared_ptr<Loop> loop, impl_->start_loop());
  const TimePoint deadline = limit.deadline();
  HETCCL_ASSIGN(net::Wire wire,
                dial(invitation, {0,
                                  net::job_key(invitation.secret, impl_->file_secret),
                                  impl_->encryption,
                                  deadline,
                                  handshake_patience(impl_->config.liveness_ms),
                                  {LogLevel::Error, 0},
                                  limit.cancel}));
  return send_knock(*loop, std::move(wire), encode_knock(words), deadline, limit.cancel);
}

Result<UniqueId> Service::unique_id_for(const UniqueId& door) {
  HETCCL_ASSIGN(const Invitation known, decode(door));
  const net::Secret secret = impl_->secret_of(known);
  return impl_->invite(&secret);
}

Result<UniqueId> Service::reveal_for(const UniqueId& door, const UniqueId& concealed) {
  HETCCL_ASSIGN(const Invitation known, decode(door));
  HETCCL_ASSIGN(Invitation invitation, decode(concealed));
  invitation.secret = child_secret(impl_->secret_of(known), invitation.communicator);
  return encode(invitation);
}

void Service::withdraw(const UniqueId& id) {
  const auto invitation = decode(id);
  if (!invitation.ok()) return;
  impl_->loop->run([&] { impl_->coordinator->withdraw(invitation.value().communicator); });
}

Result<std::unique_ptr<Session>> Service::join(const UniqueId& id, JoinOptions options) {
  HETCCL_ASSIGN(Invitation invitation, decode(id));
  HETCCL_TRY(check_host(invitation).with("cannot join"));
  HETCCL_ASSIGN(const std::shared_ptr<Loop> loop, impl_->start_loop());
  const TimePoint deadline = steady_clock().now() + bounded_wait(options.timeout_ms);
  const net::Key key = net::job_key(invitation.secret, impl_->file_secret);
  auto connected = dial(invitation, {options.rank,
                                     key,
                                     impl_->encryption,
                                     deadline,
                                     handshake_patience(impl_->config.liveness_ms),
                                     {impl_->log.level, options.rank},
                                     options.cancel});
  constexpr std::string_view kContext = "cannot join";
  if (!connected.ok()) return connected.status().with(kContext);
  auto client = std::make_unique<Client>(
      loop, impl_->clients, std::move(invitation),
      Client::Options{std::move(options), impl_->config.liveness_ms, impl_->token, key.secret});
  HETCCL_TRY(client->join(std::move(*connected), deadline).with(kContext));
  return std::unique_ptr<Session>(std::move(client));
}

}  // namespace hetccl::bootstrap
