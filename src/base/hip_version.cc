#include "base/hip_version.h"

namespace hetccl {
namespace {

constexpr int kMajor = 10'000'000, kMinor = 100'000;
constexpr int kOldMajor = 100;  // the major number of HIP 3
constexpr int kOldest = 6 * kMajor;

}  // namespace

std::string hip_version_text(int code) {
  if (code < kMajor) return format("%d.%d", code / kOldMajor, code % kOldMajor);
  return format("%d.%d", code / kMajor, code % kMajor / kMinor);
}

Status check_hip_version(const std::string& path, int code) {
  if (code <= 0 || code >= kOldest) return {};
  return error(ErrorCode::Unsupported,
               "%s is HIP %s; hetccl needs HIP 6 or newer: install ROCm 6 or newer, or name its "
               "libamdhip64 by HETCCL_HIP_LIBRARY",
               path.c_str(), hip_version_text(code).c_str());
}

}  // namespace hetccl
