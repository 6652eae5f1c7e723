#include "ccl/host/host_library.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "ccl/host/rendezvous.h"
#include "host/crew.h"

namespace hetccl::ccl {

namespace {

using namespace host;

constexpr char kMagic[16] = "hetccl host 1";

// The contents of a UniqueId.
struct IdContent {
  char magic[16];
  int32_t n_ranks;
  int32_t threads;
  SharedMemoryAddress address;
};
static_assert(sizeof(IdContent) <= sizeof(UniqueId));

Status check_rank_count(int n_ranks) {
  if (n_ranks >= 1 && n_ranks <= kMaxRanks) return {};
  return error(ErrorCode::InvalidArgument, "a host cluster of %d ranks: 1 to %d are possible",
               n_ranks, kMaxRanks);
}

class HostCommunicator : public Communicator {
 public:
  explicit HostCommunicator(std::shared_ptr<Member> member) : member_(std::move(member)) {}
  // Queued tasks end at their next poll, and keep the segment mapped until then.
  ~HostCommunicator() override { member_->leave(); }
  HostCommunicator(const HostCommunicator&) = delete;
  HostCommunicator& operator=(const HostCommunicator&) = delete;

  void number_calls(uint64_t number) override { member_->number_calls(number); }
  Status all_reduce(const void* send, void* recv, size_t count, DataType type, const Reducer& how,
                    void* stream) override {
    const Shard whole{0, send, recv, count};
    return enqueue(Kind::AllReduce, {&whole, 1}, type, how, stream);
  }
  Result<bool> all_reduce_at_once(const void* send, void* recv, size_t count, DataType type,
                                  const Reducer& how, void* stream) override {
    const Shard whole{0, send, recv, count};
    HETCCL_TRY(check({&whole, 1}, type, how.op, stream));
    auto* queue = static_cast<TaskQueue*>(stream);
    HostCall& operation = member_->open(Kind::AllReduce, {&whole, 1}, type, how);
    if (member_->poll(operation, *queue) == TaskState::Done) return true;
    push(operation, queue);
    return false;
  }
  Status reduce(std::span<const Shard> shards, DataType type, const Reducer& how,
                void* stream) override {
    return enqueue(Kind::Reduce, shards, type, how, stream);
  }
  Status broadcast(std::span<const Shard> shards, DataType type, void* stream) override {
    return enqueue(Kind::Broadcast, shards, type, {}, stream);
  }
  Status exchange(std::span<const Transfer> transfers, DataType type, void* stream) override {
    HETCCL_TRY(check({}, type, RedOp::Sum, stream));
    HETCCL_TRY(check_transfers(transfers, member_->n_ranks(), member_->rank()));
    HETCCL_TRY(check_counts(transfers, type));
    push(member_->open_exchange(transfers, type), static_cast<TaskQueue*>(stream));
    return {};
  }
  Status barrier(void* stream) override {
    return enqueue(Kind::Barrier, {}, DataType::Uint8, {}, stream);
  }

  [[nodiscard]] Status async_error() const override { return member_->error(); }
  [[nodiscard]] std::optional<Disagreement> disagreement() const override {
    return member_->disagreement();
  }
  void abort() override { member_->abort(); }
  [[nodiscard]] ShmSource* shm_source() override {
    return member_->wakeable() ? member_.get() : nullptr;
  }

 private:
  Status check(std::span<const Shard> shards, DataType type, RedOp op, const void* stream) const {
    HETCCL_TRY(member_->error());
    if (!stream)
      return error(ErrorCode::InvalidArgument,
                   "a host collective needs a stream of the host device");
    if (!is_valid(type) || !is_valid(op))
      return error(ErrorCode::InvalidArgument, "data type %d with operator %d is unknown",
                   static_cast<int>(type), static_cast<int>(op));
    HETCCL_TRY(check_ranks(shards, member_->n_ranks()));
    return check_counts(shards, type);
  }

  template <typename Piece>
  static Status check_counts(std::span<const Piece> pieces, DataType type) {
    size_t left = SIZE_MAX / 2 / size_of(type);
    for (const Piece& piece : pieces) {
      if (piece.count > left)
        return error(ErrorCode::InvalidArgument, "a collective of %zu elements and more overflows",
                     piece.count);
      left -= piece.count;
    }
    return {};
  }

