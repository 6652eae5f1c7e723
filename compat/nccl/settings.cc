#include "nccl/settings.h"

#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <mutex>
#include <string>

namespace hetccl::nccl {
namespace {

std::string value_of(const char* variable) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? text : "";
}

// Sets a variable of hetccl's, unless it is set already or hetccl would reject the value.
void set(const char* variable, const std::string& value) {
  const std::string setting = std::string(variable) + '=' + value;
  if (std::getenv(variable) != nullptr || value.empty()) return;
  if (Config::parse({&setting, 1}).ok()) ::setenv(variable, value.c_str(), 1);
}

void take_from_nccl() {
  constexpr std::array<std::array<const char*, 2>, 4> kLevels = {
      {{"VERSION", "warn"}, {"WARN", "warn"}, {"INFO", "info"}, {"TRACE", "debug"}}};
  set("HETCCL_SOCKET_IFNAME", value_of("NCCL_SOCKET_IFNAME"));
  std::string level = value_of("NCCL_DEBUG");
  for (char& c : level) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  for (const auto& [theirs, ours] : kLevels)
    if (level == theirs) set("HETCCL_DEBUG", ours);
}

}  // namespace

Result<Config> read_settings() {
  static std::once_flag once;
  std::call_once(once, take_from_nccl);
  return Config::from_environment();
}

}  // namespace hetccl::nccl
