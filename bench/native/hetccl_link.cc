// hetccl between two hosts by its C API, each call complete when it returns:
//   hetccl_link messages REPEATS BYTES      rank 0 sends to rank 1
//   hetccl_link collectives REPEATS BYTES   BYTES of the largest buffer, as in torch_worker.py
#include <functional>
#include <string_view>

#include "hetccl_ranks.h"

namespace {

using bench::Buffer;
using bench::HetcclRanks;

int messages(HetcclRanks& ranks, int repeats, size_t count) {
  const bool sends = ranks.rank() == 0;
  Buffer data(count, sends ? 1 : 0);
  const auto run = [&] {
    bench::check(sends ? hetcclSend(data.data(), count, hetcclFloat32, 1, ranks.comm(), nullptr)
                       : hetcclRecv(data.data(), count, hetcclFloat32, 0, ranks.comm(), nullptr),
                 "a message");
  };
  bench::Report report;
  const auto times = bench::time(ranks, repeats, 1, run);
  report.add("send_recv", data.bytes(), times, bench::everywhere(ranks, data.holds(1)));
  return report.finish(ranks.rank());
}

// Rank r's data are r + 1, so that sums and pieces tell whose they are.
class Collectives {
 public:
  Collectives(HetcclRanks& ranks, size_t count)
      : ranks_(ranks),
        part_(count / static_cast<size_t>(ranks.size())),
        own_(static_cast<float>(ranks.rank() + 1)),
        sum_(static_cast<float>(ranks.size() * (ranks.size() + 1) / 2)),
        full_(part_ * static_cast<size_t>(ranks.size()), own_),
        other_(full_.size()),
        piece_(part_, own_) {}

  void measure(int repeats, bench::Report& report) {
    hetcclComm_t comm = ranks_.comm();
    float *full = full_.data(), *other = other_.data(), *piece = piece_.data();
    const auto type = hetcclFloat32;
    row(
        report, "all_reduce", repeats,
        [=, this] {
          return hetcclAllReduce(full, other, full_.size(), type, hetcclSum, comm, nullptr);
        },
        [&] { return other_.holds(sum_); });
    row(
        report, "all_gather", repeats,
        [=, this] { return hetcclAllGather(piece, other, part_, type, comm, nullptr); },
        [&] { return pieces_of_all(); });
    row(
        report, "reduce_scatter", repeats,
        [=, this] {
          return hetcclReduceScatter(full, piece, part_, type, hetcclSum, comm, nullptr);
        },
        [&] { return piece_.holds(sum_); });
    row(
        report, "all_to_all", repeats,
        [=, this] { return hetcclAllToAll(full, other, part_, type, comm, nullptr); },
        [&] { return pieces_of_all(); });
    row(
        report, "broadcast", repeats,
        [=, this] { return hetcclBroadcast(full, full, full_.size(), type, 0, comm, nullptr); },
        [&] { return full_.holds(1); });
  }

 private:
  void row(bench::Report& report, const char* name, int repeats,
           const std::function<hetcclResult_t()>& call, const std::function<bool()>& right) {
    const auto times = bench::time(ranks_, repeats, 1, [&] { bench::check(call(), name); });
    report.add(name, full_.bytes(), times, bench::everywhere(ranks_, right()));
  }

  [[nodiscard]] bool pieces_of_all() const {
    for (size_t i = 0; i < other_.size(); ++i) {
      if (other_.data()[i] != static_cast<float>(i / part_ + 1)) return false;
    }
    return true;
  }

  HetcclRanks& ranks_;
  const size_t part_;
  const float own_, sum_;
  Buffer full_, other_, piece_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int repeats = std::atoi(argv[2]);
  const size_t count = std::strtoull(argv[3], nullptr, 10) / sizeof(float);
  HetcclRanks ranks;
  if (argv[1] == std::string_view("messages")) return messages(ranks, repeats, count);
  bench::Report report;
  Collectives(ranks, count).measure(repeats, report);
  return report.finish(ranks.rank());
}
