// HETCCL_* variables, one a line.
#include <string>

#include "base/config.h"
#include "fuzz/fuzz.h"

namespace hetccl {

std::vector<fuzz::Bytes> fuzz::seeds() {
  std::vector<Bytes> seeds;
  std::string all;
  for (const ConfigEntry& entry : config_entries()) {
    const std::string name(entry.name);
    for (const char* value : {"1", "abc", "^eth0,lo", "100-200", "inet", ""}) {
      seeds.push_back(bytes_of(name + "=" + value));
      if (Config::parse(std::vector{name + "=" + value}).ok()) all += name + "=" + value + "\n";
    }
  }
  seeds.push_back(bytes_of(all));
  seeds.push_back(bytes_of("HETCCL_TCP_STREAM=4\nPATH=/bin\nHETCCL_=\nHETCCL_DEBUG"));
  return seeds;
}

}  // namespace hetccl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hetccl;
  std::vector<std::string> environment(1);
  for (size_t i = 0; i < size; ++i) {
    if (data[i] == '\n')
      environment.emplace_back();
    else
      environment.back().push_back(static_cast<char>(data[i]));
  }
  const auto config = Config::parse(environment);
  if (!config.ok()) {
    fuzz::require(config.status().message().size() < 500, "a refusal is bounded");
    return 0;
  }
  for (const std::string& warning : config.value().warnings())
    fuzz::require(warning.size() < 300, "a warning is bounded");
  const auto values = config.value().describe();
  std::vector<std::string> described;
  for (const auto& [name, value] : values)  // some settings refuse an empty value
    if (!value.empty()) described.push_back(name + "=" + value);
  const auto again = Config::parse(described);
  fuzz::require(again.ok() && again.value().describe() == values, "settings survive the trip");
  fuzz::require(again.value().agreed() == config.value().agreed(), "so does what is agreed");
  return 0;
}
