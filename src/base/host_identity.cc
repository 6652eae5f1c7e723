#include "base/host_identity.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace hetccl {
namespace {

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string inode_of(const char* path) {
  struct stat info{};
  return stat(path, &info) == 0 ? std::to_string(info.st_ino) : "unknown";
}

}  // namespace

std::string host_identity() {
  return first_line("/proc/sys/kernel/random/boot_id") + "/net:" + inode_of("/proc/self/ns/net") +
         "/pid:" + inode_of("/proc/self/ns/pid") + "/uid:" + std::to_string(getuid());
}

std::string network_identity() {
  const std::string boot = first_line("/proc/sys/kernel/random/boot_id");
  const std::string net = inode_of("/proc/self/ns/net");
  return boot.empty() || net == "unknown" ? "" : boot + "/net:" + net;
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

}  // namespace hetccl
