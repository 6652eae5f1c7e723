// Error feedback: the next call adds the rounding errors of a call's codes.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>

#include "base/encoding.h"
#include "comm/ranks.h"
#include "fake/reference.h"

namespace {

using namespace hetccl;
using comm::Ranks;
using Floats = std::vector<float>;

// A few cases are enough for sanitizers to see all uses of memory.
#if defined(HETCCL_UNDER_ASAN)
constexpr uint64_t kFeedbackOneIn = 3;
#else
constexpr uint64_t kFeedbackOneIn = 1;
#endif

bool has_equal_bits(const Floats& one, const Floats& other) {
  return std::memcmp(one.data(), other.data(), one.size() * sizeof(float)) == 0;
}

/// One tensor that a job sums again and again.
class Tensor {
 public:
  /// A tensor of `block` elements, or of `block` for each rank if the sum is scattered.
  Tensor(Ranks& ranks, Collective collective, RedOp op, size_t block)
      : ranks_(ranks),
        signature_{collective, DataType::Float32, op, 0, block},
        count_(collective == Collective::ReduceScatter ? block * n() : block),
        inputs_(n(), Floats(count_)),
        residuals_(n(), Floats(count_)) {}

  [[nodiscard]] size_t count() const { return count_; }
  [[nodiscard]] Floats& input(size_t rank) { return inputs_[rank]; }
  /// By element, of all ranks.
  [[nodiscard]] double residual(size_t i) const {
    double sum = 0;
    for (const Floats& residual : residuals_) sum += residual[i];
    return sum;
  }
  [[nodiscard]] double exact(size_t i) const {
    double sum = 0;
    for (size_t rank = 0; rank < n(); ++rank) sum += inputs_[rank][i] * factor(rank);
    return signature_.op == RedOp::Avg ? sum / static_cast<double>(n()) : sum;
  }

  /// The sum. After a reduce-scatter, each rank has a part of it.
  Floats sum(bool feedback = true) {
    const bool scatters = signature_.collective == Collective::ReduceScatter;
    std::vector<Floats> results(n(), Floats(signature_.count));
    comm::on_all_ranks(ranks_, [&](int rank) {
      const auto r = static_cast<size_t>(rank);
      comm::CollectiveArguments call{signature_, inputs_[r].data(), results[r].data()};
      call.factor = fake::element_of(DataType::Float32, factor(r));
      if (feedback) call.residual = residuals_[r].data();
      const Status status = ranks_[rank]->dispatch().call(call, nullptr);
      CHECK_MESSAGE(status.ok(), status.message());
    });
    Floats whole;
    for (const Floats& result : results) {
      if (scatters) whole.insert(whole.end(), result.begin(), result.end());
      if (!scatters) REQUIRE(has_equal_bits(result, results[0]));
    }
    return scatters ? whole : results[0];
  }

 private:
  [[nodiscard]] size_t n() const { return static_cast<size_t>(ranks_.n()); }
  [[nodiscard]] double factor(size_t rank) const {
    return signature_.op == RedOp::PreMulSum ? 0.5 + static_cast<double>(rank % 3) : 1;
  }

  Ranks& ranks_;
  Signature signature_;
  size_t count_;
  std::vector<Floats> inputs_, residuals_;
};

void fill(Tensor& tensor, int n_ranks, std::mt19937_64& random) {
  std::uniform_real_distribution<float> values(-2, 2);
  for (int rank = 0; rank < n_ranks; ++rank) {
    for (float& value : tensor.input(static_cast<size_t>(rank))) value = values(random);
  }
}

Config config_with(const char* wire) {
  Config config;
  config.wire = wire;
  config.wire_least_bytes = 0;
  return config;
}

constexpr const char* kWires[] = {"int8", "int4:32", "e4m3:64", "e5m2:512", "int4:stochastic"};
constexpr Collective kCollectives[] = {Collective::AllReduce, Collective::ReduceScatter};

}  // namespace

TEST_CASE("over many calls nothing is lost but what the residuals hold") {
  constexpr int kCalls = 12;
  int n_encoded = 0, n_apart = 0;
  for (const uint64_t job : fake::sampled_seeds(10, kFeedbackOneIn)) {
    std::mt19937_64 random(job);
    Config config = config_with(kWires[job % 5]);
    config.slice_bytes = job % 2 == 0 ? 0 : 4096;
    Ranks ranks(fake::random_labels(random, 6, 4), config, job % 2 == 0);
    n_apart += std::set(ranks.labels().begin(), ranks.labels().end()).size() > 1 ? 1 : 0;
    for (const Collective collective : kCollectives) {
      for (const RedOp op : {RedOp::Sum, RedOp::PreMulSum}) {
        Tensor tensor(ranks, collective, op, 512 * (1 + random() % 3));
        std::vector<double> lost(tensor.count());
        for (int call = 0; call < kCalls; ++call) {
          fill(tensor, ranks.n(), random);
          const Floats sum = tensor.sum();
          for (size_t i = 0; i < lost.size(); ++i) lost[i] += tensor.exact(i) - sum[i];
        }
        double held = 0;
        for (size_t i = 0; i < lost.size(); ++i) {
          REQUIRE(std::fabs(lost[i] - tensor.residual(i)) < 2e-4);
          held = std::max(held, std::fabs(lost[i]));
        }
        n_encoded += held > 1e-3 ? 1 : 0;
      }
    }
  }
  CHECK(n_encoded >= 3 * n_apart);  // of 4 in each job of several clusters
}

