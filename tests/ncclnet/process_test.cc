// Processes that meet by a net plug-in: one is killed; and what an init without the plug-in says.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "fake/net_plugin.h"
#include "process/forked_ranks.h"
#include "process/killed_rank.h"

namespace {

using hetccl::process::Settings;

std::string plugin() {
  const char* given = std::getenv("HETCCL_TEST_NET_PLUGIN");
  return given != nullptr ? given : hetccl::fake::net_plugin_path(12);
}

// Runs a process of its own that takes `part`; returns its answer.
bool init_says(const char* part) {
  const pid_t child = fork();
  if (child == 0) {
    hetcclUniqueId id;
    const bool failed = hetcclGetUniqueId(&id) != hetcclSuccess;
    const char* text = hetcclGetLastError(nullptr);
    std::fprintf(stderr, "%s\n", text);
    _exit(failed && std::strstr(text, part) != nullptr ? 0 : 1);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

TEST_CASE("a killed rank becomes an error that names it") {
  const Settings settings(
      {{"HETCCL_TRANSPORT", std::string("ncclnet")}, {"HETCCL_NET_PLUGIN", plugin()}});
  hetccl::process::check_killed_rank();
}

TEST_CASE("a plug-in that is asked for and absent ends init, which names it") {
  {
    const Settings settings({{"HETCCL_TRANSPORT", std::string("ncclnet")}});
    CHECK(init_says("HETCCL_NET_PLUGIN is not set"));
  }
  {
    const Settings settings({{"HETCCL_TRANSPORT", std::string("ncclnet")},
                             {"HETCCL_NET_PLUGIN", std::string("nowhere")}});
    CHECK(init_says("libnccl-net-nowhere.so"));
  }
  const Settings settings({{"HETCCL_TRANSPORT", std::string("ncclnet")},
                           {"HETCCL_NET_PLUGIN", plugin()},
                           {"HETCCL_ENCRYPT", std::string("1")}});
  CHECK(init_says("HETCCL_ENCRYPT=1"));
}
