// An endpoint's door: accepts peers that knock, and frees those that are gone.
#include <algorithm>
#include <utility>

#include "base/thread.h"
#include "onesided/endpoint.h"

namespace hetccl::onesided {

namespace {

constexpr size_t kMostVisitors = 64;
// Number of lost peers whose names are kept.
constexpr size_t kMostGone = 256;

}  // namespace

// Runs on the control thread.
Status Endpoint::on_knock(std::span<const uint8_t> words) {
  bootstrap::UniqueId concealed{};
  if (words.size() != concealed.size()) {
    return error(ErrorCode::InvalidArgument, "the visitor brings no id of an endpoint");
  }
  std::copy(words.begin(), words.end(), concealed.begin());
  {
    const std::lock_guard lock(mutex_);
    if (visitors_.size() + meetings_.size() >= kMostVisitors) {
      return error(ErrorCode::SystemError, "endpoint \"%s\" is busy with %zu others that connect",
                   options_.name.c_str(), kMostVisitors);
    }
    visitors_.push_back(concealed);
  }
  news_.notify_all();
  return {};
}

void Endpoint::serve_door() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    news_.wait(lock, [this] { return stop_ || !visitors_.empty() || has_ended_; });
    receive_visitors(lock);
    free_ended(lock);
  }
  std::deque<Meeting> last = std::exchange(meetings_, {});
  lock.unlock();
  for (Meeting& meeting : last) meeting.thread.join();
}

// Meets each visitor on a thread of its own, so that a slow one delays no other.
void Endpoint::receive_visitors(std::unique_lock<std::mutex>& lock) {
  while (!visitors_.empty() && !stop_) {
    const bootstrap::UniqueId concealed = visitors_.front();
    visitors_.pop_front();
    auto ended = std::make_shared<std::atomic<bool>>(false);
    lock.unlock();
    auto thread = start_thread("hetccl-visitor", [this, concealed, ended] {
      const auto id = runtime_.service().reveal_for(door_, concealed);
      Status met = id.status();
      if (id.ok()) met = meet(id.value(), 1, runtime_.config().init_timeout_ms).status();
      if (!met.ok() && met.code() != ErrorCode::Aborted) {
        runtime_.log().warn("endpoint \"%s\": a visitor did not connect: %s", options_.name.c_str(),
                            met.message().c_str());
      }
      ended->store(true, std::memory_order_release);
      notify_door();
    });
    lock.lock();
    if (thread.ok()) {
      meetings_.push_back({std::move(thread).value(), ended});
    } else {
      runtime_.log().warn("endpoint \"%s\": %s", options_.name.c_str(),
                          thread.status().message().c_str());
    }
  }
}

// Called when a meeting or link has ended.
void Endpoint::notify_door() {
  const std::lock_guard lock(mutex_);
  has_ended_ = true;
  news_.notify_all();
}

// Frees meetings and links that have ended; only the name of a lost peer stays.
void Endpoint::free_ended(std::unique_lock<std::mutex>& lock) {
  has_ended_ = false;
  std::deque<Meeting> ended;
  std::erase_if(meetings_, [&](Meeting& meeting) {
    if (!meeting.ended->load(std::memory_order_acquire)) return false;
    ended.push_back(std::move(meeting));
    return true;
  });
  std::vector<Peer> over;
  size_t gone = 0;
  for (auto& [number, peer] : peers_) {
    if (peer.link && peer.link->over()) {
      peer.info.gone = peer.link->cause();
      peer.info.statistics = peer.link->statistics();
      over.push_back({peer.info, std::move(peer.cancel), std::move(peer.window),
                      std::move(peer.session), std::move(peer.link)});
    }
    if (!peer.link) ++gone;
  }
  for (auto at = peers_.begin(); gone > kMostGone && at != peers_.end();) {
    if (at->second.link) {
      ++at;
    } else {
      at = peers_.erase(at);
      --gone;
    }
  }
  lock.unlock();
  for (Meeting& meeting : ended) meeting.thread.join();
  for (Peer& peer : over) end(std::move(peer), TimePoint::max());
  lock.lock();
}

}  // namespace hetccl::onesided
