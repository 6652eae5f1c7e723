// Messages between two ranks on the asynchronous fake device and on the host device, over the fake
// network. HETCCL_TEST_SEED replays one seed, HETCCL_TEST_SCALE multiplies their number.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "ccl/host/host_library.h"
#include "exec/executor.h"
#include "exec/job.h"
#include "fake/fake_device.h"
#include "fake/patience.h"
#include "fake/reaching_channel.h"
#include "fake/reference.h"
#include "fake/thread.h"
#include "plan/message.h"
#include "verify/verify.h"

namespace {

using namespace hetccl;
using exec::Executor;
using exec::Message;
using Bytes = std::vector<std::byte>;

constexpr auto kLimit = fake::kHang;
TimePoint shortly() {
  return steady_clock().now() + fake::patient(std::chrono::milliseconds(200));
}

// One message of a pattern that all ranks know.
struct Letter {
  int from, to;
  uint64_t count;
  DataType type;
  uint64_t number;
  [[nodiscard]] size_t bytes() const { return count * size_of(type); }
  [[nodiscard]] Bytes contents() const {
    Bytes contents(bytes());
    fake::fill(contents.data(), contents.size(), number);
    return contents;
  }
};
using Round = std::vector<Letter>;  // the messages of one call of each rank

class Rank {
 public:
  Rank(int rank, const exec::JobOptions& options, fake::Network& network,
       const topology::Topology& topology)
      : rank_(rank),
        is_fake_(options.fake_device),
        reach_devices_(options.reach_devices),
        device_(exec::make_device(options, rank)),
        transport_(network.transport(rank)),
        engine_(std::move(progress::Engine::create(steady_clock())).value()) {
    engine_->use(*transport_);
    engine_->use(*device_);
    exec::ExecutorOptions with;
    with.device = device_.get();
    with.topology = &topology;
    with.messages = 7;
    with.rank = rank;
    with.local_rank = topology.local_rank(rank);
    with.on_fault = [this](const exec::Fault& fault) {
      std::lock_guard lock(mutex_);
      fault_ = fault.status;
    };
    executor_ = std::move(Executor::create(std::move(with))).value();
    stream_ = std::move(device_->create_stream()).value();
    engine_->add(*executor_, {});
  }
  ~Rank() {
    engine_->remove(*executor_);
    executor_.reset();
    for (const auto& [memory, letter] : received_) device_->free(memory);
    for (void* memory : sent_) device_->free(memory);
    stream_.reset();
    engine_.reset();
  }

  /// Returns the same as the transports of exec::Job.
  [[nodiscard]] bool is_direct(int peer) const {
    return !is_fake_ || (reach_devices_ && (rank_ + peer) % 2 == 0);
  }
  Status meet(int peer) {
    HETCCL_ASSIGN(auto ends,
                  executor_->make_ends(
                      {.rank = peer, .window = windows_[peer].get(), .direct = is_direct(peer)}));
    engine_->exclusively([&] { executor_->meet(peer, std::move(ends)); });
    return {};
  }
  // A channel of its own for the memory that both share, as that of the collectives.
  Status share(int peer, size_t bytes) {
    if (bytes == 0) return {};
    HETCCL_ASSIGN(auto channel,
                  transport_->connect({1, rank_, peer, bytes}, {}, {}, fake::kHangMs));
    HETCCL_ASSIGN(windows_[peer], exec::Window::open(*device_, channel->window(), rank_ < peer));
    channels_.push_back(std::move(channel));
    return {};
  }
  Status connect(int peer) {
    HETCCL_ASSIGN(auto channel, transport_->connect({7, rank_, peer}, {}, {}, fake::kHangMs));
    if (is_fake_ && is_direct(peer)) {
      channel = std::make_unique<fake::ReachingChannel>(std::move(channel),
                                                        dynamic_cast<fake::FakeDevice&>(*device_));
    }
    engine_->exclusively([&] {
      executor_->connect({.rank = peer, .channel = channel.get(), .for_messages = true});
    });
    channels_.push_back(std::move(channel));
    engine_->notify();
    return {};
  }

