/// hetccl as a backend of torch.distributed (c10d), for tensors of the host and of GPUs.
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
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>  // from 2.14 on, Backend needs it whole
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

/// What a backend has from the one that made it.
struct Origin {
  std::shared_ptr<Registry> registry;
  std::shared_ptr<Places> places;  ///< null where all ranks of the job make groups by equal calls
  Wire wire{};
};

/// The options of a backend as torch copies them: with copy.deepcopy, or by `clone` from 2.14 on.
struct GroupOptions final : c10d::Backend::Options {
  using Options::Options;
  Wire wire;
  c10::intrusive_ptr<Options> clone() const { return c10::make_intrusive<GroupOptions>(*this); }
};

/// One process group's communicator. On the host, collectives are enqueued on one stream and run in
/// order in the background; Work::wait drives them. On a GPU see DeviceWork.
///
/// Where no rank has a GPU it joins the communicator when it is made; where torch has bound every
/// rank to a device, once torch says to which; else by the first call, when it is known what this
/// rank's device is: `choose_device`.
///
/// torch 2.14 and later add names (all_reduce_single, ...) that forward to these.
class HetcclBackend final : public c10d::Backend {
 public:
  static constexpr const char* kName = "hetccl";
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  /// To be followed by `meet` or `adopt`.
  HetcclBackend(const c10d::DistributedBackendOptions& options,
                std::optional<c10::Device> preferred_device, Origin origin);
  ~HetcclBackend() override;

  /// Blocks until all ranks have come.
  void meet();

