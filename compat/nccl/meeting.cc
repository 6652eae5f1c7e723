#include "nccl/meeting.h"

#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "bootstrap/split.h"
#include "nccl/outcome.h"
#include "nccl/settings.h"
#include "nccl/vendor.h"

namespace hetccl::nccl {
namespace {

constexpr size_t kMostLabel = 512;

using OwnService = Result<std::unique_ptr<bootstrap::Service>>;

// Starts a service on a given port range, or on any port. Never destroyed: ranks elsewhere may
// still use its coordinator.
OwnService* start_service(const std::string& port_range) {
  auto config = read_settings();
  if (!config.ok()) return new OwnService(config.status());
  if (!port_range.empty()) config->port_range = port_range;
  return new OwnService(bootstrap::Service::create(*config, log()));
}

// Returns this process's service. A forked child gets its own, since an id may be made before a
// fork.
Result<bootstrap::Service*> service() {
  static std::mutex mutex;
  static OwnService* made = nullptr;
  static pid_t process = 0;
  const std::lock_guard lock(mutex);
  if (process != ::getpid()) made = start_service("");
  process = ::getpid();
  if (!made->ok()) return made->status();
  return made->value().get();
}

// Returns the value of NCCL_COMM_ID ("host:port"), or "". At that address rank 0 serves ids that
// every process derives for itself. Unsets the variable, because the vendor's library, whose ids
// travel over a meeting, would try to take the same port.
const std::string& known_place() {
  static const auto* const place = [] {
    const char* const text = std::getenv("NCCL_COMM_ID");
    auto* const copied = new std::string(text != nullptr ? text : "");
    ::unsetenv("NCCL_COMM_ID");
    return copied;
  }();
  return *place;
}

// On rank 0, serves an id that is at the known place.
Status serve_at_known_place(const bootstrap::UniqueId& id) {
  HETCCL_ASSIGN(const bool is_there, bootstrap::is_at(id, known_place()));
  if (!is_there) return {};
  const std::string port = known_place().substr(known_place().rfind(':') + 1);
  static OwnService* const made = start_service(port + "-" + port);
  if (!made->ok()) return made->status();
  return made->value()->serve(id).with("NCCL_COMM_ID=" + known_place());
}

bootstrap::UniqueId to_bytes(const ncclUniqueId& id) {
  bootstrap::UniqueId bytes;
  static_assert(sizeof bytes == sizeof id.internal);
  std::memcpy(bytes.data(), id.internal, bytes.size());
  return bytes;
}
ncclUniqueId to_id(const bootstrap::UniqueId& bytes) {
  ncclUniqueId id;
  std::memcpy(id.internal, bytes.data(), bytes.size());
  return id;
}

// Ranks can meet if their builds have the same protocol name.
constexpr std::string_view kProtocol = "hetccl-nccl-1";

Bytes encode(const Affiliation& affiliation) {
  const std::string text =
      std::string(kProtocol) + '\0' + affiliation.vendor + '\0' + affiliation.cluster;
  return {text.begin(), text.end()};
}
Result<Affiliation> decode_affiliation(const Bytes& bytes, int rank) {
  const std::string text(bytes.begin(), bytes.end());
  const size_t first = text.find('\0'), second = text.find('\0', first + 1);
  if (second != std::string::npos && text.substr(0, first) == kProtocol &&
      text.size() <= kMostLabel) {
    Affiliation affiliation{text.substr(first + 1, second - first - 1), text.substr(second + 1)};
    if (affiliation.vendor.empty() || affiliation.vendor == "nccl" || affiliation.vendor == "rccl")
      return affiliation;
  }
  return error(ErrorCode::InvalidUsage,
               "rank %d has another build of hetccl's NCCL: all ranks need the same", rank);
}

Result<Affiliation> own_affiliation() {
  HETCCL_ASSIGN(const Config config, read_settings());
  const VendorLibrary* const found = serving_vendor();
  Affiliation affiliation{found != nullptr ? found->name : "", config.cluster};
  if (encode(affiliation).size() > kMostLabel)
    return error(ErrorCode::InvalidArgument, "HETCCL_CLUSTER is too long");
  return affiliation;
}

// Key that encrypts messages for the members of the session.
std::array<uint8_t, crypto_secretbox_KEYBYTES> key_of(const bootstrap::Session& session) {
  constexpr std::string_view kPurpose = "hetccl_nccl secret";
  const std::vector<uint8_t>& secret = session.secret();
  std::array<uint8_t, crypto_secretbox_KEYBYTES> key;
  crypto_generichash(key.data(), key.size(), reinterpret_cast<const uint8_t*>(kPurpose.data()),
                     kPurpose.size(), secret.data(), secret.size());
  return key;
}

Bytes seal(const Bytes& message, const bootstrap::Session& session) {
  Bytes sealed(crypto_secretbox_NONCEBYTES + crypto_secretbox_MACBYTES + message.size());
  randombytes_buf(sealed.data(), crypto_secretbox_NONCEBYTES);
  crypto_secretbox_easy(sealed.data() + crypto_secretbox_NONCEBYTES, message.data(), message.size(),
                        sealed.data(), key_of(session).data());
  return sealed;
}
Result<Bytes> unseal(const Bytes& sealed, const bootstrap::Session& session) {
  constexpr size_t kOverhead = crypto_secretbox_NONCEBYTES + crypto_secretbox_MACBYTES;
  Bytes message(sealed.size() > kOverhead ? sealed.size() - kOverhead : 0);
  if (sealed.size() >= kOverhead &&
      crypto_secretbox_open_easy(message.data(), sealed.data() + crypto_secretbox_NONCEBYTES,
                                 sealed.size() - crypto_secretbox_NONCEBYTES, sealed.data(),
                                 key_of(session).data()) == 0) {
    return message;
  }
  return error(ErrorCode::RemoteError, "the bytes that rank 0 has sent cannot be decrypted");
}

struct ShrinkNote {
  uint64_t key;            // hash of the remaining ranks and their number of earlier shrinks
  bootstrap::UniqueId id;  // encrypted for the members
};

// FNV-1a, which gives the same on all ranks.
uint64_t key_of_shrink(const std::vector<int>& stay, uint64_t before) {
  uint64_t key = 0xcbf29ce484222325;
  const auto add = [&](uint64_t value) { key = (key ^ value) * 0x100000001b3; };
  for (const int rank : stay) add(static_cast<uint64_t>(rank));
  add(before);
  return key;
}

}  // namespace

bool is_ours(const ncclUniqueId& id) {
  return bootstrap::is_id(to_bytes(id));
}

Result<ncclUniqueId> make_id() {
  static std::atomic<uint64_t> made_here{0};
  HETCCL_ASSIGN(bootstrap::Service * used, service());
  const std::string place = known_place();
  auto id = place.empty() ? used->unique_id() : used->id_at(place, made_here++);
  if (!id.ok()) return id.status();
  return to_id(id.value());
}

Result<std::unique_ptr<Meeting>> Meeting::join(const ncclUniqueId& id, int n_ranks, int rank,
                                               const Cancel& cancel) {
  HETCCL_ASSIGN(bootstrap::Service * used, service());
  HETCCL_ASSIGN(const Config config, read_settings());
  HETCCL_ASSIGN(const Affiliation own, own_affiliation());
  if (rank == 0 && !known_place().empty()) HETCCL_TRY(serve_at_known_place(to_bytes(id)));
  std::unique_ptr<Meeting> meeting(new Meeting);
  meeting->cancel_ = &cancel;
  // NCCL would wait for ever. HETCCL_INIT_TIMEOUT_MS applies if it is set, else the longer limit.
  meeting->timeout_ms_ = config.is_given("HETCCL_INIT_TIMEOUT_MS")
                             ? config.init_timeout_ms
                             : std::max(config.init_timeout_ms, config.timeout_ms);
  bootstrap::JoinOptions options;
  options.rank = rank;
  options.n_ranks = n_ranks;
  std::array<char, 65> host{};
  (void)::gethostname(host.data(), host.size() - 1);
  options.description = format("host %s, pid %d", host.data(), static_cast<int>(::getpid()));
  options.timeout_ms = meeting->timeout_ms_;
  options.on_failure = [raw = meeting.get()](const bootstrap::Failure& failure) {
    raw->fail(error(failure.code, "%s", failure.reason.c_str()));
  };
  options.on_note = [raw = meeting.get()](int from, std::span<const uint8_t> note) {
    raw->receive_note(from, note);
  };
  options.cancel = &cancel;
  HETCCL_ASSIGN(meeting->session_, used->join(to_bytes(id), std::move(options)));
  HETCCL_ASSIGN(const auto affiliations, meeting->gather(encode(own)));
  for (size_t i = 0; i < affiliations.size(); ++i) {
    HETCCL_ASSIGN(Affiliation affiliation,
                  decode_affiliation(affiliations[i], static_cast<int>(i)));
    meeting->affiliations_.push_back(std::move(affiliation));
  }
  return meeting;
}

Meeting::~Meeting() {
  if (session_) session_->leave(0);
}

std::string Meeting::describe() const {
  std::map<std::string, int> counts;
  for (const Affiliation& affiliation : affiliations_) {
    std::string kind = affiliation.vendor.empty() ? "no GPU library" : affiliation.vendor;
    if (!affiliation.cluster.empty()) kind += " in cluster " + affiliation.cluster;
    ++counts[kind];
  }
  std::string text;
  for (const auto& [kind, count] : counts)
    text += format("%s%s: %d", text.empty() ? "" : ", ", kind.c_str(), count);
  return text;
}

bool Meeting::has_one_vendor() const {
  const Affiliation& first = affiliations_.front();
  return !first.vendor.empty() && std::all_of(affiliations_.begin(), affiliations_.end(),
                                              [&](const Affiliation& affiliation) {
                                                return affiliation.vendor == first.vendor &&
                                                       affiliation.cluster == first.cluster;
                                              });
}

Result<std::vector<Bytes>> Meeting::gather(const Bytes& mine) {
  return session_->all_gather(mine, timeout_ms_);
}

Result<Bytes> Meeting::share_secret(const Bytes& of_rank_0) {
  HETCCL_ASSIGN(const auto all, gather(rank() == 0 ? seal(of_rank_0, *session_) : Bytes()));
  return unseal(all.front(), *session_);
}

Result<std::optional<Meeting::Child>> Meeting::split(int color, int key) {
  HETCCL_ASSIGN(bootstrap::Service * used, service());
  HETCCL_ASSIGN(const auto seat, bootstrap::split(*session_, *used, color, key, timeout_ms_));
  if (seat.n_ranks == 0) return std::optional<Child>();
  return std::optional<Child>({to_id(seat.id), seat.n_ranks, seat.rank});
}

Result<Meeting::Child> Meeting::shrink(std::span<const int> excluded) {
  if (excluded.empty()) return error(ErrorCode::InvalidArgument, "no rank is to be excluded");
  std::vector<int> stay;
  for (int other = 0; other < n_ranks(); ++other)
    if (std::find(excluded.begin(), excluded.end(), other) == excluded.end()) stay.push_back(other);
  const auto place = std::find(stay.begin(), stay.end(), rank());
  if (place == stay.end())
    return error(ErrorCode::InvalidArgument, "rank %d excludes itself: it must not call", rank());
  const uint64_t key = key_of_shrink(stay, shrinks_[stay]++);
  Child child{{}, static_cast<int>(stay.size()), static_cast<int>(place - stay.begin())};
  if (child.rank != 0) {
    HETCCL_ASSIGN(child.id, wait_for_id(stay.front(), key));
    return child;
  }
  const auto id = make_child_id();
  // Zeros mean that this rank has no id, so the others fail without a wait.
  const ShrinkNote note{key, id.ok() ? bootstrap::conceal(id.value()) : bootstrap::UniqueId{}};
  Bytes bytes(sizeof note);
  std::memcpy(bytes.data(), &note, sizeof note);
  for (const int other : stay)
    if (other != rank()) HETCCL_TRY(session_->send_note(other, bytes));
  if (!id.ok()) return id.status();
  child.id = to_id(id.value());
  return child;
}

Result<bootstrap::UniqueId> Meeting::make_child_id() {
  HETCCL_ASSIGN(bootstrap::Service * used, service());
  return used->unique_id(*session_);
}

void Meeting::fail(const Status& why) {
  const std::lock_guard lock(mutex_);
  failure_ = why;
  heard_.notify_all();
}

void Meeting::receive_note(int from, std::span<const uint8_t> bytes) {
  ShrinkNote note{};
  if (bytes.size() != sizeof note) return;
  std::memcpy(&note, bytes.data(), sizeof note);
  const std::lock_guard lock(mutex_);
  constexpr size_t kMost = 1024;  // bound, since a faulty member may send any number
  if (ids_.size() < kMost) ids_[{from, note.key}] = to_id(note.id);
  heard_.notify_all();
}

Result<ncclUniqueId> Meeting::wait_for_id(int from, uint64_t key) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms_);
  std::unique_lock lock(mutex_);
  while (!ids_.contains({from, key})) {
    if (cancel_->is_set()) return cancel_->reason();
    if (!failure_.ok()) return failure_;
    if (std::chrono::steady_clock::now() >= deadline) {
      return error(ErrorCode::Timeout, "rank %d has not shrunk the communicator within %lld ms",
                   from, static_cast<long long>(timeout_ms_));
    }
    heard_.wait_for(lock, std::chrono::milliseconds(50));  // wakes up to look for an abort
  }
  const ncclUniqueId concealed = ids_.extract({from, key}).mapped();
  lock.unlock();
  const auto id = bootstrap::reveal(to_bytes(concealed), *session_);
  if (id.ok()) return to_id(id.value());
  return error(ErrorCode::RemoteError, "rank %d has no id to meet by: see its own error", from);
}

}  // namespace hetccl::nccl
