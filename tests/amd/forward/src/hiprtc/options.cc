#include "hiprtc/options.h"

#include <cstdlib>
#include <string_view>

#include "core/architecture.h"
#include "core/reject.h"
#include "cuda/driver.h"

namespace forward {
namespace {

bool takes_value(std::string_view option) {
  return option == "-D" || option == "-U" || option == "-I" || option == "-include";
}

bool starts_with_any(std::string_view option, std::initializer_list<std::string_view> prefixes) {
  for (const std::string_view prefix : prefixes) {
    if (option.starts_with(prefix)) return true;
  }
  return false;
}

// Returns the architecture in `option`, or an empty view if it names none.
std::string_view architecture_in(std::string_view option) {
  for (const std::string_view prefix : {"--offload-arch=", "--gpu-architecture="}) {
    if (option.starts_with(prefix)) return option.substr(prefix.size());
  }
  return {};
}

// Flags that change results go on as NVRTC's equivalents. Other flags only tune code.
void add_clang_flag(const std::string& option, Options* result) {
  if (option == "-ffast-math") result->nvrtc.emplace_back("--use_fast_math");
  if (option == "-ffp-contract=off") result->nvrtc.emplace_back("--fmad=false");
  if (option == "-fgpu-flush-denormals-to-zero") result->nvrtc.emplace_back("--ftz=true");
  if (option == "-fno-hip-fp32-correctly-rounded-divide-sqrt") {
    result->nvrtc.emplace_back("--prec-div=false");
    result->nvrtc.emplace_back("--prec-sqrt=false");
  }
}

bool translate_one(const std::string& option, Architecture* amd, Options* result) {
  const std::string_view architecture = architecture_in(option);
  if (!architecture.empty()) {
    result->wrong_architecture = !known_architecture(architecture);
    if (result->wrong_architecture) return false;
    *amd = describe_architecture(architecture);
    return true;
  }
  if (starts_with_any(option, {"-D", "-U", "-I"})) {
    result->nvrtc.push_back(option);
    return true;
  }
  for (const std::string_view name : {"--define-macro=", "--undefine-macro="}) {
    if (!option.starts_with(name)) continue;
    result->nvrtc.push_back((name[2] == 'd' ? "-D" : "-U") + option.substr(name.size()));
    return true;
  }
  if (starts_with_any(option, {"-std=", "--std="})) {
    const std::string standard = option.substr(option.find('=') + 1);
    result->nvrtc.push_back("--std=" +
                            (standard.starts_with("gnu") ? "c" + standard.substr(3) : standard));
    return true;
  }
  add_clang_flag(option, result);
  return starts_with_any(option, {"-O", "-g", "-m", "-f", "-W", "-w", "-R", "--gpu-max-threads"});
}

std::string attribute(const cuda::Driver& driver, int device, int number) {
  int value = 0;
  return driver.device_get_attribute(&value, number, device) == 0 ? std::to_string(value) : "";
}

}  // namespace

Options translate_options(const std::vector<std::string>& options,
                          const std::string& real_architecture) {
  Options result;
  result.nvrtc.push_back("--gpu-architecture=" + real_architecture);
  Architecture amd = claimed_architecture();
  for (std::size_t i = 0; i < options.size(); ++i) {
    std::string option = options[i];
    if (takes_value(option) && i + 1 < options.size()) option += options[++i];
    if (translate_one(option, &amd, &result)) continue;
    result.error = "forward: hiprtcCompileProgram rejects option '" + option +
                   "': it is not an option of AMD's compiler, or names no AMD architecture\n";
    count_rejected_text("hiprtcCompileProgram", option.c_str());
    return result;
  }
  result.nvrtc.push_back("-D__" + amd.name.substr(0, amd.name.find(':')) + "__=1");
  result.nvrtc.push_back("-D__GFX" + std::to_string(amd.major) + "__=1");
  result.nvrtc.push_back("-D__FORWARD_WAVE=" + std::to_string(amd.warp_size));
  return result;
}

std::string real_architecture() {
  const char* named = std::getenv("FORWARD_SM");
  if (named != nullptr) return named;
  const cuda::Driver* driver = cuda::driver();
  if (driver == nullptr || driver->init(0) != 0) return "";
  int device = 0;
  if (driver->ctx_get_device(&device) != 0) device = 0;
  const std::string major = attribute(*driver, device, 75);
  const std::string minor = attribute(*driver, device, 76);
  return major.empty() || minor.empty() ? "" : "sm_" + major + minor;
}

}  // namespace forward