  const std::string getBackendName() const override { return kName; }
  /// A copy: splitGroup of torch up to 2.13 writes the new group's name and timeout into it.
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_->clone(); }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setGroupUid(const std::string& uid) override;
  bool supportsSplitting() const override { return true; }
  /// Joins the communicator where torch has bound every rank to a device; blocks until all have
  /// come.
  void eagerConnectSingleDevice(at::Device device) override;
  /// Collective over this group: every rank calls it, whether or not it is among `ranks`, and
  /// those that are not get null. Blocks until all have come.
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& opts) override;
  /// Where groups of this one's ranks meet if some of these ranks are bound to a device and others
  /// are not; else null. Blocks until all ranks have made this group.
  [[nodiscard]] std::shared_ptr<Places> places();
  void setSequenceNumberForGroup() override {}  // every rank counts from 0
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  c10d::ErrorType getError() override;
  /// Does not end the wait of a first call for the other ranks.
  void abort() override;
  void shutdown() override;
  /// Waits at most `grace` for what is in flight: for the end of the process.
  void shutdown_within(std::chrono::milliseconds grace);

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  /// Of COO tensors, by SUM. Blocks until all ranks have called it, whatever `asyncOp`.
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
  /// Throws on every rank that has come, naming those that have not. Harms nothing: the group goes
  /// on, and no collective of it needs to be able to complete.
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  bool supportsCoalescing() const override { return true; }
  /// Begins a block of the calling thread. Collectives start at once. Messages are kept, and `send`
  /// and `recv` return null: endCoalescing starts them, on a GPU in one call. It returns one Work
  /// for the block; where a message was refused it throws that error, and starts none.
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  /// Messages meet in the order of the calls, and their tags must agree. No message waits for
  /// another of another rank or direction, unless they are of one block. Messages to this rank
  /// itself meet by their tags; a send of these is complete before its receive is called.
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  /// Of what the ranks send, in their order, the first with this tag; on ranks of the host. Its
  /// Work knows the rank: `sourceRank`.
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  /// Encodes `tensor` into `codes`, encoded_bytes(numel) bytes on the same device, or decodes them.
  /// Communicates nothing: at once on the host, on a GPU on the current stream. Throws as `stats`
  /// on a GPU.
  void encode(const at::Tensor& tensor, const at::Tensor& codes, const std::string& encoding);
  void decode(const at::Tensor& codes, const at::Tensor& tensor, const std::string& encoding);

  /// As an all-reduce of `tensor`, with error feedback: see hetcclAllReduceWithResidual. `residual`
  /// is contiguous, of the tensor's type and on the communicator's device.
  WorkPtr all_reduce_with_residual(const at::Tensor& tensor, const at::Tensor& residual,
                                   const c10d::ReduceOp& op);

  /// Counters of this rank. Throws before the communicator is joined and after shutdown.
  [[nodiscard]] hetcclCommStats_t stats() const;
  /// The topology as JSON. Throws as `stats`.
  [[nodiscard]] std::string topology() const;
  /// The state of tuning, as the JSON of hetcclCommGetTuning. Throws as `stats`.
  [[nodiscard]] std::string tuning() const;

 private:
  /// What a call does with a tensor.
  enum class Use : uint8_t { In, Out, InOut };

  // device.cc
  /// Joins the communicator if that is still to do, on the device of which the call's tensor is.
  void open(std::optional<c10::Device> tensor_device);
  void join(c10::Device device);
  void adopt(std::shared_ptr<Communicator> communicator, c10::Device device, uint64_t session);
  [[nodiscard]] std::optional<c10::Device> preferred_device() const;
  [[nodiscard]] c10::Device choose_device(std::optional<c10::Device> tensor_device);
  [[nodiscard]] bool serves(c10::DeviceType type) const;
  /// The same tensors, on the communicator's device: those of the host are carried to a GPU and
  /// back, for objects and other little things. Throws for other devices.
  Tensors local(const Where& where, Request& request, const Tensors& tensors, Use use);
  at::Tensor local(const Where& where, Request& request, const at::Tensor& tensor, Use use);
  /// The same, contiguous: dense tensors of another memory format go through a copy in the order of
  /// their indices, since other ranks may have other strides. Lists of parts need none: see Flat.
  at::Tensor packed(const Where& where, Request& request, const at::Tensor& tensor, Use use);
  Tensors packed(const Where& where, Request& request, const Tensors& tensors, Use use);
  [[nodiscard]] std::shared_ptr<Communicator> joined() const;

  // encode.cc
  /// Calls where tensors of `device` are encoded.
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
    std::vector<Request> messages;  ///< yet to be started
    std::vector<OwnMessage> own;    ///< the same, of this rank to itself
    std::exception_ptr refusal;     ///< of a message, the first; or null
  };
  /// The calling thread's; null where it has begun none.
  Block* find_block_locked();
  /// The same, which is over then.
  std::optional<Block> take_block();
  /// Fills `own` instead if `peer` is this rank.
  Request describe_message(const Where& where, OrderKey::Kind kind, Tensors& tensors, int peer,
                           int tag, std::optional<OwnMessage>& own);
  /// Messages that start in one call.
  static Request merge(std::vector<Request> messages);
  /// Keeps a message for endCoalescing. False where it is to start at once.
  bool keep_message(Request& request, std::optional<OwnMessage>& own);
  /// The same of a message's error.
  bool keep_refusal(const std::exception_ptr& refusal);
  /// Starts the messages of a block that has ended.
  void start_kept(Block& block);
  /// The same of messages to this rank itself.
  void start_own(Block& block);
  /// Starts one end of a message to this rank itself, with the other if that has come.
  c10::intrusive_ptr<HetcclWork> start_own_locked(OwnMessage message);
  c10::intrusive_ptr<HetcclWork> await_send(OwnMessage receive);
  [[nodiscard]] Request join_ends(OwnMessage one, OwnMessage other) const;
  /// Every rank's row of what describes its sparse tensor, on the host. Blocks until all have come.
  at::Tensor gather_shapes(const Where& where, const at::Tensor& tensor,
                           std::chrono::milliseconds timeout);
  void check_root(const char* operation, int64_t root) const;
  static void add_broadcast(Request& request, const at::Tensor& tensor, int root);
  void add_all_gather(Request& request, const char* name, const at::Tensor& output,
                      const at::Tensor& input) const;
  /// Into one output per rank.
  void add_all_gather(Request& request, const char* name, const Tensors& outputs,
                      const at::Tensor& input) const;
  void add_reduce_scatter(Request& request, const char* name, const at::Tensor& output,
                          const at::Tensor& input, const c10d::ReduceOp& op) const;

  const std::string group_;
  std::shared_ptr<const GroupName> name_;  ///< what work has of it
  const c10::intrusive_ptr<GroupOptions> options_;
  const c10::intrusive_ptr<c10d::Store> store_;
  const std::optional<c10::Device> preferred_device_;  ///< the default group's device_id
  const Origin origin_;
  std::mutex watchers_mutex_;
  std::map<OrderKey, std::shared_ptr<Watcher>> watchers_;  ///< each waits in its order
  std::unique_ptr<MonitoredBarrier> monitored_barrier_;
  std::mutex own_mutex_;  ///< held while an end of an own message looks for the other
  OwnMessages own_messages_;

  std::mutex open_mutex_;
  std::atomic<bool> opened_{false};             ///< what follows is there, and stays
  std::shared_ptr<Communicator> communicator_;  ///< null before
  c10::Device device_{c10::kCPU};
  std::shared_ptr<DeviceStreams> streams_;  ///< null on the host
  uint64_t session_ = 0;                    ///< tells this communicator from others of its store
  std::atomic<bool> ended_{false};          ///< by abort or shutdown

  std::string arrival_;  ///< Arrival::session; empty for a group that was split off
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
