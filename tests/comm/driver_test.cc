// A free of the program's holds the driver's lock until the device has drained, as CUDA's does.
// Driver calls that hetccl makes meanwhile must not stop it from moving data that the device waits
// for.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "comm/ranks.h"
#include "fake/fake_device.h"
#include "fake/patience.h"

namespace hetccl::comm {
namespace {

using std::chrono::milliseconds;

constexpr size_t kSummed = 1000;

bool comes_true(const std::function<bool()>& done) {
  const auto end = steady_clock().now() + fake::kHang;
  while (!done() && steady_clock().now() < end) std::this_thread::sleep_for(milliseconds(1));
  return done();
}

std::vector<Config> two_clusters() {
  std::vector<Config> configs(2);
  for (size_t r = 0; r < configs.size(); ++r) {
    configs[r].cluster = r == 0 ? "A" : "B";
    configs[r].init_timeout_ms = fake::kHangMs;
  }
  return configs;
}

// One rank's calls, each kind on a stream of its own.
class Calls {
 public:
  Calls(int rank, fake::FakeDevice& device, Communicator& communicator)
      : rank_(rank), device_(device), communicator_(communicator) {}
  ~Calls() {
    device_.free(summed_);
    device_.free(message_);
  }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  void sum() {
    const Signature all{Collective::AllReduce, DataType::Float32, RedOp::Sum, 0, kSummed};
    const auto ticket =
        communicator_.dispatch().start({all, summed_, summed_}, {.stream = sums_->native()});
    CHECK_MESSAGE(ticket.ok(), ticket.status().message());
  }
  // Sends a message from rank 0 to rank 1.
  void exchange() {
    const exec::Message message{rank_ == 0, 1 - rank_, message_, DataType::Float32, kSummed};
    const auto ticket =
        communicator_.dispatch().start({&message, 1}, {.stream = messages_->native()});
    CHECK_MESSAGE(ticket.ok(), ticket.status().message());
  }

 private:
  const int rank_;
  fake::FakeDevice& device_;
  Communicator& communicator_;
  void* const summed_ = device_.allocate(kSummed * sizeof(float)).value();
  void* const message_ = device_.allocate(kSummed * sizeof(float)).value();
  const std::unique_ptr<device::Stream> sums_ = device_.create_stream().value();
  const std::unique_ptr<device::Stream> messages_ = device_.create_stream().value();
};

TEST_CASE("a first message waits for a driver that waits for a collective, and holds up neither") {
  std::atomic<bool> blocked{false};
  on_fake_devices(two_clusters(), {}, [&](int rank, auto& device, auto made) {
    {
      Calls calls(rank, device, *made);
      std::thread freeing, sending;
      if (rank == 0) {
        void* const spare = device.allocate(64).value();
        calls.sum();
        freeing = std::thread([&device, spare] { device.drain_and_free(spare); });
        CHECK(comes_true([&] { return device.calls().drains; }));
        sending = std::thread([&] { calls.exchange(); });
        CHECK(comes_true([&] { return device.calls().waiting > 0; }));
        blocked = true;
        freeing.join();
        sending.join();
      } else {
        CHECK(comes_true([&] { return blocked.load(); }));
        calls.sum();
        calls.exchange();
      }
      CHECK(device.synchronize(fake::kHang));
    }
    CHECK(made->finish().ok());
  });
}

TEST_CASE("an abort ends a collective for which a driver, and a first message, wait") {
  on_fake_devices(two_clusters(), {}, [&](int rank, auto& device, auto made) {
    if (rank == 1) {  // never calls anything
      CHECK(comes_true([&] { return !made->dispatch().failure().ok(); }));
      return;
    }
    Calls calls(rank, device, *made);
    void* const spare = device.allocate(64).value();
    calls.sum();
    std::thread freeing([&device, spare] { device.drain_and_free(spare); });
    CHECK(comes_true([&] { return device.calls().drains; }));
    std::thread sending([&] {
      const exec::Message message{true, 1, nullptr, DataType::Float32, 0};
      CHECK_FALSE(made->dispatch().start({&message, 1}, {}).ok());
    });
    CHECK(comes_true([&] { return device.calls().waiting > 0; }));
    made->abort("the test gives up");
    freeing.join();
    sending.join();
    CHECK(device.synchronize(fake::kHang));
  });
}

}  // namespace
}  // namespace hetccl::comm
