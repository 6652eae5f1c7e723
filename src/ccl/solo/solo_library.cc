#include "ccl/solo/solo_library.h"

#include <utility>

namespace hetccl::ccl {
namespace {

bool reduces(RedOp op) {
  return op != RedOp::PreMulSum;
}

class SoloCommunicator : public Communicator {
 public:
  explicit SoloCommunicator(Copy copy) : copy_(std::move(copy)) {}

  Status all_reduce(const void* send, void* recv, size_t count, DataType type, const Reducer& how,
                    void* stream) override {
    if (!reduces(how.op))
      return error(ErrorCode::Unsupported, "one rank has no pre-multiplied sums");
    return move(recv, send, count, type, stream);
  }
  Status reduce(std::span<const Shard> shards, DataType type, const Reducer& how,
                void* stream) override {
    HETCCL_TRY(check_ranks(shards, 1));
    for (const Shard& shard : shards)
      HETCCL_TRY(all_reduce(shard.send, shard.recv, shard.count, type, how, stream));
    return {};
  }
  Status broadcast(std::span<const Shard> shards, DataType type, void* stream) override {
    HETCCL_TRY(check_ranks(shards, 1));
    for (const Shard& shard : shards)
      HETCCL_TRY(move(shard.recv, shard.send, shard.count, type, stream));
    return {};
  }
  Status exchange(std::span<const Transfer> transfers, DataType type, void* stream) override {
    HETCCL_TRY(check_transfers(transfers, 1, 0));
    auto receive = transfers.begin();
    for (const Transfer& send : transfers) {
      if (!send.send || send.count == 0) continue;
      while (receive->send || receive->count == 0) ++receive;
      HETCCL_TRY(move(receive->data, send.data, send.count, type, stream));
      ++receive;
    }
    return {};
  }
  Status barrier(void*) override { return {}; }
  [[nodiscard]] Status async_error() const override { return {}; }
  void abort() override {}
  [[nodiscard]] ShmSource* shm_source() override { return nullptr; }

 private:
  Status move(void* to, const void* from, size_t count, DataType type, void* stream) {
    if (to == from || count == 0) return {};
    return copy_(stream, to, from, count * size_of(type));
  }
  const Copy copy_;
};

class SoloLibrary : public Library {
 public:
  explicit SoloLibrary(Copy copy) : copy_(std::move(copy)) {}
  [[nodiscard]] std::string name() const override { return "none"; }
  [[nodiscard]] std::string version() const override { return ""; }
  [[nodiscard]] bool supports(DataType type, RedOp op) const override {
    return is_valid(type) && is_valid(op) && applies(op, type) && reduces(op);
  }
  [[nodiscard]] bool supports_exchange() const override { return true; }
  [[nodiscard]] Reach reach() const override { return {.hosts = false}; }
  Result<UniqueId> unique_id(int, const WaitLimit&) override { return UniqueId{}; }
  Result<std::unique_ptr<Communicator>> init(const UniqueId&, int n_ranks, int, Waker*,
                                             const WaitLimit&) override {
    if (n_ranks != 1)
      return error(ErrorCode::InternalError, "a cluster of %d ranks without a library", n_ranks);
    return std::unique_ptr<Communicator>(std::make_unique<SoloCommunicator>(copy_));
  }

 private:
  const Copy copy_;
};

}  // namespace

std::unique_ptr<Library> make_solo_library(Copy copy) {
  return std::make_unique<SoloLibrary>(std::move(copy));
}

}  // namespace hetccl::ccl
