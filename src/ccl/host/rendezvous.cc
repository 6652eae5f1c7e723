#include "ccl/host/rendezvous.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace hetccl::ccl::host {

namespace {

constexpr uint32_t kAttached = 1;
constexpr uint32_t kReady = 2;  // also: has opened the others' wakers

std::string missing_ranks(const Segment& segment, uint32_t step) {
  constexpr int kNamed = 16;
  std::string text;
  int missing = 0;
  for (int r = 0; r < segment.n_ranks(); ++r) {
    if (segment.control(r).joined.load(std::memory_order_acquire) >= step) continue;
    if (++missing <= kNamed) text += (text.empty() ? "" : ", ") + std::to_string(r);
  }
  if (missing > kNamed) text += " and " + std::to_string(missing - kNamed) + " more";
  return text;
}

Status wait_for_all(const Segment& segment, uint32_t step, TimePoint deadline,
                    const WaitLimit& limit) {
  auto pause = std::chrono::microseconds(20);
  for (;;) {
    const std::string missing = missing_ranks(segment, step);
    if (missing.empty()) return {};
    if (segment.failed())
      return segment.failure().with("another rank of the host cluster could not join");
    if (Status cancelled = limit.cancelled(); !cancelled.ok()) {
      segment.fail(cancelled);
      return cancelled;
    }
    if (limit.now() >= deadline) {
      const Status late =
          error(ErrorCode::Timeout,
                "cluster rank(s) %s of %d did not join the host cluster within "
                "%lld ms; are they running, and on this host?",
                missing.c_str(), segment.n_ranks(), static_cast<long long>(limit.timeout_ms));
      segment.fail(late);
      return late;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(1000));
  }
}

// If a peer's waker cannot be opened, tells the peer that it must not sleep.
std::vector<RemoteWaker> open_wakers(const Segment& segment, int rank) {
  std::vector<RemoteWaker> wakers(static_cast<size_t>(segment.n_ranks()));
  for (int r = 0; r < segment.n_ranks(); ++r) {
    RankControl& theirs = segment.control(r);
    if (r == rank || theirs.waker.fd < 0) continue;
    auto opened = RemoteWaker::open(theirs.waker);
    if (opened.ok())
      wakers[static_cast<size_t>(r)] = std::move(opened).value();
    else
      theirs.unwakeable.store(1, std::memory_order_release);
  }
  return wakers;
}

}  // namespace

Result<std::shared_ptr<Member>> join(SharedMemory memory, const Geometry& geometry, int rank,
                                     Waker* waker, const WaitLimit& limit) {
  const TimePoint deadline = limit.deadline();
  Segment segment(std::move(memory), geometry);
  RankControl& mine = segment.control(rank);
  const WakerAddress address = waker ? waker->address() : WakerAddress{};
  // The rank that claims a number writes its address before others may read it.
  if (mine.claimed.exchange(1) != 0)
    return error(ErrorCode::InvalidUsage, "cluster rank %d joined the host cluster twice", rank);
  mine.waker = address;
  mine.joined.store(kAttached, std::memory_order_release);
  HETCCL_TRY(wait_for_all(segment, kAttached, deadline, limit));
  segment.close_descriptor();
  std::vector<RemoteWaker> wakers = open_wakers(segment, rank);
  mine.joined.store(kReady, std::memory_order_release);
  HETCCL_TRY(wait_for_all(segment, kReady, deadline, limit));
  return std::make_shared<Member>(std::move(segment), rank, waker, std::move(wakers));
}

}  // namespace hetccl::ccl::host
