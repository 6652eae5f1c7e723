#include "nccl/handles.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <set>

#include "nccl/communicator.h"
#include "nccl/settings.h"

namespace hetccl::nccl {
namespace {

// Comes first, because the first communicator reads the settings.
TEST_CASE("NCCL's settings hold where hetccl's are not set and they mean something") {
  ::setenv("NCCL_SOCKET_IFNAME", "^docker", 1);
  ::setenv("NCCL_DEBUG", "info", 1);
  ::unsetenv("HETCCL_SOCKET_IFNAME");
  ::setenv("HETCCL_DEBUG", "error", 1);
  const Config config = read_settings().value();
  CHECK(config.socket_ifname == "^docker");
  CHECK(config.log_level == "error");
  ::unsetenv("HETCCL_SOCKET_IFNAME");  // read only once
  CHECK(read_settings().value().socket_ifname == "");
  ::unsetenv("HETCCL_DEBUG");
}

TEST_CASE("a handle is told from any other pointer") {
  const auto communicator = Communicator::create().value();
  Handle* const handle = take_handle(communicator);
  REQUIRE(handle != nullptr);
  const ncclComm_t comm = comm_of(*handle);
  CHECK(handle_of(comm) == handle);
  const auto address = reinterpret_cast<uintptr_t>(comm);
  CHECK(handle_of(reinterpret_cast<ncclComm_t>(address + 1)) == nullptr);
  CHECK(handle_of(nullptr) == nullptr);
  int elsewhere = 0;
  CHECK(handle_of(reinterpret_cast<ncclComm_t>(&elsewhere)) == nullptr);
  const auto last = reinterpret_cast<uintptr_t>(first_handle + kMostHandles);
  CHECK(handle_of(reinterpret_cast<ncclComm_t>(last)) == nullptr);
  CHECK(communicator_of(*handle) == communicator);
  CHECK(release(*handle) == communicator);
}

TEST_CASE("a handle that was freed is known as such, and stays unused for long") {
  const auto communicator = Communicator::create().value();
  Handle* const first = take_handle(communicator);
  REQUIRE(first != nullptr);
  CHECK(release(*first) == communicator);
  CHECK(release(*first) == nullptr);
  CHECK(communicator_of(*first) == nullptr);
  CHECK(first->state.load() == HandleState::Free);
  std::set<Handle*> later;
  for (int i = 0; i < 1000; ++i) {
    later.insert(take_handle(communicator));
    release(**later.rbegin());
  }
  CHECK_FALSE(later.contains(first));
}

TEST_CASE("a config is copied with its texts, and what is none is refused") {
  std::string name = "a name";
  struct {
    ncclConfig_t known{};
    int newer[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  } given;
  given.known.size = sizeof given;
  given.known.magic = NCCL_API_MAGIC;
  given.known.blocking = NCCL_CONFIG_UNDEF_INT;
  given.known.commName = name.c_str();
  ConfigCopy copy = ConfigCopy::of(&given.known).value();
  name = "gone";
  CHECK(copy.blocking());
  const ncclConfig_t* const copied = copy.get();
  REQUIRE(copied != nullptr);
  CHECK(std::string(copied->commName) == "a name");
  CHECK(copied->netName == nullptr);
  CHECK(reinterpret_cast<const decltype(given)*>(copied)->newer[8] == 9);

  ConfigCopy none = ConfigCopy::of(nullptr).value();
  CHECK(none.get() == nullptr);
  CHECK(none.blocking());
  for (const size_t size : {size_t{0}, size_t{8}, size_t{1} << 40}) {
    given.known.size = size;
    CHECK(ConfigCopy::of(&given.known).status().code() == ErrorCode::InvalidArgument);
  }
  given.known.size = offsetof(ncclConfig_t, trafficClass);  // the size in NCCL 2.18
  given.known.blocking = 0;
  CHECK_FALSE(ConfigCopy::of(&given.known).value().blocking());
}

}  // namespace
}  // namespace hetccl::nccl
