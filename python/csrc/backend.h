/// hetccl as a backend of torch.distributed (c10d), for tensors on the host and on GPUs.
#pragma once

#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>  // torch 2.14 needs its definition
#include <vector>

#include "communicator.h"
#include "device_streams.h"
#include "monitored_barrier.h"
#include "own_messages.h"
#include "rendezvous.h"
#include "tensors.h"
#include "watcher.h"
#include "work.h"

namespace hetccl::torch_backend {

class Places;
class Registry;

/// Objects that a backend gets from its creator.
struct Origin {
  std::shared_ptr<Registry> registry;
  std::shared_ptr<Places> places;  ///< null if all ranks of the job make groups by the same calls
  Wire wire{};
};

/// The options of a backend. torch copies them with copy.deepcopy, or, since 2.14, with `clone`.
struct GroupOptions final : c10d::Backend::Options {
  using Options::Options;
  Wire wire;
  c10::intrusive_ptr<Options> clone() const { return c10::make_intrusive<GroupOptions>(*this); }
};

/// The communicator of one process group. On the host, collectives are enqueued on one stream and
/// run in order in the background; Work::wait drives them. For GPUs see DeviceWork.
///
/// If no rank has a GPU, the backend joins the communicator when it is made. If torch has bound
/// every rank to a device, it joins when torch passes the device. Otherwise the first call joins,
/// when this rank's device is known (`choose_device`).
///
/// torch 2.14 and later add names (all_reduce_single, ...) that forward to these.
class HetcclBackend final : public c10d::Backend {
 public:
  static constexpr const char* kName = "hetccl";
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  /// The caller must call `meet` or `adopt` next.
  HetcclBackend(const c10d::DistributedBackendOptions& options,
                std::optional<c10::Device> preferred_device, Origin origin);
  ~HetcclBackend() override;

  /// Waits for all ranks of the group.
  void meet();