TEST_CASE("the mean of many results comes near the exact one, which without feedback it does not") {
  std::mt19937_64 random(43);
  constexpr int kCalls = 16;
  for (const RedOp op : {RedOp::Sum, RedOp::Avg}) {
    for (const Collective collective : kCollectives) {
      Ranks ranks({"a", "b", "a", "b", "c"}, config_with("int4"), true);
      const auto largest_loss = [&](bool feedback) {
        Tensor tensor(ranks, collective, op, 1024);
        fill(tensor, ranks.n(), random);
        std::vector<double> lost(tensor.count());
        for (int call = 0; call < kCalls; ++call) {
          const Floats sum = tensor.sum(feedback);
          for (size_t i = 0; i < lost.size(); ++i) lost[i] += tensor.exact(i) - sum[i];
        }
        double largest = 0;
        for (const double one : lost) largest = std::max(largest, std::fabs(one) / kCalls);
        return largest;
      };
      CHECK(largest_loss(true) * 5 < largest_loss(false));
    }
  }
}

TEST_CASE("in one cluster, encoded inside, nothing is lost, either") {
  std::mt19937_64 random(47);
  Config config = config_with("int8:64");
  config.wire_inside = true;
  Ranks ranks(std::vector<std::string>(3, "a"), config, true);
  Tensor tensor(ranks, Collective::AllReduce, RedOp::Sum, 3000);
  std::vector<double> lost(tensor.count());
  double held = 0;
  for (int call = 0; call < 8; ++call) {
    fill(tensor, ranks.n(), random);
    const Floats sum = tensor.sum();
    for (size_t i = 0; i < lost.size(); ++i) lost[i] += tensor.exact(i) - sum[i];
  }
  for (size_t i = 0; i < lost.size(); ++i) {
    REQUIRE(std::fabs(lost[i] - tensor.residual(i)) < 1e-4);
    held = std::max(held, std::fabs(tensor.residual(i)));
  }
  CHECK(held > 1e-3);
}

// Devices that lie where hosts cannot look, with slices and calls under way at random times.
TEST_CASE("calls in flight use one residual in their order") {
  constexpr size_t kCount = size_t{1} << 16, kBytes = kCount * sizeof(float);
  constexpr int kCalls = 6;
  for (const bool windows : {true, false}) {
    std::vector<Config> configs(2, config_with("int4"));
    for (size_t rank = 0; rank < 2; ++rank) {
      configs[rank].cluster = rank == 0 ? "A" : "B";
      configs[rank].transport_shm = windows;
      configs[rank].slice_bytes = 16 << 10;
    }
    std::vector<Floats> sums(2, Floats(kCount)), residuals(2, Floats(kCount));
    const auto value = [](size_t rank, size_t i) {
      return static_cast<float>((i * (rank + 3)) % 101) / 7;
    };
    comm::on_fake_devices(configs, {.max_delay_us = 20}, [&](int rank, auto& device, auto made) {
      const auto r = static_cast<size_t>(rank);
      Floats host(kCount);
      const auto stream = device.create_stream().value();
      auto* send = device.allocate(kBytes).value();
      auto* residual = device.allocate(kBytes).value();
      device.upload(residual, host.data(), kBytes);
      for (size_t i = 0; i < kCount; ++i) host[i] = value(r, i);
      device.upload(send, host.data(), kBytes);
      std::vector<void*> results;
      for (int call = 0; call < kCalls; ++call) {
        results.push_back(device.allocate(kBytes).value());
        comm::CollectiveArguments arguments{
            {Collective::AllReduce, DataType::Float32, RedOp::Sum, 0, kCount},
            send,
            results.back()};
        arguments.residual = residual;
        const auto started = made->dispatch().start(arguments, {.stream = stream->native()});
        REQUIRE_MESSAGE(started.ok(), started.status().message());
      }
      REQUIRE(device.synchronize(fake::kHang));
      for (void* result : results) {
        device.download(host.data(), result, kBytes);
        for (size_t i = 0; i < kCount; ++i) sums[r][i] += host[i];
      }
      device.download(residuals[r].data(), residual, kBytes);
      CHECK(made->finish().ok());
    });
    CHECK(has_equal_bits(sums[0], sums[1]));
    for (size_t i = 0; i < kCount; ++i) {
      const double lost = kCalls * (double{value(0, i)} + value(1, i)) - sums[0][i];
      REQUIRE(std::fabs(lost - residuals[0][i] - residuals[1][i]) < 1e-3);
    }
  }
}