  /// Whether messages with `peer` run as they are proven. The window is the test's.
  [[nodiscard]] bool runs_as_proven(int peer, const topology::Topology& topology, bool by_library) {
    for (const bool send : {false, true}) {
      const int from = send ? rank_ : peer, to = send ? peer : rank_;
      const auto plan = by_library ? plan::plan_message_by_library(rank_, from, to)
                                   : plan::plan_message(rank_, from, to, topology);
      lower::Target proven = verify::target_of_message(topology, rank_, plan, by_library);
      if (!by_library) {
        proven.lanes[0].direct = is_direct(peer);
        if (windows_[peer] != nullptr) proven.lanes[0].ring_bytes = windows_[peer]->ring_bytes();
      }
      if (proven != executor_->message_target(peer, send, by_library)) return false;
    }
    return true;
  }

  /// Has communicators of this rank and `peer` carry messages from `ids[0]`'s side, the lower
  /// rank's, and to it, once both ends agree.
  Status use_libraries(int peer, const std::array<ccl::UniqueId, 2>& ids) {
    for (const size_t direction : {size_t{0}, size_t{1}}) {
      HETCCL_ASSIGN(auto pair, library_->init(ids[direction], 2, rank_ < peer ? 0 : 1,
                                              &engine_->waker(), fake::kHangMs));
      const bool send = (direction == 0) == (rank_ < peer);
      HETCCL_ASSIGN(auto library, executor_->make_library(peer, send));
      engine_->exclusively([&] { executor_->use_library(peer, send, std::move(library), *pair); });
      pairs_.push_back(std::move(pair));
    }
    return {};
  }
  exec::Route& route(int peer, bool send) {
    exec::Route* route = nullptr;
    engine_->exclusively([&] { route = &executor_->route(peer, send); });
    return *route;
  }

  Status call(const Round& round, bool streamed, TimePoint deadline) {
    std::vector<Message> messages;
    for (const Letter& letter : round) {
      for (const bool send : {true, false}) {
        if ((send ? letter.from : letter.to) != rank_) continue;
        HETCCL_ASSIGN(void* memory, device_->allocate(std::max<size_t>(letter.bytes(), 1)));
        if (send) {
          exec::upload(*device_, memory, letter.contents());
          sent_.push_back(memory);
        } else {
          received_.emplace_back(memory, letter);
        }
        messages.push_back(
            {send, send ? letter.to : letter.from, memory, letter.type, letter.count});
      }
    }
    HETCCL_ASSIGN(last_, executor_->launch(messages, steady_clock().now(), deadline,
                                           streamed ? stream_.get() : nullptr));
    engine_->notify();
    return {};
  }
  bool done() {
    return engine_->wait([&] { return last_.done(); }, end());
  }
  bool drained() {
    return engine_->wait([&] { return executor_->idle(); }, end());
  }
  Status fault() {
    std::lock_guard lock(mutex_);
    return fault_;
  }
  Status wait_for_fault() {
    engine_->wait([&] { return !fault().ok(); }, end());
    return fault();
  }
  void abort() {
    engine_->exclusively([&] { executor_->abort(); });
    engine_->notify();
  }
  /// Describes received data that differs from the sent; "" if none does.
  std::string differences() {
    for (const auto& [memory, letter] : received_) {
      Bytes got(letter.bytes());
      exec::download(*device_, got, memory);
      if (!fake::equal(got, letter.contents()))
        return format("message %llu", (unsigned long long)letter.number);
    }
    return "";
  }
  [[nodiscard]] uint64_t bytes_sent() const { return executor_->bytes_sent(); }

 private:
  static TimePoint end() { return steady_clock().now() + kLimit; }

