#include "host/crew.h"

#include <algorithm>
#include <system_error>

#include "base/clock.h"
#include "base/cpu_pause.h"
#include "base/divide.h"
#include "base/encoding.h"
#include "base/thread.h"

namespace hetccl {

namespace {

// Smaller work does not justify waking another core.
constexpr size_t kLeastBytes = size_t{256} << 10;
constexpr size_t kLeastPart = size_t{16} << 10;
// More parts than threads, so that a delayed thread delays little.
constexpr size_t kPartsPerThread = 2;
// How long helpers spin before they sleep: a collective's next piece comes soon.
constexpr auto kSpin = std::chrono::microseconds(100);
constexpr int kLooks = 64;  // looks per reading of the clock
constexpr size_t kMaxSources = Reduction::kMaxSources;

// Returns the bytes of each part but the last: whole pages, so whole elements.
size_t part_of(size_t bytes, size_t parts) {
  constexpr size_t kPage = 4096;
  return std::max(kLeastPart, (bytes / parts + kPage - 1) / kPage * kPage);
}

}  // namespace

Crew::Crew(int threads) : threads_(std::clamp(threads, 1, kMaxThreads)) {
  static_assert(std::atomic<Open>::is_always_lock_free);
}

Crew::~Crew() {
  end();
}

void Crew::limit(int threads) {
  std::lock_guard lock(owner_);
  threads_.store(std::max(1, std::min(threads, this->threads())));
  if (static_cast<int>(helpers_.size()) >= this->threads()) end();  // they restart when needed
}

void Crew::rest() {
  std::lock_guard lock(owner_);
  end();
}

void Crew::end() {
  stop_.store(true);
  calls_.fetch_add(1);
  calls_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
  helpers_.clear();
  stop_.store(false);
}

size_t Crew::all_parts() const {
  return static_cast<size_t>(threads()) * kPartsPerThread;
}

void Crew::copy(void* dst, const void* src, size_t bytes, Caching caching) {
  const Copy one = {dst, src, bytes};
  copy({&one, 1}, caching);
}

void Crew::copy(std::span<const Copy> copies, Caching caching) {
  size_t bytes = 0;
  for (const Copy& one : copies) bytes += one.bytes;
  const bool alone = threads() == 1 || bytes < kLeastBytes;
  const size_t part = alone ? std::max<size_t>(bytes, 1) : part_of(bytes, all_parts());
  // Copies the bytes [begin, end) of all copies, as if concatenated.
  const auto copy_part = [&](size_t begin, size_t end) {
    for (const Copy& one : copies) {
      if (begin < one.bytes && begin < end) {
        hetccl::copy(static_cast<std::byte*>(one.dst) + begin,
                     static_cast<const std::byte*>(one.src) + begin,
                     std::min(end, one.bytes) - begin, caching);
      }
      begin = begin > one.bytes ? begin - one.bytes : 0;
      end = end > one.bytes ? end - one.bytes : 0;
    }
  };
  if (alone) return copy_part(0, bytes);
  share((bytes + part - 1) / part,
        [&](size_t i) { copy_part(i * part, std::min(bytes, (i + 1) * part)); });
}

void Crew::reduce(void* dst, const void* const* srcs, int n_srcs, size_t count, DataType type,
                  RedOp op, Divisor divisor, const Factor* factors, Caching caching, int most) {
  const size_t element = size_of(type);
  const auto sources = static_cast<size_t>(n_srcs);
  const bool few = most > 0 && most < threads();  // one part each, so no more threads than that
  if (threads() == 1 || most == 1 || count * element * sources < kLeastBytes ||
      sources > kMaxSources) {
    return hetccl::reduce(dst, srcs, n_srcs, count, type, op, divisor, factors, caching);
  }
  const size_t parts = few ? static_cast<size_t>(most) : all_parts();
  const size_t part = part_of(count * element, parts);
  share((count * element + part - 1) / part, [&](size_t i) {
    const size_t begin = i * part;
    const void* moved[kMaxSources];
    for (size_t s = 0; s < sources; ++s) moved[s] = static_cast<const std::byte*>(srcs[s]) + begin;
    hetccl::reduce(static_cast<std::byte*>(dst) + begin, moved, n_srcs,
                   std::min(part, count * element - begin) / element, type, op, divisor, factors,
                   caching);
  });
}

void Crew::reduce_encoded(const Reduction& reduction, size_t begin, size_t count) {
  const size_t block = reduction.encoding.block, most = reduction.threads;
  const size_t bytes = count * size_of(reduction.type) * static_cast<size_t>(reduction.n_srcs);
  if (threads() == 1 || most == 1 || bytes < kLeastBytes) {
    return hetccl::reduce_encoded(reduction, begin, count);
  }
  const bool few = most > 0 && most < static_cast<size_t>(threads());
  const size_t part = round_up(divide_up(count, few ? most : all_parts()), block);
  share(divide_up(count, part), [&](size_t i) {
    hetccl::reduce_encoded(reduction, begin + i * part, std::min(part, count - i * part));
  });
}

void Crew::run(size_t n_parts, Work work, void* context) {
  const std::unique_lock owner(owner_, std::try_to_lock);
  if (!owner.owns_lock() || n_parts < 2 || n_parts > UINT16_MAX) {
    for (size_t part = 0; part < n_parts; ++part) work(context, part);
    return;
  }
  start();
  work_ = work;
  context_ = context;
  finished_.store(0, std::memory_order_relaxed);
  const uint32_t number = open_.load(std::memory_order_relaxed).number + 1;
  open_.store({number, static_cast<uint16_t>(n_parts), 0}, std::memory_order_release);
  calls_.fetch_add(1);
  calls_.notify_all();
  while (run_part()) {
  }
  for (int looks = 0; finished_.load(std::memory_order_acquire) < n_parts; ++looks) {
    looks < kLooks ? cpu_pause() : std::this_thread::yield();
  }
}

// Runs one part. Returns false if none is left.
bool Crew::run_part() {
  Open open = open_.load(std::memory_order_acquire);
  do {
    if (open.next == open.n_parts) return false;
  } while (!open_.compare_exchange_weak(
      open, {open.number, open.n_parts, static_cast<uint16_t>(open.next + 1)},
      std::memory_order_acq_rel, std::memory_order_acquire));
  work_(context_, open.next);
  finished_.fetch_add(1, std::memory_order_release);
  return true;
}

void Crew::start() {
  helpers_.reserve(static_cast<size_t>(threads()));
  while (static_cast<int>(helpers_.size()) + 1 < threads()) {
    auto helper = start_thread("hetccl-crew", [this] { help(); });
    if (helper.ok()) {
      helpers_.push_back(std::move(helper).value());
    } else {
      threads_.store(static_cast<int>(helpers_.size()) + 1);  // the threads that did start do all
                                                              // parts
    }
  }
}

void Crew::help() {
  for (;;) {
    const uint32_t calls = calls_.load();
    if (stop_.load()) return;  // check after loading `calls`: stopping changes it, too
    const TimePoint since = steady_clock().now();
    bool worked = false;
    while (run_part()) worked = true;
    if (worked) continue;
    while (calls == calls_.load() && steady_clock().now() - since < kSpin) {
      for (int i = 0; i < kLooks && calls == calls_.load(); ++i) cpu_pause();
      std::this_thread::yield();
    }
    calls_.wait(calls);  // returns at once if there was one meanwhile
  }
}

}  // namespace hetccl
