// Messages between ranks of one cluster: by channels at first, and by the cluster's library once it
// has connected the two.
#include <doctest/doctest.h>

#include <atomic>
#include <optional>
#include <set>
#include <thread>

#include "comm/ranks.h"
#include "fake/captured_stderr.h"
#include "fake/fake_device.h"
#include "fake/sample.h"
#include "fake/vendor_library.h"

namespace hetccl::comm {
namespace {

using fake::VendorLibrary;
using std::chrono::milliseconds;

constexpr size_t kBytes = 100'000;
constexpr int kMost = 100'000;  // exchanges

std::vector<Config> one_cluster(size_t n) {
  Config config;
  config.cluster = "A";
  config.log_level = "info";
  config.init_timeout_ms = fake::kHangMs;
  return std::vector<Config>(n, config);
}

bool wait_until(const std::function<bool()>& done) {
  const auto end = steady_clock().now() + fake::kHang;
  while (!done() && steady_clock().now() < end) std::this_thread::sleep_for(milliseconds(1));
  return done();
}

// A rank, with the memory of its messages.
class Neighbour {
 public:
  Neighbour(int rank, fake::FakeDevice& device, Communicator& communicator)
      : rank_(rank),
        device_(device),
        communicator_(communicator),
        sent_(device.allocate(kBytes).value()),
        received_(device.allocate(kBytes).value()),
        stream_(device.create_stream().value()) {}
  ~Neighbour() {
    stream_.reset();
    device_.free(sent_);
    device_.free(received_);
  }
  /// Sends to the next rank and receives from the one before, in one call. False: wrong data.
  bool exchange(uint8_t number) {
    const int n = communicator_.membership().n_ranks(), from = (rank_ + n - 1) % n;
    const std::vector<uint8_t> mine(kBytes, content(rank_, number));
    device_.upload(sent_, mine.data(), kBytes);
    const exec::Message messages[] = {{true, (rank_ + 1) % n, sent_, DataType::Uint8, kBytes},
                                      {false, from, received_, DataType::Uint8, kBytes}};
    const auto ticket = communicator_.dispatch().start(messages, {.stream = stream_->native()});
    CHECK_MESSAGE(ticket.ok(), ticket.status().message());
    if (!ticket.ok() || !device_.synchronize(fake::kHang)) return false;
    std::vector<uint8_t> got(kBytes);
    device_.download(got.data(), received_, kBytes);
    return got == std::vector<uint8_t>(kBytes, content(from, number));
  }

