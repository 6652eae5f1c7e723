// How long tests wait. No test depends on how fast the machine is: a limit is one that only a hang
// can miss, and a time that a test waits out grows with the machine's slowness.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>

namespace hetccl::fake {

/// A wait that has not ended after this time never will. Shorter than ctest's limit for a program.
inline constexpr std::chrono::seconds kHang(120);
inline constexpr int64_t kHangMs = 120'000;
/// Seconds after which a forked process ends itself: none outlives a broken test.
inline constexpr unsigned kAlarm = 240;

/// Returns how many times slower this machine is than a quiet one: HETCCL_TEST_PATIENCE, and at
/// least 3, because the programs beside this one take their part of the cores.
inline double patience() {
  static const double factor = [] {
    const char* text = std::getenv("HETCCL_TEST_PATIENCE");
    return std::max(3.0, text != nullptr ? std::atof(text) : 0.0);
  }();
  return factor;
}

/// `ms` times patience(): for a liveness time or a time-out whose end a test
/// waits for, while other ranks must not miss it.
inline int64_t patient_ms(int64_t ms) {
  return static_cast<int64_t>(static_cast<double>(ms) * patience());
}
inline std::chrono::milliseconds patient(std::chrono::milliseconds time) {
  return std::chrono::milliseconds(patient_ms(time.count()));
}

}  // namespace hetccl::fake
