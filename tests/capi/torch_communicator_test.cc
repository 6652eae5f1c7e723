// torch's backend over the C API alone: no call that blocks keeps another thread from hearing of a
// failure, or from aborting.
#include <atomic>
#include <memory>
#include <optional>

#include "capi/threads.h"
#include "communicator.h"

namespace {

using namespace hetccl::capi_test;
using hetccl::torch_backend::ApiCall;
using hetccl::torch_backend::Communicator;
using hetccl::torch_backend::Elements;
using hetccl::torch_backend::Failure;

constexpr milliseconds kLong{600'000};    // of calls: only an abort ends them before
constexpr milliseconds kLimit{kLimitMs};  // only a hang takes so long
constexpr size_t kMostMessages = 1024;    // of a communicator that are in flight
constexpr Elements kOneFloat{1, hetcclFloat32};
const std::string kReason = "the test gives up";

// Rank 0 runs `body`. Rank 1 sends `letters` floats, one by one, and waits until all has failed.
void with_two_ranks(int letters, const std::function<void(Communicator&)>& body) {
  hetcclUniqueId id;
  REQUIRE(hetcclGetUniqueId(&id) == hetcclSuccess);
  on_all_ranks(2, [&](int rank) {
    Failure failure{};
    const auto made = Communicator::join(id, rank, 2, "host", kLimit, {}, failure);
    REQUIRE_MESSAGE(made != nullptr, failure.text);
    if (rank == 0) return body(*made);
    for (int i = 0; i < letters; ++i) {
      static const float letter = 7;
      hetcclWork_t work;
      CHECK_FALSE(made->start({ApiCall(hetcclCallSend, kOneFloat, &letter, nullptr, 0)}, nullptr,
                              kLong, &work));
    }
    const auto end = Clock::now() + kLimit;
    while (!made->failure() && Clock::now() < end) std::this_thread::sleep_for(milliseconds(1));
    CHECK(made->failure());
  });
}

std::optional<Failure> receive(Communicator& from, float& data, hetcclWork_t& work) {
  return from.start({ApiCall(hetcclCallRecv, kOneFloat, nullptr, &data, 1)}, nullptr, kLong, &work);
}

}  // namespace

TEST_CASE("an abort reaches a call that waits for room, and other calls go on meanwhile") {
  with_two_ranks(1, [](Communicator& communicator) {
    constexpr size_t kReceives = kMostMessages + 2;  // the first one completes
    std::vector<float> data(kReceives);
    std::vector<hetcclWork_t> works(kReceives);
    std::atomic<size_t> begun{0};
    std::optional<Failure> failure;
    std::thread receiving([&] {
      for (size_t i = 0; i < kReceives && !failure; ++i) {
        failure = receive(communicator, data[i], works[i]);
        begun += failure ? 0 : 1;
      }
    });
    const auto end = Clock::now() + kLimit;
    while (begun <= kMostMessages && Clock::now() < end)
      std::this_thread::sleep_for(milliseconds(1));
    std::this_thread::sleep_for(milliseconds(100));
    CHECK(begun == kMostMessages + 1);
    CHECK(Communicator::wait_all({works[0]}, kLimit));
    CHECK_FALSE(Communicator::reached(works[1]));
    CHECK(data[0] == 7);
    CHECK_FALSE(communicator.failure());
    hetcclCommStats_t stats{};
    CHECK_FALSE(communicator.stats(stats));
    communicator.abort(kReason);
    receiving.join();
    REQUIRE(failure);
    CHECK(failure->result == hetcclAborted);
    CHECK(failure->text == kReason);
    CHECK(communicator.failure()->text == kReason);
  });
}

TEST_CASE("an abort ends a close that waits for what is in flight") {
  with_two_ranks(0, [](Communicator& communicator) {
    float data = 0;
    hetcclWork_t work;
    CHECK_FALSE(receive(communicator, data, work));
    std::thread closing([&] { communicator.close(); });
    std::this_thread::sleep_for(milliseconds(100));
    communicator.abort(kReason);
    closing.join();
    CHECK(Communicator::wait_all({work}, kLimit));
    CHECK(communicator.failure()->text == kReason);
  });
}
