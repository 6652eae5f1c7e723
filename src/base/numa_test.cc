#include "base/numa.h"

#include <doctest/doctest.h>
#include <linux/mempolicy.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace hetccl {
namespace {

// Returns the calling thread's policy; -1 if the system does not tell.
int policy() {
  int found = -1;
  return syscall(SYS_get_mempolicy, &found, nullptr, 0, nullptr, 0) == 0 ? found : -1;
}

bool may_be_set() {
  const size_t first = 1;
  const bool set = syscall(SYS_set_mempolicy, MPOL_PREFERRED, &first, 65) == 0;
  return syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0) == 0 && set;
}

}  // namespace

TEST_CASE("a device's node is what the system says of it, if it says anything") {
  char folder[] = "/tmp/hetccl-numa-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const auto write = [&](const std::string& device, const std::string& text) {
    std::filesystem::create_directories(std::string(folder) + "/" + device);
    std::ofstream(std::string(folder) + "/" + device + "/numa_node") << text;
  };
  write("0000:1b:00.0", "1\n");
  write("0000:1c:00.0", "-1\n");
  write("0000:1d:00.0", "much\n");
  CHECK(numa_node_of("0000:1B:00.0", folder) == 1);
  CHECK(numa_node_of("0000:1c:00.0", folder) == -1);
  CHECK(numa_node_of("0000:1d:00.0", folder) == -1);
  CHECK(numa_node_of("0000:1e:00.0", folder) == -1);
  CHECK(numa_node_of("../0000:1b:00.0", folder) == -1);
  CHECK(numa_node_of("", folder) == -1);
  std::filesystem::remove_all(folder);
}

TEST_CASE("a thread's memory comes from a node for a while") {
  const int before = policy();
  {
    const OnNode nowhere(-1), beyond(1 << 20);
    CHECK(policy() == before);
  }
  if (before < 0 || !may_be_set()) {
    MESSAGE("SKIPPED: the system lets nobody set a memory policy");
    return;
  }
  {
    const OnNode first(0);
    CHECK(policy() == MPOL_PREFERRED);
    {
      const OnNode again(0), absent(1023);
      CHECK(policy() == MPOL_PREFERRED);
    }
    CHECK(policy() == MPOL_PREFERRED);
  }
  CHECK(policy() == MPOL_DEFAULT);
}

}  // namespace hetccl