TEST_CASE("a call with NaN or infinities leaves nothing for the next one") {
  std::mt19937_64 random(53);
  Ranks ranks({"a", "b", "b"}, config_with("int8"), true);
  Tensor tensor(ranks, Collective::AllReduce, RedOp::Sum, 1024);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 3e38F}) {
    fill(tensor, ranks.n(), random);
    tensor.input(1)[300] = tensor.input(2)[300] = bad;
    CHECK_FALSE(std::isfinite(tensor.sum()[300]));
    fill(tensor, ranks.n(), random);
    const Floats sum = tensor.sum();
    for (size_t i = 0; i < sum.size(); ++i) REQUIRE(std::fabs(sum[i] - tensor.exact(i)) < 0.2);
  }
}

TEST_CASE("a call that is not encoded leaves the residual alone, and adds nothing of it") {
  std::mt19937_64 random(59);
  for (const int64_t below : {int64_t{1}, int64_t{1} << 40}) {
    Config config = config_with("int4");
    config.wire_below_mbps = below;
    Ranks ranks({"a", "b"}, config, true);
    Tensor tensor(ranks, Collective::AllReduce, RedOp::Sum, 1024);
    double largest = 0;
    for (int call = 0; call < 2; ++call) {
      fill(tensor, ranks.n(), random);
      const Floats sum = tensor.sum();
      for (size_t i = 0; i < sum.size(); ++i)
        largest = std::max(largest, std::fabs(sum[i] - tensor.exact(i)));
    }
    // No link is as slow as 1 Mbit/s.
    CHECK((largest < 1e-5) == (below == 1));
    CHECK((tensor.residual(7) == 0) == (below == 1));
  }
}

// Rank 1 keeps no residual, so the sums lack its codes' rounding errors.
TEST_CASE("some ranks may have a residual and others none") {
  constexpr int kCalls = 10;
  Ranks ranks({"a", "b", "c"}, config_with("int4"), true);
  std::vector<Floats> residuals(3, Floats(1024));
  const auto loss_with = [&](bool feedback) {
    std::vector<double> lost(1024);
    for (int number = 0; number < kCalls; ++number) {
      std::vector<Floats> data(3, Floats(1024));
      comm::on_all_ranks(ranks, [&](int rank) {
        const auto r = static_cast<size_t>(rank);
        for (size_t i = 0; i < data[r].size(); ++i) data[r][i] = static_cast<float>(i % 10) / 9;
        comm::CollectiveArguments call{
            {Collective::AllReduce, DataType::Float32, RedOp::Sum, 0, 1024},
            data[r].data(),
            data[r].data()};
        if (feedback && rank != 1) call.residual = residuals[r].data();
        CHECK(ranks[rank]->dispatch().call(call, nullptr).ok());
      });
      CHECK(data[0] == data[1]);
      CHECK(data[0] == data[2]);
      for (size_t i = 0; i < lost.size(); ++i)
        lost[i] += data[0][i] - 3 * static_cast<double>(i % 10) / 9;
    }
    double total = 0;
    for (const double one : lost) total += std::fabs(one);
    return total;
  };
  const double without = loss_with(false), with = loss_with(true);
  CHECK(without > 0);
  CHECK(with < without / 2);  // rank 1 makes a third of the codes
  CHECK(residuals[1] == Floats(1024));
  for (const size_t rank : {0, 2}) CHECK(residuals[rank] != Floats(1024));
}

TEST_CASE("a residual that overlaps a buffer, or lies between elements, is refused") {
  Ranks ranks({"a"}, {}, true);
  Floats data(64), residual(64);
  const auto message_of = [&](void* at) {
    comm::CollectiveArguments call{{Collective::AllReduce, DataType::Float32, RedOp::Sum, 0, 32},
                                   data.data(),
                                   data.data() + 32};
    call.residual = at;
    return ranks[0]->dispatch().call(call, nullptr).message();
  };
  CHECK(message_of(data.data() + 31).find("residual and sendbuff overlap") != std::string::npos);
  CHECK(message_of(data.data() + 40).find("residual and recvbuff overlap") != std::string::npos);
  CHECK(message_of(reinterpret_cast<std::byte*>(residual.data()) + 1).find("aligned to 4") !=
        std::string::npos);
  CHECK(message_of(residual.data()) == "");
}
