#include "ccl/adaptor/device_library.h"

#include <mutex>
#include <utility>

#include "adaptor/calls.h"
#include "ccl/adaptor/found_library.h"
#include "ccl/adaptor/work.h"

namespace hetccl::ccl {
namespace {

using adaptor::ask;
using Part = FoundLibrary::Part;

// Owns the adaptor's communicator.
class Handle {
 public:
  Handle(std::shared_ptr<const Part> part, void* native)
      : part_(std::move(part)), native_(native) {}
  ~Handle() {
    static_cast<void>(ask(*part_, "destroy", [this] {
      part_->calls.destroy(native_);
      return 0;
    }));
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  [[nodiscard]] const Part& part() const { return *part_; }
  [[nodiscard]] void* native() const { return native_; }

 private:
  const std::shared_ptr<const Part> part_;
  void* const native_;
};

bool reduces_by(const Part& part, DataType type, RedOp op) {
  return is_valid(type) && is_valid(op) && applies(op, type) && op != RedOp::PreMulSum &&
         has_reduction(part.calls, type, op);
}

class DeviceCommunicator : public Communicator {
 public:
  DeviceCommunicator(std::shared_ptr<Handle> handle, int n_ranks, int rank)
      : handle_(std::move(handle)), n_ranks_(n_ranks), rank_(rank) {}

  Status all_reduce(const void* send, void* recv, size_t count, DataType type, const Reducer& how,
                    void* stream) override {
    const Shard whole{0, send, recv, count};
    return reduce_shards(hetcclLibraryAllReduce, {&whole, 1}, type, how, stream);
  }
  Status reduce(std::span<const Shard> shards, DataType type, const Reducer& how,
                void* stream) override {
    HETCCL_TRY(check_ranks(shards, n_ranks_));
    return reduce_shards(hetcclLibraryReduce, shards, type, how, stream);
  }
  Status broadcast(std::span<const Shard> shards, DataType type, void* stream) override {
    HETCCL_TRY(check_broadcast(shards, n_ranks_, calls().capabilities));
    return start(hetcclLibraryBroadcast, type, {}, shards, {}, stream);
  }
  Status exchange(std::span<const Transfer> transfers, DataType type, void* stream) override {
    HETCCL_TRY(check_exchange(transfers, n_ranks_, rank_, calls().capabilities));
    return start(hetcclLibraryExchange, type, {}, {}, transfers, stream);
  }
  Status barrier(void* stream) override {
    return start(hetcclLibraryBarrier, DataType::Uint8, {}, {}, {}, stream);
  }
  // Does not ask during another call, because adaptors may rely on that; a later query sees the
  // error.
  [[nodiscard]] Status async_error() const override {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return {};
    int done = 0;
    return ask(handle_->part(), "a call has failed",
               [&] { return calls().test(handle_->native(), nullptr, &done); });
  }
  void abort() override {
    static_cast<void>(ask(handle_->part(), "abort", [this] {
      calls().abort(handle_->native());
      return 0;
    }));
  }
  [[nodiscard]] ShmSource* shm_source() override { return nullptr; }

 private:
  [[nodiscard]] const hetcclLibraryAdaptor& calls() const { return handle_->part().calls; }
  Status reduce_shards(hetcclLibraryCall kind, std::span<const Shard> shards, DataType type,
                       const Reducer& how, void* stream) {
    if (!reduces_by(handle_->part(), type, how.op)) {
      return error(ErrorCode::Unsupported, "%s does not reduce %s by %s",
                   handle_->part().name.c_str(), std::string(name_of(type)).c_str(),
                   std::string(name_of(how.op)).c_str());
    }
    return start(kind, type, how.op, shards, {}, stream);
  }
  Status start(hetcclLibraryCall kind, DataType type, RedOp op, std::span<const Shard> shards,
               std::span<const Transfer> transfers, void* stream) {
    const std::lock_guard lock(mutex_);
    lists_.set(shards, transfers);
    const hetcclLibraryWork work = work_of(kind, type, op, lists_, stream);
    void* request = nullptr;
    return ask(handle_->part(), "a call cannot start",
               [&] { return calls().start(handle_->native(), &work, &request); });
  }

  const std::shared_ptr<Handle> handle_;
  const int n_ranks_, rank_;
  mutable std::mutex mutex_;  // one call of a communicator at a time
  Lists lists_;               // of the current call
};

class DeviceLibrary : public FoundLibrary {
 public:
  DeviceLibrary(const std::shared_ptr<const adaptor::Adaptor>& adaptor,
                std::function<void()> make_current)
      : FoundLibrary(adaptor), make_current_(std::move(make_current)) {}
  [[nodiscard]] bool supports(DataType type, RedOp op) const override {
    return reduces_by(*part(), type, op);
  }
  Result<std::unique_ptr<Communicator>> init(const UniqueId& id, int n_ranks, int rank, Waker*,
                                             const WaitLimit& limit) override {
    using Made = std::shared_ptr<Handle>;
    const auto attempt = [part = part(), make_current = make_current_, id, n_ranks, rank,
                          ms = limit.timeout_ms]() -> Result<Made> {
      make_current();
      HETCCL_ASSIGN(void* made, init_by(*part, id, n_ranks, rank, ms));
      return std::make_shared<Handle>(part, made);
    };
    HETCCL_ASSIGN(auto handle, adaptor::run_within<Made>(limit, "init", attempt));
    return std::unique_ptr<Communicator>(
        std::make_unique<DeviceCommunicator>(std::move(handle), n_ranks, rank));
  }

 private:
  const std::function<void()> make_current_;
};

}  // namespace

std::unique_ptr<Library> make_adaptor_device_library(
    const std::shared_ptr<const adaptor::Adaptor>& adaptor, std::function<void()> make_current) {
  return std::make_unique<DeviceLibrary>(adaptor, std::move(make_current));
}

}  // namespace hetccl::ccl