  int rank_;
  const bool is_fake_, reach_devices_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<transport::Transport> transport_;
  std::unique_ptr<progress::Engine> engine_;
  std::vector<std::unique_ptr<transport::Channel>> channels_;
  std::map<int, std::unique_ptr<exec::Window>> windows_;
  std::unique_ptr<ccl::Library> library_ = ccl::make_host_library();
  std::vector<std::unique_ptr<ccl::Communicator>> pairs_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<device::Stream> stream_;
  std::vector<std::pair<void*, Letter>> received_;
  std::vector<void*> sent_;
  exec::Ticket last_;
  std::mutex mutex_;
  Status fault_;
};

struct Ranks {
  Ranks(int n, uint64_t seed, bool fake_device, bool one_queue = false, size_t window = 0,
        bool reach_devices = false)
      : network(seed) {
    options.reach_devices = reach_devices;
    options.seed = seed;
    options.window = window;
    options.fake_device = fake_device;
    options.one_queue = one_queue;
    std::vector<topology::RankInfo> infos(static_cast<size_t>(n));
    for (int rank = 0; rank < n; ++rank) {
      infos[static_cast<size_t>(rank)].rank = rank;
      infos[static_cast<size_t>(rank)].host_access = !fake_device;
    }
    topology = topology::Topology::build(std::move(infos)).value();
    for (int rank = 0; rank < n; ++rank) {
      all.push_back(std::make_unique<Rank>(rank, options, network, topology));
    }
  }
  // Every pair, on a thread of each rank.
  void connect_all() {
    exec::on_all_ranks(n(), [&](int rank) {
      for (int peer = 0; peer < n(); ++peer) {
        if (peer == rank) continue;
        Status status = (*this)[rank].share(peer, options.window);
        if (status.ok()) status = (*this)[rank].meet(peer);
        if (status.ok()) status = (*this)[rank].connect(peer);
        if (status.ok()) CHECK((*this)[rank].runs_as_proven(peer, topology, false));
        if (!status.ok()) FAIL_CHECK("rank " << rank << ", " << peer << ": " << status.message());
      }
    });
  }
  // Every pair, on a thread of each rank.
  void use_libraries() {
    const auto library = ccl::make_host_library();
    std::map<std::pair<int, int>, std::array<ccl::UniqueId, 2>> ids;
    for (int high = 0; high < n(); ++high) {
      for (int low = 0; low < high; ++low) {
        ids[{low, high}] = {library->unique_id(2, fake::kHangMs).value(),
                            library->unique_id(2, fake::kHangMs).value()};
      }
    }
    exec::on_all_ranks(n(), [&](int rank) {
      for (int peer = 0; peer < n(); ++peer) {
        if (peer == rank) continue;
        const Status status = (*this)[rank].use_libraries(peer, ids.at(std::minmax({rank, peer})));
        if (status.ok()) CHECK((*this)[rank].runs_as_proven(peer, topology, true));
        if (!status.ok()) FAIL_CHECK("rank " << rank << ", " << peer << ": " << status.message());
      }
    });
  }
  // Lets both ends agree on the first message of the library, as two ranks of a job do.
  void agree(int from, int to) {
    exec::Route &sender = (*this)[from].route(to, true), &receiver = (*this)[to].route(from, false);
    const uint64_t sent = sender.propose();
    const uint64_t first = std::max(sent, receiver.propose());
    sender.settle(first);
    receiver.settle(first);
  }
  void agree_all() {
    for (int from = 0; from < n(); ++from) {
      for (int to = 0; to < n(); ++to) {
        if (from != to) agree(from, to);
      }
    }
  }
  [[nodiscard]] int n() const { return static_cast<int>(all.size()); }
  Rank& operator[](int rank) { return *all[static_cast<size_t>(rank)]; }

