// Tests what reaches the adaptor, on which stream, and how its errors are reported.
#include "ccl/adaptor/device_library.h"

#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "fake/host_adaptor.h"
#include "fake/patience.h"

namespace hetccl::ccl {
namespace {

// Records the adaptor's calls; global, because its table has plain functions.
struct Seen {
  std::vector<hetcclLibraryWork> works;
  std::vector<hetcclLibraryPiece> pieces;
  std::vector<hetcclLibraryMessage> messages;
  int starts_fail = 0, tests_fail = 0, inits_fail = 0, aborts = 0;
  bool init_makes_nothing = false;
};
Seen seen;
std::atomic<int> slow_inits{0}, destroys{0};
thread_local bool is_current = false;

int begin(void*, const hetcclLibraryWork* work, void**) {
  seen.works.push_back(*work);
  seen.pieces.assign(work->pieces, work->pieces + work->n_pieces);
  seen.messages.assign(work->messages, work->messages + work->n_messages);
  return seen.starts_fail;
}

int make(const void*, int, int rank, int64_t timeout_ms, void** made) {
  if (timeout_ms < 100) std::this_thread::sleep_for(fake::patient(std::chrono::milliseconds(300)));
  if (timeout_ms < 100) ++slow_inits;
  *made = seen.init_makes_nothing ? nullptr : &seen;
  return is_current && rank == 1 ? seen.inits_fail : 77;
}

hetcclLibraryAdaptor calls() {
  hetcclLibraryAdaptor of{};
  of.size = sizeof of;
  of.name = "ours";
  of.version = "3";
  of.capabilities = HETCCL_LIBRARY_JOINS_HOSTS | HETCCL_LIBRARY_SENDS;
  of.error_text = [](int code) { return code == 77 ? "a wrong thread or rank" : "it is broken"; };
  of.reduces = [](hetcclDataType_t type, hetcclRedOp_t) { return type == hetcclFloat32 ? 1 : 0; };
  of.make_id = [](int, void*) { return 0; };
  of.init = make;
  of.start = begin;
  of.test = [](void*, void* request, int*) { return request == nullptr ? seen.tests_fail : 77; };
  of.destroy = [](void*) { ++destroys; };
  of.device = "toy";
  of.abort = [](void*) { ++seen.aborts; };
  return of;
}

std::unique_ptr<Library> library() {
  seen = {};
  const hetcclLibraryAdaptor of = calls();
  const hetcclAdaptorTable table = fake::table_of(&of);
  return make_adaptor_device_library(adaptor::check(&table, "ours.so", {}).value(),
                                     [] { is_current = true; });
}

bool has(const Status& status, const char* part) {
  return status.message().find(part) != std::string::npos;
}

TEST_CASE("calls reach the adaptor on their stream, with the pieces as they are") {
  const auto ours = library();
  CHECK(ours->name() == "ours");
  CHECK(ours->version() == "3");
  CHECK(ours->reach().hosts);
  CHECK_FALSE(ours->reach().architectures);
  CHECK_FALSE(ours->supports_exchange());
  CHECK(ours->supports(DataType::Float32, RedOp::Avg));
  CHECK_FALSE(ours->supports(DataType::Float32, RedOp::PreMulSum));
  CHECK_FALSE(ours->supports(DataType::Int8, RedOp::Sum));
  const int before = destroys;
  auto comm = ours->init({}, 2, 1, nullptr, fake::kHangMs).value();
  int stream = 0;
  float send[4] = {}, recv[4] = {};
  const Reducer avg{RedOp::Avg, {}};
  REQUIRE(comm->all_reduce(send, recv, 4, DataType::Float32, avg, &stream).ok());
  CHECK(seen.works[0].call == hetcclLibraryAllReduce);
  CHECK(seen.works[0].op == hetcclAvg);
  CHECK(seen.works[0].stream == &stream);
  CHECK(seen.pieces[0].send == send);
  CHECK(seen.pieces[0].recv == recv);
  CHECK(seen.pieces[0].count == 4);
  const std::vector<Shard> shards = {{0, send, recv, 1}, {1, send + 1, recv + 1, 3, 0}};
  REQUIRE(comm->broadcast(shards, DataType::Int16, &stream).ok());
  CHECK(seen.works[1].type == hetcclInt16);
  REQUIRE(seen.pieces.size() == 2);
  CHECK(seen.pieces[1].receiver == 0);
  CHECK(seen.pieces[1].root == 1);
  REQUIRE(comm->barrier(&stream).ok());
  CHECK(seen.works[2].call == hetcclLibraryBarrier);
  // The adaptor is not asked for what it cannot do.
  CHECK(comm->all_reduce(send, recv, 4, DataType::Int8, avg, &stream).code() ==
        ErrorCode::Unsupported);
  CHECK(comm->exchange({}, DataType::Int8, &stream).code() == ErrorCode::Unsupported);
  const std::vector<Shard> stranger = {{2, send, recv, 1}};
  CHECK(comm->reduce(stranger, DataType::Float32, avg, &stream).code() ==
        ErrorCode::InvalidArgument);
  CHECK(seen.works.size() == 3);
  comm.reset();
  CHECK(destroys == before + 1);
  CHECK(seen.aborts == 0);
}

TEST_CASE("errors of calls, of the communicator and of init") {
  const auto ours = library();
  auto comm = ours->init({}, 2, 1, nullptr, fake::kHangMs).value();
  CHECK(comm->async_error().ok());
  seen.tests_fail = 5;
  CHECK(has(comm->async_error(), "ours: a call has failed: it is broken"));
  seen.starts_fail = 5;
  CHECK(has(comm->barrier(nullptr), "a call cannot start"));
  comm->abort();
  CHECK(seen.aborts == 1);
  CHECK(has(ours->init({}, 2, 0, nullptr, fake::kHangMs).status(), "a wrong thread or rank"));
  seen.inits_fail = 5;
  CHECK(has(ours->init({}, 2, 1, nullptr, fake::kHangMs).status(), "ours: init: it is broken"));
  seen.inits_fail = 0;
  seen.init_makes_nothing = true;
  CHECK(
      has(ours->init({}, 2, 1, nullptr, fake::kHangMs).status(), "init has made no communicator"));
  seen.init_makes_nothing = false;
  const int destroyed = destroys;
  const auto late = ours->init({}, 2, 1, nullptr, 50);
  CHECK(late.status().code() == ErrorCode::Timeout);
  const TimePoint end = steady_clock().now() + fake::kHang;
  while (destroys == destroyed && steady_clock().now() < end) std::this_thread::yield();
  CHECK(slow_inits == 1);
  CHECK(destroys == destroyed + 1);  // a communicator that came too late is ended
}

}  // namespace
}  // namespace hetccl::ccl
