#include "backend.h"

#include <c10/util/Exception.h>

#include <utility>

#include "device_work.h"
#include "host_work.h"
#include "parts.h"
#include "tensors.h"
#include "torch_versions.h"

namespace hetccl::torch_backend {
namespace {

using std::chrono::milliseconds;

milliseconds milliseconds_of(std::chrono::duration<float> timeout) {
  return std::chrono::duration_cast<milliseconds>(timeout);
}

}  // namespace

HetcclBackend::HetcclBackend(const c10d::DistributedBackendOptions& options,
                             std::optional<c10::Device> preferred_device, Origin origin)
    : Backend(options.group_rank, options.group_size),
      group_(options.group_id),
      options_(c10::make_intrusive<GroupOptions>(kName, milliseconds_of(options.timeout))),
      store_(options.store),
      preferred_device_(preferred_device),
      origin_(std::move(origin)),
      timeout_ms_(milliseconds_of(options.timeout).count()) {
  init();
  TORCH_CHECK_VALUE(store_ != nullptr, "hetccl: process group '", group_,
                    "' needs a torch Store, through which its ranks meet");
  options_->group_name = options.group_id;
  options_->wire = origin_.wire;
  for (const int64_t rank : options.global_ranks_in_group) {
    options_->global_ranks_in_group.push_back(static_cast<uint64_t>(rank));
  }
  name_ = std::make_shared<const GroupName>(GroupName{group_, options_->global_ranks_in_group});
}

void HetcclBackend::meet() {
  const bool has_gpu = device_count(c10::kCUDA) > 0;
  const Arrival all = arrive(*store_, rank_, size_, has_gpu, group_, options_->timeout);
  arrival_ = all.session;
  if (!all.any_gpu) join(c10::kCPU);
}

HetcclBackend::~HetcclBackend() {
  shutdown();
}

void HetcclBackend::setTimeout(milliseconds timeout) {
  TORCH_CHECK_VALUE(timeout.count() > 0, "hetccl: a timeout must be positive, got ",
                    timeout.count(), " ms");
  timeout_ms_ = timeout.count();
  options_->timeout = timeout;
}

c10d::ErrorType HetcclBackend::getError() {
  if (!opened_) return c10d::ErrorType::SUCCESS;
  const auto failure = communicator_->failure();
  if (!failure) return c10d::ErrorType::SUCCESS;
  if (failure->result == hetcclTimeout) return c10d::ErrorType::TIMEOUT;
  if (failure->result == hetcclRemoteError) return c10d::ErrorType::REMOTE_ERROR;
  return c10d::ErrorType::COMM_ERROR;
}

void HetcclBackend::abort() {
  ended_ = true;
  own_messages_.close();
  if (opened_) communicator_->abort("the process group was aborted");
}

void HetcclBackend::shutdown() {
  ended_ = true;
  own_messages_.close();
  if (opened_) communicator_->close();
}

void HetcclBackend::shutdown_within(milliseconds grace) {
  ended_ = true;
  own_messages_.close();
  if (!opened_) return;
  const auto end = std::chrono::steady_clock::now() + grace;
  if (streams_ != nullptr && !streams_->drain(grace)) {
    communicator_->abort("the process exited with operations in flight");
  }
  constexpr milliseconds kLeast(200);  // the library must notice the end of the GPU's streams
  const auto rest =
      std::chrono::duration_cast<milliseconds>(end - std::chrono::steady_clock::now());
  communicator_->close_within(std::max(rest, kLeast));
  const std::lock_guard lock(watchers_mutex_);
  for (const auto& [order, watcher] : watchers_) {
    const auto left =
        std::chrono::duration_cast<milliseconds>(end - std::chrono::steady_clock::now());
    watcher->drain(std::max(left, milliseconds(0)));
  }
}

std::shared_ptr<Communicator> HetcclBackend::joined() const {
  TORCH_CHECK_WITH(DistBackendError, opened_, "hetccl: process group '", group_,
                   "' has not joined its communicator yet: that is done by its first collective");
  return communicator_;
}

hetcclCommStats_t HetcclBackend::stats() const {
  hetcclCommStats_t stats;
  const auto failure = joined()->stats(stats);
  TORCH_CHECK_WITH(DistBackendError, !failure, "hetccl: no statistics: ", failure->text);
  return stats;
}

std::string HetcclBackend::topology() const {
  std::string json;
  const auto failure = joined()->topology(json);
  TORCH_CHECK_WITH(DistBackendError, !failure, "hetccl: no topology: ", failure->text);
  return json;
}

std::string HetcclBackend::tuning() const {
  std::string json;
  const auto failure = joined()->tuning(json);
  TORCH_CHECK_WITH(DistBackendError, !failure,
                   "hetccl: nothing is known of tuning: ", failure->text);
  return json;
}

c10::intrusive_ptr<HetcclWork> HetcclBackend::submit(Request request, milliseconds timeout,
                                                     bool blocking) {
  open(std::nullopt);
  auto watcher = watcher_of(request);
  request.device = device_;
  c10::intrusive_ptr<HetcclWork> work;
  if (streams_ == nullptr) {
    work = c10::make_intrusive<HostWork>(rank_, sequence_++, name_, std::move(request),
                                         communicator_, std::move(watcher));
  } else {
    work = c10::make_intrusive<DeviceWork>(rank_, sequence_++, name_, std::move(request),
                                           communicator_, std::move(watcher), streams_);
  }
  work->launch(timeout.count() > 0 ? timeout : milliseconds(timeout_ms_.load()), blocking);
  const std::lock_guard lock(blocks_mutex_);
  if (Block* block = find_block_locked()) block->works.push_back(work);
  return work;
}

std::shared_ptr<Watcher> HetcclBackend::watcher_of(const Request& request) {
  // Work of several orders gets a watcher of its own, so that it delays none of the orders.
  if (!request.members.empty() || request.order.kind == OrderKey::Kind::Several) {
    return std::make_shared<Watcher>();
  }
  const std::lock_guard lock(watchers_mutex_);
  auto& watcher = watchers_[request.order];
  if (watcher == nullptr) watcher = std::make_shared<Watcher>();
  return watcher;
}

HetcclBackend::Block* HetcclBackend::find_block_locked() {
  const auto block = blocks_.find(std::this_thread::get_id());
  return block == blocks_.end() ? nullptr : &block->second;
}

std::optional<HetcclBackend::Block> HetcclBackend::take_block() {
  const std::lock_guard lock(blocks_mutex_);
  auto taken = blocks_.extract(std::this_thread::get_id());
  if (taken.empty()) return std::nullopt;
  return std::move(taken.mapped());
}

void HetcclBackend::startCoalescing() {
  const auto unended = take_block();  // left by a program that went on after an exception
  TORCH_CHECK_VALUE(!unended || unended->messages.empty(), "hetccl: ", unended->messages.size(),
                    " messages of a block on rank ", rank_,
                    ", which an exception left without its end, were never started");
  const std::lock_guard lock(blocks_mutex_);
  blocks_[std::this_thread::get_id()] = {};
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::endCoalescing() {
  std::optional<Block> block = take_block();
  TORCH_CHECK_VALUE(block.has_value(), "hetccl: endCoalescing on rank ", rank_,
                    " without startCoalescing");
  if (block->refusal != nullptr) std::rethrow_exception(block->refusal);
  start_kept(*block);
  if (block->works.size() == 1) return block->works.front();
  Request request(c10d::OpType::COALESCED, "hetccl:coalesced");
  request.members = std::move(block->works);
  for (const auto& member : request.members) {
    const Tensors outputs = member->result();
    request.outputs.insert(request.outputs.end(), outputs.begin(), outputs.end());
  }
  return submit(std::move(request), milliseconds(0), false);
}

void HetcclBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  open(std::nullopt);  // on failure this names the missing ranks
  const milliseconds own(timeout_ms_.load());
  monitored_barrier_->pass(opts.timeout.count() > 0 ? opts.timeout : own, wait_all_ranks);
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::allreduce(Tensors& tensors,
                                                        const c10d::AllreduceOptions& opts) {
  check_one({"all_reduce", rank_}, tensors.size());
  if (tensors.front().defined() && tensors.front().layout() != at::kStrided) {
    return allreduce_sparse(tensors, opts);
  }
  c10d::AllreduceCoalescedOptions options;
  options.reduceOp = opts.reduceOp;
  options.timeout = opts.timeout;
  options.asyncOp = opts.asyncOp;
  return allreduce_coalesced(tensors, options);
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  const Where where{"all_reduce", rank_};
  check_lists(where, tensors.size(), tensors.size());
  Request request(tensors.size() == 1 ? c10d::OpType::ALLREDUCE : c10d::OpType::ALLREDUCE_COALESCED,
                  "hetccl:all_reduce", tensors, tensors);
  for (const at::Tensor& tensor : packed(where, request, tensors, Use::InOut)) {
    check_tensor(where, "tensor", tensor);
    void* const data = tensor.mutable_data_ptr();
    request.calls.emplace_back(hetcclCallAllReduce, reducible(where, tensor, opts.reduceOp), data,
                               data);
  }
  return submit(std::move(request), opts);
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::broadcast(Tensors& tensors,
                                                        const c10d::BroadcastOptions& opts) {
  const Where where{"broadcast", rank_};
  check_one(where, tensors.size());
  check_root(where.operation, opts.rootRank);
  Request request(c10d::OpType::BROADCAST, "hetccl:broadcast", tensors, tensors);
  const at::Tensor tensor = packed(where, request, tensors.front(), Use::InOut);
  check_tensor(where, "tensor", tensor);
  add_broadcast(request, tensor, static_cast<int>(opts.rootRank));
  return submit(std::move(request), opts);
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::reduce(Tensors& tensors,
                                                     const c10d::ReduceOptions& opts) {
  const Where where{"reduce", rank_};
  check_one(where, tensors.size());
  check_root(where.operation, opts.rootRank);
  Request request(c10d::OpType::REDUCE, "hetccl:reduce", tensors, tensors);
  const at::Tensor tensor = packed(where, request, tensors.front(), Use::InOut);
  check_tensor(where, "tensor", tensor);
  void* const data = tensor.mutable_data_ptr();
  request.calls.emplace_back(hetcclCallReduce, reducible(where, tensor, opts.reduceOp), data, data,
                             static_cast<int>(opts.rootRank));
  return submit(std::move(request), opts);
}

void HetcclBackend::add_broadcast(Request& request, const at::Tensor& tensor, int root) {
  void* const data = tensor.mutable_data_ptr();
  request.calls.emplace_back(hetcclCallBroadcast, movable(tensor), data, data, root);
}

void HetcclBackend::add_all_gather(Request& request, const char* name, const at::Tensor& output,
                                   const at::Tensor& input) const {
  const Where where{name, rank_};
  check_tensor(where, "the input", input);
  check_tensor(where, "the output", output);
  check_same_type(where, "the output", output, input);
  check_numel(where, "the output", output, size_ * input.numel(), "world size x input elements");
  request.calls.emplace_back(hetcclCallAllGather, movable(input), input.const_data_ptr(),
                             output.mutable_data_ptr());
}

void HetcclBackend::add_all_gather(Request& request, const char* name, const Tensors& outputs,
                                   const at::Tensor& input) const {
  check_parts({name, rank_}, "output", outputs, size_, "the input", input);
  const Flat flat(outputs);
  flat.spread(request, outputs);
  if (are_even(outputs)) return add_all_gather(request, name, flat.buffer(), input);
  request.calls.push_back(ApiCall(hetcclCallAllGatherV, movable(input), input.const_data_ptr(),
                                  flat.buffer().mutable_data_ptr())
                              .recv_counts(counts_of(outputs)));
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                              const c10d::AllgatherOptions& opts) {
  Request request(c10d::OpType::_ALLGATHER_BASE, "hetccl:all_gather_into_tensor", {input},
                  {output});
  constexpr const char* kCall = "all_gather_into_tensor";
  add_all_gather(request, kCall, packed({kCall, rank_}, request, output, Use::Out),
                 packed({kCall, rank_}, request, input, Use::In));
  return submit(std::move(request), opts);
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  constexpr const char* kCall = "all_gather_into_tensor_coalesced";
  check_lists({kCall, rank_}, outputs.size(), inputs.size());
  Request request(c10d::OpType::COALESCED, "hetccl:all_gather_into_tensor_coalesced", inputs,
                  outputs);
  const Tensors to = packed({kCall, rank_}, request, outputs, Use::Out);
  const Tensors from = packed({kCall, rank_}, request, inputs, Use::In);
  for (size_t i = 0; i < from.size(); ++i) add_all_gather(request, kCall, to[i], from[i]);
  return submit(std::move(request), opts);
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::allgather(std::vector<Tensors>& outputs,
                                                        Tensors& inputs,
                                                        const c10d::AllgatherOptions& opts) {
  const Where where{"all_gather", rank_};
  check_one(where, inputs.size());
  check_lists(where, outputs.size(), inputs.size());
  Request request(c10d::OpType::ALLGATHER, "hetccl:all_gather", inputs, outputs.front());
  add_all_gather(request, where.operation, local(where, request, outputs.front(), Use::Out),
                 packed(where, request, inputs.front(), Use::In));
  return submit(std::move(request), opts);
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::allgather_coalesced(
    std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  const Where where{"all_gather_coalesced", rank_};
  check_lists(where, outputs.size(), static_cast<size_t>(size_));
  Request request(c10d::OpType::ALLGATHER_COALESCED, "hetccl:all_gather_coalesced", inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensors parts;  // parts of input i, by rank; c10d passes one list per input
    for (const Tensors& of_rank : outputs) {
      check_lists(where, of_rank.size(), inputs.size());
      parts.push_back(of_rank[i]);
    }
    add_all_gather(request, where.operation, local(where, request, parts, Use::Out),
                   packed(where, request, inputs[i], Use::In));
    request.outputs.insert(request.outputs.end(), parts.begin(), parts.end());
  }
  return submit(std::move(request), opts);
}

void HetcclBackend::add_reduce_scatter(Request& request, const char* name, const at::Tensor& output,
                                       const at::Tensor& input,
                                       const c10d::ReduceOp& reduce_op) const {
  const Where where{name, rank_};
  check_tensor(where, "the input", input);
  check_tensor(where, "the output", output);
  check_same_type(where, "the output", output, input);
  check_numel(where, "the input", input, size_ * output.numel(), "world size x output elements");
  request.calls.emplace_back(hetcclCallReduceScatter, reducible(where, output, reduce_op),
                             input.const_data_ptr(), output.mutable_data_ptr());
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  Request request(c10d::OpType::_REDUCE_SCATTER_BASE, "hetccl:reduce_scatter_tensor", {input},
                  {output});
  constexpr const char* kCall = "reduce_scatter_tensor";
  add_reduce_scatter(request, kCall, packed({kCall, rank_}, request, output, Use::Out),
                     packed({kCall, rank_}, request, input, Use::In), opts.reduceOp);
  return submit(std::move(request), opts);
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) {
  constexpr const char* kCall = "reduce_scatter_tensor_coalesced";
  check_lists({kCall, rank_}, outputs.size(), inputs.size());
  Request request(reduce_scatter_coalesced_type(), "hetccl:reduce_scatter_tensor_coalesced", inputs,
                  outputs);
  const Tensors to = packed({kCall, rank_}, request, outputs, Use::Out);
  const Tensors from = packed({kCall, rank_}, request, inputs, Use::In);
  for (size_t i = 0; i < from.size(); ++i) {
    add_reduce_scatter(request, kCall, to[i], from[i], opts.reduceOp);
  }
  return submit(std::move(request), opts);
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::reduce_scatter(
    Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& opts) {
  const Where where{"reduce_scatter", rank_};
  check_one(where, outputs.size());
  check_lists(where, outputs.size(), inputs.size());
  Request request(c10d::OpType::REDUCE_SCATTER, "hetccl:reduce_scatter", inputs.front(), outputs);
  const at::Tensor output = packed(where, request, outputs.front(), Use::Out);
  const Tensors parts = local(where, request, inputs.front(), Use::In);
  check_parts(where, "input", parts, size_, "the output", output);
  const Flat flat(parts);
  flat.fill(parts);
  request.staging.push_back(flat.buffer());
  if (are_even(parts)) {
    add_reduce_scatter(request, where.operation, output, flat.buffer(), opts.reduceOp);
  } else {
    request.calls.push_back(ApiCall(hetcclCallReduceScatterV,
                                    reducible(where, output, opts.reduceOp),
                                    flat.buffer().const_data_ptr(), output.mutable_data_ptr())
                                .send_counts(counts_of(parts)));
  }
  return submit(std::move(request), opts);
}

c10::intrusive_ptr<c10d::Work> HetcclBackend::barrier(const c10d::BarrierOptions& opts) {
  Request request(c10d::OpType::BARRIER, "hetccl:barrier");
  open(opts.device);
  request.calls.emplace_back(hetcclCallBarrier, Elements{0, hetcclInt8}, nullptr, nullptr);
  return submit(std::move(request), opts);
}

}  // namespace hetccl::torch_backend