  exec::JobOptions options;
  topology::Topology topology;
  fake::Network network;
  std::vector<std::unique_ptr<Rank>> all;
};

using Calls = std::array<std::vector<std::pair<Round, bool>>, 2>;  // by rank; whether streamed
void check_calls(Ranks&& ranks, const Calls& calls) {
  ranks.connect_all();
  exec::on_all_ranks(2, [&](int r) {
    for (const auto& [round, streamed] : calls[static_cast<size_t>(r)])
      CHECK(ranks[r].call(round, streamed, steady_clock().now() + kLimit).ok());
    CHECK(ranks[r].drained());
    CHECK(ranks[r].differences() == "");
  });
}

std::vector<Round> random_rounds(std::mt19937_64& random, int n) {
  static constexpr DataType kTypes[] = {DataType::Int8, DataType::BFloat16, DataType::Float64};
  std::vector<Round> rounds(1 + random() % 5);
  uint64_t number = 0;
  const auto rank = [&] { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  for (Round& round : rounds) {
    for (uint64_t i = random() % 8; i > 0; --i) {
      const uint64_t count = random() % 4 == 0 ? 0 : random() % 5000;
      round.push_back({rank(), rank(), count, kTypes[random() % 3], number++});
    }
  }
  return rounds;
}

std::string random_messages(uint64_t seed, bool fake_device) {
  std::mt19937_64 random(seed);
  const int n = 1 + static_cast<int>(random() % 4);
  const bool one_queue = random() % 4 == 0;
  // Small: rings are full most of the time.
  const bool shares = fake_device && random() % 2 == 0;
  const size_t window = shares ? 4096 + 2 * (size_t{2} << (10 + random() % 3)) : 0;
  const bool reach_devices = random() % 3 == 0;
  Ranks ranks(n, seed, fake_device, one_queue, window, reach_devices);
  ranks.connect_all();
  const auto rounds = random_rounds(random, n);
  const bool streamed = random() % 2 == 0;
  // From some message on, which the seed does not decide.
  const bool by_library = fake_device && !one_queue && random() % 2 == 0;
  if (by_library) ranks.use_libraries();
  fake::Thread agreeing([&] {
    if (by_library) ranks.agree_all();
  });
  std::mutex mutex;
  std::string wrong;
  exec::on_all_ranks(n, [&](int r) {
    std::string mine;
    for (const Round& round : rounds) {
      const Status status = ranks[r].call(round, streamed, steady_clock().now() + kLimit);
      if (!status.ok()) mine = status.message();
    }
    if (!ranks[r].done() || !ranks[r].drained())
      mine = "not complete: " + ranks[r].fault().message();
    if (mine.empty()) mine = ranks[r].differences();
    std::lock_guard lock(mutex);
    if (!mine.empty()) wrong = format("rank %d: %s", r, mine.c_str());
  });
  agreeing.join();
  return wrong;
}

// Two ranks, whose message has another length at its other end.
void check_disagreement(Ranks& ranks, bool streamed) {
  const auto deadline = steady_clock().now() + kLimit;
  CHECK(ranks[0].call({{0, 1, 12, DataType::Float32, 0}}, streamed, deadline).ok());
  CHECK(ranks[1].call({{0, 1, 10, DataType::Float32, 0}}, streamed, deadline).ok());
  const Status fault = ranks[1].wait_for_fault();
  CHECK(fault.code() == ErrorCode::InvalidUsage);
  for (int r = 0; r < 2; ++r) {
    ranks[r].abort();
    CHECK(ranks[r].drained());
  }
}

// ThreadSanitizer is slow, and a few cases are enough for it.
constexpr uint64_t kMessageJobs = 30;
#if defined(HETCCL_UNDER_TSAN)
constexpr uint64_t kOneIn = 3;
#else
constexpr uint64_t kOneIn = 2;
#endif

}  // namespace

TEST_CASE("random messages arrive as they were sent") {
  for (const uint64_t seed : fake::sampled_seeds(kMessageJobs, kOneIn)) {
    for (const bool fake_device : {true, false}) {
      CAPTURE(seed);
      CAPTURE(fake_device);
      REQUIRE(random_messages(seed, fake_device) == "");
    }
  }
}

TEST_CASE("a message of more slices than its staging memory, or its ring, holds") {
  struct Kind {
    bool fake_device;
    size_t window;
  };
  for (const auto& [fake_device, window] :
       {Kind{true, 0}, Kind{false, 0}, Kind{true, size_t{2} << 20U}}) {
    Ranks ranks(2, 3, fake_device, false, window);
    ranks.connect_all();
    const Round round = {{0, 1, (size_t{22} << 20U) + 5, DataType::Int8, 0},
                         {1, 0, 1000, DataType::Float32, 1}};
    exec::on_all_ranks(2, [&](int r) {
      CHECK(ranks[r].call(round, true, steady_clock().now() + kLimit).ok());
      CHECK(ranks[r].done());
      CHECK(ranks[r].differences() == "");
    });
    CHECK(ranks[0].bytes_sent() == round[0].bytes());
    CHECK(ranks[1].bytes_sent() == round[1].bytes());
  }
}

TEST_CASE("where all streams are one queue, what is sent holds up no receive behind it") {
  const Letter a = {0, 1, size_t{9} << 20U, DataType::Int8, 0};
  const Letter b = {1, 0, size_t{9} << 20U, DataType::Int8, 1};
  check_calls({2, 4, true, true}, {{{{{a}, true}, {{b}, true}}, {{{b}, true}, {{a}, true}}}});
}

// A call of short messages has no streams of its own, one of longer ones has.
TEST_CASE("what one call sends is there before what it receives, which answers it") {
  for (const uint64_t n : {1000U, 16U << 10U, 20'000U}) {
    const Letter a = {0, 1, n, DataType::Int8, 0}, b = {0, 1, n, DataType::Int8, 1};
    const Letter answer = {1, 0, n, DataType::Int8, 2};
    const Calls calls = {{{{{a, b, answer}, true}}, {{{a, b}, true}, {{answer}, true}}}};
    for (const size_t window : {0U, 2U << 20U}) check_calls({2, 3, true, false, window}, calls);
  }
}

TEST_CASE("a call receives though there is no room for what it sends") {
  for (const uint64_t n : {1000U, 16U << 10U, 20'000U}) {
    Calls calls;
    for (const int r : {0, 1}) {
      const auto letter = [&](int from, uint64_t i) {
        return Letter{from, 1 - from, n, DataType::Int8, static_cast<uint64_t>(from) * 1000 + i};
      };
      for (uint64_t i = 0; i <= 200; ++i) {
        const Round both = {letter(r, 100), letter(1 - r, 0)};
        const Round one = {i < 100 ? letter(r, i) : letter(1 - r, i - 100)};
        calls[static_cast<size_t>(r)].emplace_back(i == 100 ? both : one, i == 100);
      }
    }
    check_calls({2, 3, true, false, size_t{2} << 20U}, calls);
  }
}

TEST_CASE("more messages between two ranks in one call than may be in flight otherwise") {
  for (const bool fake_device : {true, false}) {
    Ranks ranks(2, 6, fake_device);
    ranks.connect_all();
    Round round;
    for (uint64_t number = 0; number < 1500; ++number) {
      round.push_back({static_cast<int>(number % 2), static_cast<int>(1 - number % 2), number % 7,
                       DataType::Int8, number});
    }
    exec::on_all_ranks(2, [&](int r) {
      CHECK(ranks[r].call(round, !fake_device, steady_clock().now() + kLimit).ok());
      CHECK(ranks[r].done());
      CHECK(ranks[r].differences() == "");
    });
  }
}

TEST_CASE("a message waits for its channel, and holds up no other") {
  Ranks ranks(3, 5, true);
  for (int rank = 0; rank < 3; ++rank) {
    for (int peer = 0; peer < 3; ++peer) {
      if (peer != rank) CHECK(ranks[rank].meet(peer).ok());
    }
  }
  const auto deadline = steady_clock().now() + kLimit;
  // Rank 0 sends to 1, which cannot hear it yet, and then to 2.
  const Round first = {{0, 1, 100, DataType::Float32, 0}}, second = {{0, 2, 50, DataType::Int8, 1}};
  CHECK(ranks[0].call(first, false, deadline).ok());
  CHECK(ranks[0].call(second, false, deadline).ok());
  CHECK(ranks[2].call(second, false, deadline).ok());
  exec::on_all_ranks(3, [&](int r) {
    if (r != 1) CHECK(ranks[r].connect(2 - r).ok());
  });
  CHECK(ranks[0].done());
  CHECK(ranks[2].done());
  CHECK(ranks[1].call(first, false, deadline).ok());
  exec::on_all_ranks(2, [&](int r) { CHECK(ranks[r].connect(1 - r).ok()); });
  CHECK(ranks[1].done());
  CHECK(ranks[0].drained());
  CHECK(ranks[1].differences() + ranks[2].differences() == "");
}

TEST_CASE("a receive that nobody sends to times out by name, and abort ends it") {
  for (const bool fake_device : {true, false}) {
    for (const bool streamed : {true, false}) {
      Ranks ranks(2, 9, fake_device);
      ranks.connect_all();
      const Round round = {{1, 0, 10, DataType::Float32, 0}};
      CHECK(ranks[0].call(round, streamed, shortly()).ok());
      const Status fault = ranks[0].wait_for_fault();
      CHECK(fault.code() == ErrorCode::Timeout);
      CHECK(fault.message().find("recv of 10 float32 from rank 1 timed out") != std::string::npos);
      CHECK(fault.message().find("rank 1 has not sent it") != std::string::npos);
      ranks[0].abort();
      CHECK(ranks[0].drained());
    }
  }
}

TEST_CASE("a send that waits for room in a window ends with an abort, at either end") {
  for (const bool answers : {true, false}) {
    CAPTURE(answers);
    Ranks ranks(2, 13, true, false, 4096 + 2 * 4096);
    ranks.connect_all();
    const Round round = {{0, 1, 100'000, DataType::Int8, 0}};
    CHECK(ranks[0].call(round, true, steady_clock().now() + kLimit).ok());
    ranks[0].abort();
    if (answers) ranks[1].abort();
    CHECK(ranks[0].drained());
  }
}

TEST_CASE("ends that disagree are an error") {
  Ranks ranks(2, 11, false);
  ranks.connect_all();
  check_disagreement(ranks, false);
}

TEST_CASE("messages go by the library from the number on which both ends have agreed") {
  Ranks ranks(2, 15, true);
  ranks.connect_all();
  ranks.use_libraries();
  const auto deadline = steady_clock().now() + kLimit;
  const auto letter = [](uint64_t number) {
    return Round{{0, 1, 1000 + number, DataType::Int8, number}};
  };
  // The sender is three calls ahead, and waits in its fourth until it knows how that one goes.
  for (uint64_t number = 0; number < 3; ++number) {
    CHECK(ranks[0].call(letter(number), false, deadline).ok());
  }
  CHECK(ranks[1].call(letter(0), false, deadline).ok());
  CHECK(ranks[0].route(1, true).propose() == 3);
  fake::Thread ahead([&] {
    for (uint64_t number = 3; number < 5; ++number)
      CHECK(ranks[0].call(letter(number), true, deadline).ok());
  });
  CHECK(ranks[1].route(0, false).propose() == 1);
  for (int r = 0; r < 2; ++r) ranks[r].route(1 - r, r == 0).settle(3);
  ahead.join();
  for (uint64_t number = 1; number < 5; ++number)
    CHECK(ranks[1].call(letter(number), true, deadline).ok());
  for (int r = 0; r < 2; ++r) {
    CHECK(ranks[r].done());
    CHECK(ranks[r].drained());
  }
  CHECK(ranks[1].differences() == "");
  CHECK(ranks[0].bytes_sent() == 1000 + 1001 + 1002);  // the rest did not go through the channel
}

TEST_CASE("by the library, too, a message without its other end times out by name") {
  for (const bool sends : {true, false}) {
    Ranks ranks(2, 17, true);
    ranks.connect_all();
    ranks.use_libraries();
    ranks.agree_all();
    const Round round = {{sends ? 0 : 1, sends ? 1 : 0, 10, DataType::Float32, 0}};
    CHECK(ranks[0].call(round, true, shortly()).ok());
    const Status fault = ranks[0].wait_for_fault();
    CHECK(fault.code() == ErrorCode::Timeout);
    CHECK(fault.message().find(sends ? "rank 1 has not received it" : "rank 1 has not sent it") !=
          std::string::npos);
    ranks[0].abort();
    CHECK(ranks[0].drained());
  }
}

TEST_CASE("by the library, too, ends that disagree are an error") {
  Ranks ranks(2, 19, true);
  ranks.connect_all();
  ranks.use_libraries();
  ranks.agree_all();
  check_disagreement(ranks, true);
}

TEST_CASE("who waits for the ends to agree is let go by an abort, and at its deadline") {
  for (const bool aborts : {true, false}) {
    Ranks ranks(2, 21, true);
    ranks.connect_all();
    ranks.use_libraries();
    CHECK(ranks[0].route(1, true).propose() == 0);
    const auto limit = aborts ? kLimit : std::chrono::milliseconds(50);
    fake::Thread waiting([&] {
      const Status status =
          ranks[0].call({{0, 1, 10, DataType::Int8, 0}}, true, steady_clock().now() + limit);
      CHECK(status.code() == (aborts ? ErrorCode::Aborted : ErrorCode::Timeout));
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (aborts) ranks[0].abort();
    waiting.join();
  }
}