  // Splits a list that is too long for one operation, alike on all ranks.
  Status enqueue(Kind kind, std::span<const Shard> shards, DataType type, const Reducer& how,
                 void* stream) {
    HETCCL_TRY(check(shards, type, how.op, stream));
    auto* queue = static_cast<TaskQueue*>(stream);
    const size_t most = HostCall::max_shards(member_->geometry());
    do {
      const auto part = shards.first(std::min(shards.size(), most));
      shards = shards.subspan(part.size());
      push(member_->open(kind, part, type, how), queue);
    } while (!shards.empty());
    return {};
  }

  void push(HostCall& operation, TaskQueue* queue) {
    queue->push([member = member_, &operation, queue] { return member->poll(operation, *queue); });
  }

  std::shared_ptr<Member> member_;
};

class HostLibrary : public Library {
 public:
  explicit HostLibrary(std::shared_ptr<const Crew> crew) : crew_(std::move(crew)) {}
  [[nodiscard]] std::string name() const override { return "host"; }
  [[nodiscard]] std::string version() const override { return "1"; }
  [[nodiscard]] bool supports(DataType type, RedOp op) const override {
    return is_valid(type) && is_valid(op) && applies(op, type);
  }
  [[nodiscard]] Reach reach() const override { return kHostReach; }

  // Supports collective exchanges but no pairs: all ranks of a host cluster walk the same sequence
  // of chunks. Messages between two ranks use a channel of a transport.
  [[nodiscard]] bool supports_exchange() const override { return true; }

  Result<UniqueId> unique_id(int n_ranks, const WaitLimit&) override {
    HETCCL_TRY(check_rank_count(n_ranks));
    const Geometry geometry{n_ranks, crew_ != nullptr ? crew_->threads() : 1};
    HETCCL_ASSIGN(SharedMemory memory, SharedMemory::create(geometry.total_bytes()));
    IdContent content{};
    std::memcpy(content.magic, kMagic, sizeof kMagic);
    content.n_ranks = n_ranks;
    content.threads = geometry.threads;
    content.address = memory.address();
    UniqueId id;
    std::memcpy(id.bytes, &content, sizeof content);
    std::lock_guard lock(mutex_);
    created_.push_back(std::move(memory));
    return id;
  }

  void forget(const UniqueId& id) override {
    IdContent content;
    std::memcpy(&content, id.bytes, sizeof content);
    take(content.address);
  }

  Result<std::unique_ptr<Communicator>> init(const UniqueId& id, int n_ranks, int rank,
                                             Waker* waker, const WaitLimit& limit) override {
    HETCCL_TRY(check_rank_count(n_ranks));
    if (rank < 0 || rank >= n_ranks)
      return error(ErrorCode::InvalidArgument, "rank %d in a host cluster of %d ranks", rank,
                   n_ranks);
    IdContent content;
    std::memcpy(&content, id.bytes, sizeof content);
    if (std::memcmp(content.magic, kMagic, sizeof kMagic) != 0)
      return error(ErrorCode::InvalidArgument, "these bytes are no id of a host cluster");
    const Geometry geometry{n_ranks, std::clamp(content.threads, 1, Crew::kMaxThreads)};
    if (content.n_ranks == n_ranks && content.address.bytes != geometry.total_bytes())
      return error(ErrorCode::InvalidArgument, "the id is of a host cluster of another version");
    if (content.n_ranks != n_ranks)
      return error(ErrorCode::InvalidArgument, "the id is of a host cluster of %d ranks, not of %d",
                   content.n_ranks, n_ranks);
    SharedMemory memory = rank == 0 ? take(content.address) : SharedMemory();
    if (!memory.data()) {
      HETCCL_ASSIGN(memory, SharedMemory::attach(content.address));
    }
    HETCCL_ASSIGN(auto member, join(std::move(memory), geometry, rank, waker, limit));
    return std::unique_ptr<Communicator>(std::make_unique<HostCommunicator>(std::move(member)));
  }

 private:
  // Returns the segment of an id that this library made; empty for other ids.
  SharedMemory take(const SharedMemoryAddress& address) {
    std::lock_guard lock(mutex_);
    for (auto it = created_.begin(); it != created_.end(); ++it) {
      if (std::memcmp(it->address().token, address.token, sizeof address.token) != 0) continue;
      SharedMemory memory = std::move(*it);
      created_.erase(it);
      return memory;
    }
    return {};
  }

  const std::shared_ptr<const Crew> crew_;
  std::mutex mutex_;
  std::vector<SharedMemory> created_;  // their first ranks have not joined yet
};

}  // namespace

std::unique_ptr<Library> make_host_library(std::shared_ptr<const Crew> crew) {
  return std::make_unique<HostLibrary>(std::move(crew));
}

}  // namespace hetccl::ccl
