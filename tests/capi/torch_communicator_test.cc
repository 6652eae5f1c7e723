// torch's backend over the C API alone: no call that blocks keeps another thread from hearing of a
// failure, or from aborting.
#include <atomic>
#include <memory>
#include <optional>

#include "capi/threads.h"
#include "communicator.h"

namespace {

using namespace hetccl::capi_test;
using hetccl::torch_backend::Communicator;
using hetccl::torch_backend::Failure;
using hetccl::torch_backend::Route;
using hetccl::torch_backend::Ticket;

constexpr milliseconds kLong{600'000};    // of calls: only an abort ends them before
constexpr milliseconds kLimit{kLimitMs};  // only a hang takes so long
constexpr size_t kMostMessages = 1024;    // of a communicator that are in flight
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
      const auto send = [](hetcclComm_t comm, hetcclStream_t stream) {
        static const float letter = 7;
        return hetcclSend(&letter, 1, hetcclFloat32, 0, comm, stream);
      };
      Ticket ticket;
      CHECK_FALSE(made->launch(send, {Route::Kind::Send, 0}, kLong, false, ticket));
    }
    const auto end = Clock::now() + kLimit;
    while (!made->failure() && Clock::now() < end) std::this_thread::sleep_for(milliseconds(1));
    CHECK(made->failure());
  });
}

std::optional<Failure> receive(Communicator& from, float& data, int route, Ticket& ticket) {
  const auto call = [&data](hetcclComm_t comm, hetcclStream_t stream) {
    return hetcclRecv(&data, 1, hetcclFloat32, 1, comm, stream);
  };
  return from.launch(call, {Route::Kind::Recv, route}, kLong, false, ticket);
}

}  // namespace

TEST_CASE("an abort reaches a call that waits for room, and other calls go on meanwhile") {
  with_two_ranks(1, [](Communicator& communicator) {
    constexpr size_t kReceives = kMostMessages + 2;  // the first one completes
    std::vector<float> data(kReceives);
    std::vector<Ticket> tickets(kReceives);
    std::atomic<size_t> begun{0};
    std::optional<Failure> failure;
    std::thread receiving([&] {
      for (size_t i = 0; i < kReceives && !failure; ++i) {
        failure = receive(communicator, data[i], static_cast<int>(i % 3), tickets[i]);
        begun += failure ? 0 : 1;
      }
    });
    const auto end = Clock::now() + kLimit;
    while (begun <= kMostMessages && Clock::now() < end)
      std::this_thread::sleep_for(milliseconds(1));
    std::this_thread::sleep_for(milliseconds(100));
    CHECK(begun == kMostMessages + 1);
    CHECK(Communicator::wait(tickets[0], kLimit));
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
    Ticket ticket;
    CHECK_FALSE(receive(communicator, data, 1, ticket));
    std::thread closing([&] { communicator.close(); });
    std::this_thread::sleep_for(milliseconds(100));
    communicator.abort(kReason);
    closing.join();
    CHECK(Communicator::wait(ticket, kLimit));
    CHECK(communicator.failure()->text == kReason);
  });
}