  const std::string getBackendName() const override { return kName; }
  /// Returns a copy, because splitGroup of torch up to 2.13 writes the new group's name and timeout
  /// into it.
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_->clone(); }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setGroupUid(const std::string& uid) override;
  bool supportsSplitting() const override { return true; }
  /// Joins the communicator if torch has bound every rank to a device. Blocks until all ranks have
  /// joined.
  void eagerConnectSingleDevice(at::Device device) override;
  /// Splits this group. Collective over this group: every rank calls it; ranks that are not in
  /// `ranks` get null. Blocks until all ranks have called it.
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& opts) override;
  /// Returns the meeting places for groups of this one's ranks if torch has bound some but not all
  /// of these ranks to a device; else null. Blocks until all ranks have made this group.
  [[nodiscard]] std::shared_ptr<Places> places();
  void setSequenceNumberForGroup() override {}  // every rank counts from 0
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  c10d::ErrorType getError() override;
  /// Does not interrupt a first call that waits for the other ranks.
  void abort() override;
  void shutdown() override;
  /// Shuts down at the end of the process; waits at most `grace` for pending operations.
  void shutdown_within(std::chrono::milliseconds grace);

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  /// For COO tensors and SUM. Blocks until all ranks have called it, regardless of `asyncOp`.
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& opts) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  /// Throws on every rank that has called it, naming those that have not. It does not damage the
  /// group, and works even if no collective of the group can complete.
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  bool supportsCoalescing() const override { return true; }
  /// Begins a block of the calling thread. Collectives start at once. Messages are kept, and `send`
  /// and `recv` return null, until endCoalescing starts them, on a GPU in one call. endCoalescing
  /// returns one Work for the block. If a message was refused, it throws that error and starts no
  /// message.
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  /// Messages match in call order, and their tags must agree. A message waits only for messages of
  /// the same rank and direction, and for those of its block. Messages from this rank to itself
  /// match by tag; such a send is complete before its receive is called.
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  /// Receives the first message with this tag from any rank, on host ranks only. `sourceRank` of
  /// its Work tells the sender.
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  /// Encodes `tensor` to `codes`, which has encoded_bytes(numel) bytes on the same device, or
  /// decodes it. Does not communicate. Runs at once on the host, on the current stream on a GPU. On
  /// a GPU throws as `stats` does.
  void encode(const at::Tensor& tensor, const at::Tensor& codes, const std::string& encoding);
  void decode(const at::Tensor& codes, const at::Tensor& tensor, const std::string& encoding);

  /// All-reduces `tensor` with error feedback: see hetcclAllReduceWithResidual. `residual` must be
  /// contiguous, of the tensor's type and on the communicator's device.
  WorkPtr all_reduce_with_residual(const at::Tensor& tensor, const at::Tensor& residual,
                                   const c10d::ReduceOp& op);

  /// Counters of this rank. Throws before the communicator is joined and after shutdown.
  [[nodiscard]] hetcclCommStats_t stats() const;
  /// The topology as JSON. Throws as `stats` does.
  [[nodiscard]] std::string topology() const;
  /// The state of tuning: the JSON of hetcclCommGetTuning. Throws as `stats` does.
  [[nodiscard]] std::string tuning() const;

 private:
  /// A call's use of a tensor.
  enum class Use : uint8_t { In, Out, InOut };

  // device.cc
  /// Joins the communicator if that has not been done, on the device of the call's tensor.
  void open(std::optional<c10::Device> tensor_device);
  void join(c10::Device device);
  void adopt(std::shared_ptr<Communicator> communicator, c10::Device device, uint64_t session);
  [[nodiscard]] std::optional<c10::Device> preferred_device() const;
  [[nodiscard]] c10::Device choose_device(std::optional<c10::Device> tensor_device);
  [[nodiscard]] bool serves(c10::DeviceType type) const;
  /// Returns the tensors on the communicator's device. Host tensors are copied to the GPU and back,
  /// which is meant for objects and other small data. Throws for other devices.
  Tensors local(const Where& where, Request& request, const Tensors& tensors, Use use);
  at::Tensor local(const Where& where, Request& request, const at::Tensor& tensor, Use use);
  /// Like `local`, and contiguous: a dense tensor with another memory format is copied in index
  /// order, because other ranks may have other strides. Lists of parts do not need this: see Flat.
  at::Tensor packed(const Where& where, Request& request, const at::Tensor& tensor, Use use);
  Tensors packed(const Where& where, Request& request, const Tensors& tensors, Use use);
  [[nodiscard]] std::shared_ptr<Communicator> joined() const;

  // encode.cc
  /// Calls the C API for tensors of `device` that are encoded or decoded.
  using Recode = std::function<hetcclResult_t(hetcclComm_t, hetcclStream_t)>;
  void recode(const Where& where, c10::Device device, const Recode& call);

  // split.cc
  [[nodiscard]] Binding binding();
  [[nodiscard]] int64_t global_rank(int rank) const;
  c10::intrusive_ptr<HetcclBackend> split_by_members(c10d::DistributedBackendOptions& options,
                                                     const Origin& origin);
  c10::intrusive_ptr<HetcclBackend> split_communicator(c10d::DistributedBackendOptions& options,
                                                       const std::vector<int>& ranks,
                                                       const Origin& origin);

  c10::intrusive_ptr<HetcclWork> submit(Request request, std::chrono::milliseconds timeout,
                                        bool blocking);
  template <typename Options>
  WorkPtr submit(Request request, const Options& opts) {
    return submit(std::move(request), opts.timeout, !opts.asyncOp);
  }
  std::shared_ptr<Watcher> watcher_of(const Request& request);
  WorkPtr message(const char* name, OrderKey::Kind kind, Tensors& tensors, int peer, int tag);
  /// The calls of one thread between startCoalescing and endCoalescing.
  struct Block {
    std::vector<c10::intrusive_ptr<HetcclWork>> works;
    std::vector<Request> messages;  ///< not yet started
    std::vector<OwnMessage> own;    ///< the same, from this rank to itself
    std::exception_ptr refusal;     ///< the first refused message's error; or null
  };
  /// The calling thread's block; null if it has begun none.
  Block* find_block_locked();
  /// Removes and returns the calling thread's block.
  std::optional<Block> take_block();
  /// Fills in `own` instead if `peer` is this rank.
  Request describe_message(const Where& where, OrderKey::Kind kind, Tensors& tensors, int peer,
                           int tag, std::optional<OwnMessage>& own);
  /// Merges messages into one call.
  static Request merge(std::vector<Request> messages);
  /// Keeps a message for endCoalescing. Returns false if there is no block and it must start at
  /// once.
  bool keep_message(Request& request, std::optional<OwnMessage>& own);
  /// Keeps a message's error in the same way.
  bool keep_refusal(const std::exception_ptr& refusal);
  /// Starts the kept messages of a block that has ended.
  void start_kept(Block& block);
  /// Starts those from this rank to itself.
  void start_own(Block& block);
  /// Starts one end of a message from this rank to itself, together with the other end if that was
  /// called before.
  c10::intrusive_ptr<HetcclWork> start_own_locked(OwnMessage message);
  c10::intrusive_ptr<HetcclWork> await_send(OwnMessage receive);
  [[nodiscard]] Request join_ends(OwnMessage one, OwnMessage other) const;
  /// Returns the rows in which all ranks describe their sparse tensors, on the host. Blocks until
  /// all ranks have called it.
  at::Tensor gather_shapes(const Where& where, const at::Tensor& tensor,
                           std::chrono::milliseconds timeout);
  void check_root(const char* operation, int64_t root) const;
  static void add_broadcast(Request& request, const at::Tensor& tensor, int root);
  void add_all_gather(Request& request, const char* name, const at::Tensor& output,
                      const at::Tensor& input) const;
  /// The same with one output per rank.
  void add_all_gather(Request& request, const char* name, const Tensors& outputs,
                      const at::Tensor& input) const;
  void add_reduce_scatter(Request& request, const char* name, const at::Tensor& output,
                          const at::Tensor& input, const c10d::ReduceOp& op) const;

  const std::string group_;
  std::shared_ptr<const GroupName> name_;  ///< shared with its work
  const c10::intrusive_ptr<GroupOptions> options_;
  const c10::intrusive_ptr<c10d::Store> store_;
  const std::optional<c10::Device> preferred_device_;  ///< device_id of the default group
  const Origin origin_;
  std::mutex watchers_mutex_;
  std::map<OrderKey, std::shared_ptr<Watcher>> watchers_;  ///< one per order
  std::unique_ptr<MonitoredBarrier> monitored_barrier_;
  std::mutex own_mutex_;  ///< held while one end of an own message looks for the other
  OwnMessages own_messages_;

  std::mutex open_mutex_;
  std::atomic<bool> opened_{false};             ///< once true, the members below are set and stay
  std::shared_ptr<Communicator> communicator_;  ///< null until opened
  c10::Device device_{c10::kCPU};
  std::shared_ptr<DeviceStreams> streams_;  ///< null on the host
  uint64_t session_ = 0;                    ///< unique among communicators of the store
  std::atomic<bool> ended_{false};          ///< abort or shutdown was called

  std::string arrival_;  ///< Arrival::session; empty for a split group
  std::atomic<bool> declared_{false};
  std::mutex binding_mutex_;
  std::optional<Binding> binding_;
  std::shared_ptr<Places> own_places_;

  /// The last call of `split`.
  struct LastSplit {
    c10::weak_intrusive_ptr<c10d::Store> store;
    std::vector<int> ranks;
    c10::weak_intrusive_ptr<c10d::Backend> child;
  };
  std::mutex split_mutex_;
  std::optional<LastSplit> last_split_;
  uint64_t splits_ = 0;

  std::atomic<int64_t> timeout_ms_;
  std::atomic<uint64_t> sequence_{0};

  std::mutex blocks_mutex_;
  std::map<std::thread::id, Block> blocks_;
};

}  // namespace hetccl::torch_backend
