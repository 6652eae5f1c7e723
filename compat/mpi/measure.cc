#include "mpi/measure.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "mpi/compositions.h"
#include "mpi/memory.h"
#include "mpi/serve.h"

namespace hetccl::mpi {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 7, kMostCalls = 500;

struct Candidate {
  std::string name;
  Decision decision;
};

std::vector<Candidate> candidates_of(Collective collective, const Shape& shape) {
  std::vector<Candidate> list = {{"mpi", {Algorithm::Beta}}, {"device", {Algorithm::Device}}};
  if (shape.has_hierarchy() && Composition::applies(collective)) {
    list.push_back({"alpha", {Algorithm::Alpha}});
  }
  if (collective == Collective::Allreduce) {
    list.push_back({"device streams=4 communicators=2", {Algorithm::Device, 4, 2}});
  }
  return list;
}

// A collective with one size, ready to be called.
class Point {
 public:
  static Result<Point> make(Collective collective, int64_t bytes, MemorySpace memory,
                            const Job& job) {
    const Library& library = job.library();
    const int n = library.size(library.comm_world);
    const auto all = static_cast<size_t>(bytes) * static_cast<size_t>(n);
    HETCCL_ASSIGN(Scratch in, Scratch::take(memory, all));
    HETCCL_ASSIGN(Scratch out, Scratch::take(memory, all));
    HETCCL_ASSIGN(const Scratch zeros, Scratch::take({}, all));
    std::fill_n(zeros.data(), all, std::byte{0});
    for (const Scratch* one : {&in, &out}) {
      HETCCL_TRY(copy_memory(one->data(), one->place(), zeros.data(), {}, all));
    }
    Point point(std::move(in), std::move(out));
    point.fill(collective, static_cast<int>(bytes / 4), n, library);
    return point;
  }
  [[nodiscard]] int call() const { return serve({collective_, Form::Blocking, false, words_}); }

 private:
  Point(Scratch in, Scratch out) : in_(std::move(in)), out_(std::move(out)) {}
  void fill(Collective collective, int count, int n, const Library& library) {
    collective_ = collective;
    counts_.assign(static_cast<size_t>(n), count);
    for (int r = 0; r < n; ++r) places_.push_back(r * count);
    for (const char letter : arguments_of(collective)) {
      words_.push(word(letter, count, library));
    }
  }
  [[nodiscard]] Word word(char letter, int count, const Library& library) const {
    switch (letter) {
      case 's':
        return from_pointer(in_.data());
      case 'r':
      case 'b':
        return from_pointer(out_.data());
      case 'n':
      case 'N':
      case 'c':
        return from_int(count);
      case 'v':
      case 'V':
        return from_pointer(counts_.data());
      case 'd':
      case 'D':
        return from_pointer(places_.data());
      case 't':
      case 'T':
      case 'y':
        return library.float32();
      case 'o':
        return library.sum();
      case 'x':
        return library.comm_world;
      default:
        return 0;  // 'q', the root
    }
  }

  Scratch in_, out_;
  Collective collective_ = Collective::Barrier;
  std::vector<int> counts_, places_;
  Words words_;
};

// Seconds for `calls` calls on the slowest rank.
Result<double> time_calls(const Point& point, int calls, const Library& library) {
  static_cast<void>(library.combine(0, library.comm_world));  // all ranks start together
  const auto begin = Clock::now();
  for (int i = 0; i < calls; ++i) {
    if (const int code = point.call()) return error(ErrorCode::SystemError, "MPI's error %d", code);
  }
  const double mine = std::chrono::duration<double>(Clock::now() - begin).count();
  std::vector<double> all(static_cast<size_t>(library.size(library.comm_world)));
  library.gather_all(&mine, all.data(), sizeof(mine), library.comm_world);
  return *std::max_element(all.begin(), all.end());
}

Result<Json> measure_point(Job& job, const Point& point, const std::vector<Candidate>& candidates,
                           double seconds) {
  const Library& library = job.library();
  std::vector<int> calls;
  std::vector<std::vector<double>> times(candidates.size());
  const double share = seconds / static_cast<double>(candidates.size()) / kRounds;
  for (const Candidate& candidate : candidates) {
    job.force(candidate.decision);
    HETCCL_TRY(time_calls(point, 3, library).status());  // connects and warms caches
    HETCCL_ASSIGN(const double once, time_calls(point, 3, library));
    calls.push_back(std::clamp(static_cast<int>(share / (once / 3 + 1e-9)), 1, kMostCalls));
  }
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < candidates.size(); ++i) {
      // Every second round runs in reverse order.
      const size_t which = round % 2 == 0 ? i : candidates.size() - 1 - i;
      job.force(candidates[which].decision);
      HETCCL_ASSIGN(const double time, time_calls(point, calls[which], library));
      times[which].push_back(time / calls[which]);
    }
  }
  Json row;
  for (size_t i = 0; i < candidates.size(); ++i) {
    std::nth_element(times[i].begin(), times[i].begin() + kRounds / 2, times[i].end());
    row.set(candidates[i].name, 1e6 * times[i][kRounds / 2]);
  }
  return row;
}

}  // namespace

Result<Json> measure(Job& job, const MeasureOptions& options) {
  const Library& library = job.library();
  const auto shape = job.shape_of(library.comm_world, library.size(library.comm_world));
  MemorySpace memory;
  if (options.gpu >= 0) {
    HETCCL_ASSIGN(const GpuName gpu, find_gpu(options.gpu));
    memory = {MemorySpace::Kind::Device, gpu};
  }
  std::vector<Json> rows;
  for (const Collective collective : options.collectives) {
    for (const int64_t bytes : options.bytes) {
      HETCCL_ASSIGN(const Point point, Point::make(collective, bytes, memory, job));
      HETCCL_ASSIGN(Json us,
                    measure_point(job, point, candidates_of(collective, *shape), options.seconds));
      rows.push_back(
          Json{{"collective", name_of(collective)}, {"bytes", bytes}, {"us", std::move(us)}});
    }
  }
  job.force(std::nullopt);
  return Json(std::move(rows));
}

}  // namespace hetccl::mpi
