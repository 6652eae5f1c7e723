// Rules for `exchange` that every Library of the ccl seam which supports it must follow.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "ccl/ccl.h"
#include "contract/ccl_ranks.h"
#include "fake/reference.h"
#include "fake/thread.h"

using namespace hetccl;
using namespace hetccl::ccl;
using namespace hetccl::contract;

namespace {

// One message as a test knows it: both ends and the number of its content.
struct Message {
  int from = 0, to = 0;
  size_t count = 0;
};

// Makes `messages` out of the part that one rank has in them, and checks what arrives. Each rank
// lists its messages in an order of its own; those between two ranks keep theirs.
class Sent {
 public:
  Sent(Rank& self, std::vector<Message> messages, DataType type, uint64_t call)
      : self_(self), messages_(std::move(messages)), type_(type), call_(call) {
    std::vector<std::vector<Transfer>> lists(static_cast<size_t>(2 * self.size));
    for (size_t m = 0; m < messages_.size(); ++m) {
      const Message& one = messages_[m];
      if (one.from == self.rank)
        list(lists, one.to, true).push_back({one.to, true, self.place(content(m)), one.count});
      if (one.to == self.rank) {
        results_[m] = self.place(Bytes(one.count * size_of(type)));
        list(lists, one.from, false).push_back({one.from, false, results_[m], one.count});
      }
    }
    std::mt19937_64 random(call * 7 + static_cast<uint64_t>(self.rank));
    while (!lists.empty()) {
      auto& next = lists[random() % lists.size()];
      if (next.empty()) {
        std::swap(next, lists.back());
        lists.pop_back();
        continue;
      }
      transfers_.push_back(next.front());
      next.erase(next.begin());
    }
  }

  void enqueue() { need(self_.comm->exchange(transfers_, type_, self_.native()), "exchange"); }
  // Once the device has run it.
  void check() const {
    for (const auto& [m, memory] : results_) {
      const Bytes want = content(m);
      need(fake::equal(self_.fetch(memory, want.size()), want),
           "message " + std::to_string(m) + " of exchange " + std::to_string(call_) + ", from " +
               std::to_string(messages_[m].from) + " to " + std::to_string(messages_[m].to) +
               ", is wrong");
    }
  }