 private:
  static uint8_t content(int rank, uint8_t number) {
    return static_cast<uint8_t>(rank * 50 + number);
  }
  const int rank_;
  fake::FakeDevice& device_;
  Communicator& communicator_;
  void *sent_, *received_;
  std::unique_ptr<device::Stream> stream_;
};

size_t count(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

// Lets all ranks exchange messages until they have logged `what` that often, then a few times more.
// Returns the log.
std::string log_of(const std::vector<Config>& configs, const std::string& what, size_t times) {
  const fake::CapturedStderr captured;
  std::atomic<int> round{0}, last{kMost};
  on_fake_devices(configs, {}, [&](int rank, auto& device, std::shared_ptr<Communicator> made) {
    {
      Neighbour neighbour(rank, device, *made);
      // All ranks make equally many exchanges: rank 0 decides the number.
      std::optional<uint64_t> settled;
      for (int number = 0; number < last; ++number) {
        if (last - number == 15) settled = device.calls().by_hetccl;
        if (rank == 0 && last == kMost && count(captured.text(), what) >= times) last = number + 30;
        if (rank == 0) round = number + 1;
        CHECK(wait_until([&] { return round > number; }));
        CHECK(neighbour.exchange(static_cast<uint8_t>(number)));
      }
      REQUIRE(settled.has_value());
      CHECK(device.calls().by_hetccl == *settled);  // hetccl's threads call no device
    }
    CHECK(made->finish().ok());
  });
  return captured.text();
}

TEST_CASE("the library carries messages of a cluster once it has connected their ends") {
  const std::string carries = "host carries messages to rank ";
  const std::string log = log_of(one_cluster(3), carries, 6);  // three pairs, said at both ends
  CHECK_MESSAGE(count(log, carries) == 6, log);
  CHECK(count(log, "a channel carries messages") == 0);
}

TEST_CASE("channels carry messages to other clusters, and all where that is asked for") {
  std::vector<Config> apart = one_cluster(3), off = one_cluster(3);
  apart[2].cluster = "B";
  for (Config& config : off) config.library_messages = false;
  CHECK(count(log_of(apart, "carries messages", 2), "host carries messages to rank ") == 2);
  VendorLibrary::pairs_asked_for = 0;
  CHECK(count(log_of(off, "", 0), "carries messages") == 0);
  CHECK(VendorLibrary::pairs_asked_for == 0);
}

TEST_CASE("a rank has at most eight pairs, and channels for the rest") {
  const fake::CapturedStderr captured;
  const auto all_told = [&] { return count(captured.text(), "carries messages") == 20; };
  VendorLibrary::blocks_by_id.clear();
  on_fake_devices(
      one_cluster(11), {.multiprocessors = 132},
      [&](int rank, auto& device, std::shared_ptr<Communicator> made) {
        void* memory = device.allocate(64).value();
        const auto stream = device.create_stream().value();
        for (const bool again : {false, true}) {
          // Rank 0 sends to all others.
          for (int peer = 1; peer < 11; ++peer) {
            const exec::Message sent{true, peer, memory, DataType::Uint8, 64};
            const exec::Message received{false, 0, memory, DataType::Uint8, 64};
            if (rank != 0 && rank != peer) continue;
            const exec::Message& mine = rank == 0 ? sent : received;
            CHECK(made->dispatch().start({&mine, 1}, {.stream = stream->native()}).ok());
          }
          CHECK(device.synchronize(fake::kHang));
          if (!again) CHECK(wait_until(all_told));
        }
        CHECK(made->finish().ok());
        device.free(memory);
      });
  const std::string log = captured.text();
  CHECK_MESSAGE(count(log, "rank 0] info: host carries messages to rank ") == 8, log);
  CHECK(count(log, "rank 0 has 8 pairs already") == 4);  // said at both ends
  // Rank 0 offers most of the others fewer blocks than they offer it.
  std::multiset<int> agreed;
  for (const auto& [id, blocks] : VendorLibrary::blocks_by_id) {
    REQUIRE(blocks.size() == 2);
    CHECK(blocks[0] == blocks[1]);
    agreed.insert(blocks[0]);
  }
  CHECK(agreed.size() == 16);  // two directions
  CHECK(agreed.count(16) == 4);
  CHECK(*agreed.begin() == 4);
}

TEST_CASE("where one end's launches wait for their kernels, the library is not asked for a pair") {
  std::vector<Config> configs = one_cluster(2);
  configs[1].launches_wait = true;
  VendorLibrary::pairs_asked_for = 0;
  const std::string log = log_of(configs, "a channel carries messages with rank ", 2);
  CHECK_MESSAGE(count(log, "its launches wait for their kernels") == 2, log);
  CHECK(VendorLibrary::pairs_asked_for == 0);
}

TEST_CASE("where a rank cannot have a communicator for a pair, both ends stay with channels") {
  std::vector<Config> configs = one_cluster(2);
  for (Config& config : configs) config.init_timeout_ms = fake::patient_ms(2000);
  VendorLibrary::pairs_refused_to = 1;
  // The other end waits for this one in the library, within its time for that.
  const std::string log = log_of(configs, "a channel carries messages with rank ", 2);
  VendorLibrary::pairs_refused_to = -1;
  CHECK_MESSAGE(count(log, "there is no memory for a pair") == 1, log);
  CHECK_MESSAGE(count(log, "a channel carries messages with rank ") == 2, log);
}

TEST_CASE("where other work keeps the first messages from meeting, both ends try again") {
  VendorLibrary::pairs_late = 3;
  const std::string carries = "host carries messages to rank ";
  const std::string log = log_of(one_cluster(2), carries, 2);
  CHECK_MESSAGE(count(log, carries) == 2, log);
  CHECK_MESSAGE(count(log, "the next try is in 200 ms") == 2, log);
  VendorLibrary::pairs_late = 1000;
  const std::string given_up = log_of(one_cluster(2), "a channel carries messages with rank ", 2);
  VendorLibrary::pairs_late = 0;
  CHECK_MESSAGE(count(given_up, "the next try is in 800 ms") == 2, given_up);
}

TEST_CASE("a communicator that goes while pairs are being made goes at once, and in peace") {
  for (int repeat = 0; repeat < 20; ++repeat) {
    if (!fake::is_sampled(static_cast<uint64_t>(repeat), 5)) continue;
    const auto begin = steady_clock().now();
    const std::string log = fake::stderr_of([&] {
      on_fake_devices(one_cluster(2), {},
                      [&](int rank, auto& device, std::shared_ptr<Communicator> made) {
                        {
                          Neighbour neighbour(rank, device, *made);
                          CHECK(neighbour.exchange(1));
                        }
                        std::this_thread::sleep_for(milliseconds(repeat));
                        CHECK(made->finish().ok());
                        made.reset();
                      });
    });
    CHECK_MESSAGE(count(log, "warn") + count(log, "error") == 0, log);
    CHECK(steady_clock().now() - begin < fake::kHang / 2);
  }
}

}  // namespace
}  // namespace hetccl::comm
