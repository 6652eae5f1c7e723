// Shared by the tests of this room: Services on loopback, ranks as threads, and a box that catches
// a failure with a deadline.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "fake/patience.h"
#include "fake/thread.h"

namespace hetccl::bootstrap::testing {

using fake::kHang;
using fake::kHangMs;
using fake::patient;
using fake::patient_ms;

/// Long, because no silence is expected; tests of silence set their own.
inline constexpr int64_t kLivenessMs = kHangMs;

inline Config config(int64_t liveness_ms = kLivenessMs) {
  Config made;
  made.socket_ifname = "=lo";
  made.liveness_ms = liveness_ms;
  return made;
}

inline std::unique_ptr<Service> service(int64_t liveness_ms = kLivenessMs) {
  return Service::create(config(liveness_ms), Log{LogLevel::Error}).value();
}

/// Catches the failure passed to `on_failure`.
class FailureBox {
 public:
  std::function<void(const Failure&)> callback() {
    return [this](const Failure& failure) {
      std::lock_guard lock(mutex_);
      ++count_;
      if (!failure_) failure_ = failure;
      changed_.notify_all();
    };
  }
  std::optional<Failure> wait(std::chrono::milliseconds patience = kHang) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, patience, [this] { return failure_.has_value(); });
    return failure_;
  }
  int count() {
    std::lock_guard lock(mutex_);
    return count_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Failure> failure_;
  int count_ = 0;
};

inline JoinOptions options(int rank, int n_ranks, int64_t timeout_ms = kHangMs,
                           FailureBox* box = nullptr) {
  JoinOptions made;
  made.rank = rank;
  made.n_ranks = n_ranks;
  made.description = "host t, pid " + std::to_string(1000 + rank);
  made.timeout_ms = timeout_ms;
  if (box) made.on_failure = box->callback();
  return made;
}

/// Runs `body(0)` to `body(n - 1)`, each on its own thread, and waits for all.
inline void parallel(int n, const std::function<void(int)>& body) {
  fake::on_all_ranks(n, body);
}

using Sessions = std::vector<std::unique_ptr<Session>>;

/// Joins all ranks: rank r through services[r % services.size()], with boxes[r] if there is one.
inline Sessions join_all(const std::vector<Service*>& services, const UniqueId& id, int n_ranks,
                         std::vector<FailureBox>* boxes = nullptr) {
  Sessions sessions(static_cast<size_t>(n_ranks));
  parallel(n_ranks, [&](int rank) {
    const auto at = static_cast<size_t>(rank);
    auto joined = services[at % services.size()]->join(
        id, options(rank, n_ranks, kHangMs, boxes ? &(*boxes)[at] : nullptr));
    if (joined.ok()) sessions[at] = std::move(joined).value();
  });
  return sessions;
}

inline bool complete(const Sessions& sessions) {
  for (const auto& session : sessions) {
    if (!session) return false;
  }
  return true;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace hetccl::bootstrap::testing
