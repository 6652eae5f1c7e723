#include "exec/job.h"

#include <cstring>

#include "ccl/host/host_library.h"
#include "device/host/host_device.h"
#include "fake/fake_device.h"
#include "fake/reaching_channel.h"
#include "fake/slow_host.h"
#include "verify/verify.h"

namespace hetccl::exec {

using fake::Case;
using fake::FakeDevice;

namespace {

bool is_fake(const JobOptions& options, int rank) {
  return options.fake_device && !options.hosts.contains(options.labels[static_cast<size_t>(rank)]);
}

bool is_direct(const JobOptions& options, int rank, int peer) {
  return !is_fake(options, rank) || (options.reach_devices && (rank + peer) % 2 == 0);
}

bool has_kernels(const JobOptions& options, int rank) {
  return !is_fake(options, rank) ||
         !options.without_kernels.contains(options.labels[static_cast<size_t>(rank)]);
}

topology::Topology topology_of(const JobOptions& options) {
  auto infos = fake::infos_of(options.labels);
  for (auto& info : infos) {
    info.kernels = has_kernels(options, info.rank);
    info.host_access = !is_fake(options, info.rank);
    const std::string& label = options.labels[static_cast<size_t>(info.rank)];
    info.library_exchanges = !options.without_exchange.contains(label);
  }
  return topology::Topology::build(std::move(infos)).value();
}

}  // namespace

std::unique_ptr<device::Device> make_device(const JobOptions& options, int rank,
                                            std::atomic<uint64_t>* copies) {
  const uint64_t seed = options.seed * 31 + static_cast<uint64_t>(rank);
  if (!options.fake_device) return device::make_host_device();
  if (!is_fake(options, rank)) return fake::make_slow_host(seed, copies);
  fake::FakeOptions fake;
  fake.seed = seed;
  fake.max_delay_us = 20;
  fake.memory_bytes = size_t{32} << 20;
  fake.kernels = has_kernels(options, rank);
  fake.one_queue = options.one_queue;
  auto device = FakeDevice::create(fake);
  return device.ok() ? std::unique_ptr<device::Device>(std::move(device).value()) : nullptr;
}

void upload(device::Device& device, void* to, const std::vector<std::byte>& from) {
  if (from.empty()) return;
  auto* fake = dynamic_cast<FakeDevice*>(&device);
  fake != nullptr ? fake->upload(to, from.data(), from.size())
                  : static_cast<void>(std::memcpy(to, from.data(), from.size()));
}

void download(device::Device& device, std::vector<std::byte>& to, const void* from) {
  if (to.empty()) return;
  auto* fake = dynamic_cast<FakeDevice*>(&device);
  fake != nullptr ? fake->download(to.data(), from, to.size())
                  : static_cast<void>(std::memcpy(to.data(), from, to.size()));
}

JobRank::JobRank(int rank, const topology::Topology& topology, const JobOptions& options,
                 fake::Network& network)
    : rank_(rank),
      topology_(topology),
      options_(options),
      device_(make_device(options, rank, &copies_)),
      transport_(network.transport(rank)),
      engine_(std::move(progress::Engine::create(steady_clock())).value()),
      library_(ccl::make_host_library()) {
  engine_->use(*transport_);
  engine_->use(*device_);
}

JobRank::~JobRank() {
  if (executor_ != nullptr) engine_->remove(*executor_);
  executor_.reset();
  for (auto& buffers : buffers_) {
    device_->free(buffers.recv);
    if (!buffers.test.in_place) device_->free(buffers.send);
  }
  for (auto& stream : streams_) stream.reset();
  engine_.reset();
}

Status JobRank::open(const ccl::UniqueId& cluster_id) {
  const auto& cluster = topology_.clusters()[static_cast<size_t>(topology_.cluster_of(rank_))];
  HETCCL_ASSIGN(ccl_,
                library_->init(cluster_id, static_cast<int>(cluster.ranks.size()),
                               topology_.local_rank(rank_), &engine_->waker(), fake::kHangMs));
  if (options_.late_abort) {
    auto late = std::make_unique<fake::LateAbort>(std::move(ccl_));
    late_ = late.get();
    ccl_ = std::move(late);
  }
  ExecutorOptions options;
  options.device = device_.get();
  options.ccl = ccl_.get();
  options.collectives = 1;
  options.n_ranks = topology_.n_ranks();
  options.local_rank = topology_.local_rank(rank_);
  options.windows = options_.window > 0;
  if (topology_.clusters().size() == 1) options.settler = settler_.get();
  options.on_timed = [this](uint64_t sequence, Duration took, TimePoint) {
    timed_.push_back({sequence, took});
  };
  options.on_fault = [this](const Fault& fault) {
    std::lock_guard lock(fault_mutex_);
    fault_ = fault.status;
  };
  HETCCL_ASSIGN(executor_, Executor::create(std::move(options)));
  for (int peer = 0; peer < topology_.n_ranks(); ++peer) {
    if (peer == rank_) continue;
    const bool shares = is_fake(options_, rank_) || is_fake(options_, peer);
    const size_t wanted = shares ? options_.window : 0;
    HETCCL_ASSIGN(auto channel,
                  transport_->connect({1, rank_, peer, wanted}, {}, {}, fake::kHangMs));
    Window* window = nullptr;
    if (!channel->window().empty()) {
      HETCCL_ASSIGN(auto opened, Window::open(*device_, channel->window(), rank_ < peer));
      window = (windows_[peer] = std::move(opened)).get();
    }
    const bool crosses = topology_.cluster_of(peer) != topology_.cluster_of(rank_);
    const bool direct = is_direct(options_, rank_, peer);
    if (direct && is_fake(options_, rank_)) {
      channel = std::make_unique<fake::ReachingChannel>(std::move(channel),
                                                        dynamic_cast<FakeDevice&>(*device_));
    }
    executor_->connect({peer, channel.get(), crosses, window, direct});
    channels_.push_back(std::move(channel));
  }
  for (auto& stream : streams_) {
    HETCCL_ASSIGN(stream, device_->create_stream());
  }
  engine_->add(*executor_, {});
  return {};
}

Status JobRank::enqueue(const Case& test) {
  const size_t width = size_of(test.signature.type);
  const fake::InPlace shared = in_place(test, rank_);
  Buffers buffers{test,
                  nullptr,
                  nullptr,
                  send_elements(test, rank_) * width,
                  recv_elements(test, rank_) * width,
                  shared.recv * width};
  // In place: one allocation, the smaller buffer at this rank's block of the larger.
  const size_t whole = std::max(buffers.send_bytes, buffers.recv_bytes);
  HETCCL_ASSIGN(buffers.recv, device_->allocate(std::max<size_t>(whole, 1)));
  buffers.send = buffers.recv;
  if (!test.in_place) {
    HETCCL_ASSIGN(buffers.send, device_->allocate(std::max<size_t>(buffers.send_bytes, 1)));
  }
  auto* send_at = static_cast<std::byte*>(buffers.send) + shared.send * width;
  auto* recv_at = static_cast<std::byte*>(buffers.recv) + buffers.recv_at;
  upload(*device_, send_at, input_of(test, rank_));
  buffers_.push_back(buffers);

  plan::Spec spec = plan::spec_of(test.signature, topology_);
  if (options_.last_algorithm) spec.algorithm = plan::find_algorithms(spec, topology_).back()->id;
  HETCCL_ASSIGN(auto plan, plan::plan(rank_, spec, topology_));
  programs_.push_back(std::make_unique<Program>(std::move(plan)));
  const auto sent = send_counts(test, rank_), received = recv_counts(test, rank_);
  const auto from = fake::packed(sent), to = fake::packed(received);
  const bool uneven = test.signature.uneven;
  const Call call{
      .send = send_at,
      .recv = receives(test, rank_) ? recv_at : nullptr,
      .signature = test.signature,
      .factor = factor_of(test, rank_),
      .sequence = programs_.size() - 1,
      .deadline = steady_clock().now() + options_.deadline,
      .launched = steady_clock().now(),
      .input = uneven ? Layout{sent, from} : Layout{},
      .output = uneven ? Layout{received, to} : Layout{},
      .timed = options_.timed_every > 0 && (programs_.size() - 1) % options_.timed_every == 0};
  HETCCL_ASSIGN(last_, executor_->launch(*programs_.back(), {options_.slice_bytes, options_.depth},
                                         call, *streams_[call.sequence % streams_.size()]));
  executor_->urgent() ? engine_->notify() : engine_->notify_later();
  return {};
}

Status JobRank::wait() {
  const auto done = [&] {
    std::lock_guard lock(fault_mutex_);
    return last_.done() || !fault_.ok();
  };
  if (!engine_->wait(done, steady_clock().now() + fake::kHang)) {
    return error(ErrorCode::Timeout, "the test's own deadline");
  }
  std::lock_guard lock(fault_mutex_);
  return fault_;
}

std::vector<std::byte> JobRank::result(size_t index) {
  const Buffers& buffers = buffers_[index];
  if (!receives(buffers.test, rank_)) return {};
  std::vector<std::byte> bytes(buffers.recv_bytes);
  download(*device_, bytes, static_cast<const std::byte*>(buffers.recv) + buffers.recv_at);
  return bytes;
}

// The test has windows and transports of its own.
std::string JobRank::find_unproven_target() const {
  for (const auto& program : programs_) {
    if (!program->is_bound()) continue;  // never launched: this rank is alone
    lower::Target proven = verify::target_of(topology_, rank_, program->plan());
    for (lower::Reach& lane : proven.lanes) {
      const auto window = windows_.find(lane.peer);
      lane.direct = is_direct(options_, rank_, lane.peer);
      lane.ring_bytes = window == windows_.end() ? 0 : window->second->ring_bytes();
    }
    if (proven != program->target()) return program->plan().name;
  }
  return "";
}

void JobRank::abort() {
  engine_->exclusively([&] { executor_->abort(); });
  engine_->notify();
}

void JobRank::enter_abort() {
  late_->enter_abort();
  engine_->notify();
}

std::string JobRank::describe_oldest() {
  std::string text;
  engine_->exclusively([&] { text = executor_->describe_oldest(); });
  return text;
}

bool JobRank::drained() {
  return engine_->wait([&] { return executor_->idle(); }, steady_clock().now() + fake::kHang);
}

Job::Job(JobOptions options)
    : options_(std::move(options)), topology_(topology_of(options_)), network_(options_.seed) {
  auto library = ccl::make_host_library();
  std::vector<ccl::UniqueId> ids;
  for (const auto& cluster : topology_.clusters()) {
    auto id = library->unique_id(static_cast<int>(cluster.ranks.size()), fake::kHangMs);
    if (!id.ok()) opened_ = id.status();
    ids.push_back(id.ok() ? id.value() : ccl::UniqueId{});
  }
  for (int rank = 0; rank < topology_.n_ranks(); ++rank) {
    ranks_.push_back(std::make_unique<JobRank>(rank, topology_, options_, network_));
  }
  std::mutex mutex;
  on_all_ranks(n_ranks(), [&](int r) {
    const Status status = rank(r).open(ids[static_cast<size_t>(topology_.cluster_of(r))]);
    std::lock_guard lock(mutex);
    if (!status.ok()) opened_ = status;
  });
}

Job::~Job() = default;

std::string Job::run(const std::vector<Case>& tests) {
  std::mutex mutex;
  std::string wrong;
  on_all_ranks(n_ranks(), [&](int r) {
    Status status;
    for (const auto& test : tests) {
      if (status.ok()) status = rank(r).enqueue(test);
    }
    if (status.ok()) status = rank(r).wait();
    std::lock_guard lock(mutex);
    if (!status.ok()) wrong = format("rank %d: %s", r, status.message().c_str());
  });
  if (!wrong.empty()) return wrong;
  for (int r = 0; r < n_ranks(); ++r) {
    const std::string unproven = rank(r).find_unproven_target();
    if (!unproven.empty()) return format("rank %d runs %s unproven", r, unproven.c_str());
  }
  for (size_t t = 0; t < tests.size(); ++t) {
    std::vector<std::vector<std::byte>> inputs;
    for (int r = 0; r < n_ranks(); ++r) inputs.push_back(input_of(tests[t], r));
    for (int r = 0; r < n_ranks(); ++r) {
      if (rank(r).result(t) == expected_of(tests[t], r, inputs)) continue;
      return format("rank %d has a wrong result: %s", r, tests[t].text().c_str());
    }
  }
  return "";
}

}  // namespace hetccl::exec