 private:
  static std::vector<Transfer>& list(std::vector<std::vector<Transfer>>& lists, int peer,
                                     bool send) {
    return lists[static_cast<size_t>(2 * peer + (send ? 1 : 0))];
  }
  [[nodiscard]] Bytes content(size_t m) const {
    Bytes content(messages_[m].count * size_of(type_));
    fake::fill(content.data(), content.size(), call_ * 100'000 + m);
    return content;
  }

  Rank& self_;
  const std::vector<Message> messages_;
  const DataType type_;
  const uint64_t call_;
  std::vector<Transfer> transfers_;
  std::map<size_t, std::byte*> results_;
};

void check_exchange(Rank& self, const std::vector<Message>& messages, uint64_t call,
                    DataType type = DataType::Uint8) {
  Sent sent(self, messages, type, call);
  sent.enqueue();
  self.finish();
  need(self.comm->async_error(), "exchange");
  sent.check();
  self.forget_memory();
}

// A message from every rank to every rank, of counts that `count(from, to)` says.
template <typename Count>
std::vector<Message> all_to_all(int n, Count&& count) {
  std::vector<Message> messages;
  for (int from = 0; from < n; ++from)
    for (int to = 0; to < n; ++to)
      messages.push_back({from, to, static_cast<size_t>(count(from, to))});
  return messages;
}

// Any number of messages between any ranks, small and large, repeated too.
std::vector<Message> random_messages(int n, uint64_t seed, size_t largest) {
  std::mt19937_64 random(seed);
  const auto rank = [&] { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  std::vector<Message> messages(random() % 20);
  for (Message& one : messages)
    one = {rank(), rank(), random() % 4 == 0 ? random() % 3 : random() % largest};
  return messages;
}

Status all_reduce(Rank& self, std::byte* memory, size_t count) {
  return self.comm->all_reduce(memory, memory, count, DataType::Float32, {RedOp::Sum},
                               self.native());
}

}  // namespace

TEST_CASE("exchange: all-to-all of equal and uneven counts, none among them") {
  for (bool asynchronous : {false, true})
    for (int n : asynchronous ? std::vector{3} : std::vector{1, 2, 4, 7})
      run_ranks(n, asynchronous, [&](Rank& self) {
        uint64_t call = 0;
        for (DataType type : fake::kTypes)
          check_exchange(self, all_to_all(n, [](int, int) { return 5; }), ++call, type);
        check_exchange(self, all_to_all(n, [](int, int) { return 0; }), ++call);
        check_exchange(self, all_to_all(n, [](int, int) { return 4096; }), ++call);
        check_exchange(self,
                       all_to_all(n, [](int from, int to) { return from * to % 3 * 777 + from; }),
                       ++call, DataType::Float32);
        check_exchange(self, {}, ++call);
      });
}

TEST_CASE("exchange: messages of many chunks") {
  for (bool asynchronous : {false, true})
    run_ranks(3, asynchronous, [](Rank& self) {
      check_exchange(self, all_to_all(3, [](int, int) { return 1'000'003; }), 1);
      check_exchange(self, all_to_all(3, [](int from, int to) { return from < to ? 900'001 : 1; }),
                     2, DataType::Int16);
      check_exchange(self, {{0, 2, 3'000'001}, {2, 0, 5}}, 3);
      // Past the caches.
      check_exchange(self, {{0, 1, (size_t{5} << 20) + 1}, {2, 2, (size_t{4} << 20) + 3}}, 4);
    });
}

TEST_CASE("exchange: gather and scatter") {
  for (bool asynchronous : {false, true})
    for (const size_t count : {size_t{1}, size_t{3001}, size_t{700'001}})
      run_ranks(4, asynchronous, [&](Rank& self) {
        std::vector<Message> gather, scatter;
        for (int r = 0; r < 4; ++r) {
          gather.push_back({r, 2, count + static_cast<size_t>(r)});
          scatter.push_back({1, r, count * static_cast<size_t>(r)});
        }
        check_exchange(self, gather, 1);
        check_exchange(self, scatter, 2);
      });
}

TEST_CASE("exchange: repeated messages of one pair, and of a rank to itself, meet in order") {
  for (bool asynchronous : {false, true})
    run_ranks(2, asynchronous, [](Rank& self) {
      std::vector<Message> messages;
      for (size_t i = 0; i < 12; ++i) {
        messages.push_back({0, 1, i % 4 == 0 ? 60'001 * i : 9 * i});
        messages.push_back({1, 1, 17'000 * i});
        messages.push_back({1, 0, 3});
      }
      check_exchange(self, messages, 1, DataType::Int32);
      check_exchange(self, {{1, 1, 5}}, 2);
      std::vector<Message> tiny(5000, Message{1, 0, 1});
      check_exchange(self, tiny, 3);
    });
}

TEST_CASE("exchange: a rank's message to itself may be received in place") {
  for (bool asynchronous : {false, true})
    for (const size_t count : {size_t{1}, size_t{3'000'001}})
      run_ranks(2, asynchronous, [&](Rank& self) {
        const Bytes own = contribution(1, self.rank, DataType::Uint8, count);
        const Bytes theirs = contribution(1, 1 - self.rank, DataType::Uint8, count);
        std::byte* kept = self.place(own);
        std::byte* got = self.place(Bytes(count));
        const std::vector<Transfer> gather = {{self.rank, true, kept, count},
                                              {self.rank, false, kept, count},
                                              {1 - self.rank, true, kept, count},
                                              {1 - self.rank, false, got, count}};
        need(self.comm->exchange(gather, DataType::Uint8, self.native()), "exchange");
        self.finish();
        need(fake::equal(self.fetch(kept, count), own), "a message that stays in place is wrong");
        need(fake::equal(self.fetch(got, count), theirs),
             "a message beside one that stays is wrong");
      });
}

TEST_CASE("exchange: random messages, more than a few ranks") {
  for (bool asynchronous : {false, true})
    for (int n : asynchronous ? std::vector{4} : std::vector{2, 3, 5, 9})
      run_ranks(n, asynchronous, [&](Rank& self) {
        for (uint64_t call = 1; call <= (asynchronous ? 8 : 20); ++call)
          check_exchange(self, random_messages(n, call, call % 5 == 0 ? 90'000 : 2000), call,
                         fake::kTypes[call % std::size(fake::kTypes)]);
      });
}

// Under TSan so many threads take longer to meet than ranks wait for each other.
#if !defined(HETCCL_UNDER_TSAN)
TEST_CASE("exchange: so many ranks that pieces are not whole cache lines") {
  run_ranks(260, false, [](Rank& self) {
    std::vector<Message> messages = random_messages(self.size, 1, 3000);
    for (int r = 0; r < self.size; ++r) {
      messages.push_back({r, (r + 7) % self.size, 5});
      messages.push_back({3, r, 301});
      messages.push_back({r, 2, 13});
    }
    check_exchange(self, messages, 1);
  });
}
#endif

TEST_CASE("exchange: enqueued at once with other calls, each completes in its turn") {
  for (bool asynchronous : {false, true})
    run_ranks(3, asynchronous, [](Rank& self) {
      std::vector<std::unique_ptr<Sent>> sent;
      Bytes one(4 * 1000);
      for (size_t i = 0; i < 1000; ++i) one[4 * i] = std::byte{1};
      std::byte* sum = self.place(one);
      std::byte* copied = self.place(Bytes(4 * 1000));
      for (uint64_t call = 0; call < 30; ++call) {
        sent.push_back(std::make_unique<Sent>(
            self, random_messages(3, call, call % 7 == 0 ? 400'000 : 500), DataType::Uint8, call));
        sent.back()->enqueue();
        need(self.comm->all_reduce(sum, sum, call % 2 == 0 ? 1000 : 0, DataType::Int32,
                                   {RedOp::Max}, self.native()),
             "all_reduce");
        const Shard whole{static_cast<int>(call % 3), sum, copied, 1000};
        need(self.comm->broadcast({&whole, 1}, DataType::Int32, self.native()), "broadcast");
        if (call % 4 == 0) need(self.comm->barrier(self.native()), "barrier");
      }
      self.finish();
      need(self.comm->async_error(), "mixed calls");
      for (const auto& call : sent) call->check();
      need(self.fetch(copied, one.size()) == one, "a broadcast beside exchanges is wrong");
    });
}

TEST_CASE("exchange: a rank that calls something else is an error that shows both") {
  using Call = std::function<Status(Rank&, std::byte*)>;
  const auto exchange = [](std::vector<Transfer> list, DataType type) -> Call {
    return [=](Rank& self, std::byte* memory) {
      auto transfers = list;
      for (Transfer& transfer : transfers) transfer.data = memory;
      return self.comm->exchange(transfers, type, self.native());
    };
  };
  const Call reduced = [](Rank& self, std::byte* memory) { return all_reduce(self, memory, 5); };
  const DataType type = DataType::Float32;
  // Ranks 0 and 1 call the first, rank 2 the second.
  const struct {
    Call call, other;
    std::string shown, also;
  } cases[] = {
      {exchange({}, type), reduced, "exchange of 0 float32 in 0 transfers", "all_reduce of 5"},
      {reduced, exchange({{0, true, nullptr, 5}}, type), "exchange of 5 float32 in 1 transfers",
       "all_reduce of 5"},
      {exchange({}, type), exchange({}, DataType::Int8), "exchange of 0 int8", "float32"},
      {exchange({}, type), exchange({{0, true, nullptr, 5}}, type), "cluster rank 0, in",
       "receives other messages from cluster rank 2"},
      {exchange({}, type), exchange({{1, false, nullptr, 5}}, type), "cluster rank 2, in",
       "receives other messages from cluster rank 1"},
      {exchange({}, type), exchange({{1, true, nullptr, 400'000}}, type), "cluster rank 1, in",
       "receives other messages from cluster rank 2"},
  };
  for (bool asynchronous : {false, true})
    for (const auto& one : cases)
      run_ranks(3, asynchronous, [&](Rank& self) {
        std::byte* memory = self.place(Bytes(1'600'000));
        self.comm->number_calls(4);
        need(all_reduce(self, memory, 10), "before");
        self.comm->number_calls(5);
        need((self.rank == 2 ? one.other : one.call)(self, memory), "enqueue");
        self.finish();
        const Status error = self.comm->async_error();
        need(error.code() == ErrorCode::InvalidUsage, "no error for " + one.shown);
        for (const std::string& shown : {one.shown, one.also, std::string("cluster rank 2")})
          need(error.message().find(shown) != std::string::npos,
               error.message() + " lacks: " + shown);
        const auto between = self.comm->disagreement();
        need(between && between->number == 5, "no disagreement");
        need(between->rank == 2 || between->other == 2, "others disagree");
        need(!self.comm->exchange({}, type, self.native()).ok(), "later calls must fail fast");
      });
}

TEST_CASE("exchange: repeated messages whose sizes are swapped disagree") {
  run_ranks(2, false, [](Rank& self) {
    std::byte* memory = self.place(Bytes(64));
    const bool send = self.rank == 0;
    const Transfer transfers[] = {{1 - self.rank, send, memory, send ? size_t{3} : size_t{5}},
                                  {1 - self.rank, send, memory + 8, send ? size_t{5} : size_t{3}}};
    need(self.comm->exchange(transfers, DataType::Uint8, self.native()), "exchange");
    self.finish();
    need(self.comm->async_error().code() == ErrorCode::InvalidUsage, "accepted");
  });
}

TEST_CASE("exchange: abort by one rank ends what is pending") {
  for (bool asynchronous : {false, true})
    for (int round = 0; round < 4; ++round)
      run_ranks(3, asynchronous, [&](Rank& self) {
        constexpr size_t kBlock = size_t{1} << 20;
        std::byte* memory = self.place(Bytes(6 * kBlock));
        std::vector<Transfer> transfers;
        for (size_t r = 0; r < 3; ++r)
          for (const bool send : {true, false})
            transfers.push_back(
                {static_cast<int>(r), send, memory + (2 * r + (send ? 1 : 0)) * kBlock, kBlock});
        fake::Thread aborter;
        for (int i = 0; i < 6; ++i) {
          if (self.rank == 2 && i >= round) {  // never comes again, and gives up
            if (!aborter.joinable()) aborter = fake::Thread([&] { self.comm->abort(); });
            continue;
          }
          // After the abort the call itself may fail.
          (void)self.comm->exchange(transfers, DataType::Uint8, self.native());
        }
        self.finish();
        if (aborter.joinable()) aborter.join();
        const TimePoint end = steady_clock().now() + fake::kHang;
        while (self.comm->async_error().ok() && steady_clock().now() < end)
          std::this_thread::yield();
        need(self.comm->async_error().code() == ErrorCode::Aborted, "not aborted");
        need(self.comm->exchange(transfers, DataType::Uint8, self.native()).code() ==
                 ErrorCode::Aborted,
             "later calls fail");
      });
}

TEST_CASE("exchange: bad arguments are refused at the call") {
  run_ranks(2, false, [](Rank& self) {
    std::byte* memory = self.place(Bytes(64));
    const auto refused = [&](std::vector<Transfer> transfers, DataType type, void* stream) {
      need(self.comm->exchange(transfers, type, stream).code() == ErrorCode::InvalidArgument,
           "accepted");
    };
    const DataType type = DataType::Float32;
    refused({}, type, nullptr);
    refused({}, static_cast<DataType>(50), self.native());
    refused({{2, true, memory, 1}}, type, self.native());
    refused({{-1, true, memory, 1}}, type, self.native());
    refused({{self.rank, true, memory, 1}}, type, self.native());
    refused({{self.rank, true, memory, 1}, {self.rank, false, memory + 8, 2}}, type, self.native());
    refused({{0, true, memory, SIZE_MAX / 8}, {0, true, memory, SIZE_MAX / 8}}, type,
            self.native());
    need(self.comm->async_error(), "refusals are no failures");
  });
}

TEST_CASE("a library refuses what it says that it does not support") {
  const auto library = make_host_library();
  CHECK(library->supports_exchange());
  CHECK_FALSE(library->makes_pairs());
  CHECK(library->begin_pair({}, nullptr, 50, {}).status().code() == ErrorCode::Unsupported);
}
