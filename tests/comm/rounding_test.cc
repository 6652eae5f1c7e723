// Sums of arbitrary floats: close to a wider type's, and the same bits on every rank.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "comm/ranks.h"
#include "fake/reference.h"

namespace {

using namespace hetccl;
using comm::Ranks;
using Bytes = std::vector<std::byte>;

struct FloatType {
  DataType type;
  int fraction;  // bits of the mantissa
};
constexpr FloatType kFloats[] = {{DataType::Float8E4m3, 3}, {DataType::Float8E5m2, 2},
                                 {DataType::Float16, 10},   {DataType::BFloat16, 7},
                                 {DataType::Float32, 23},   {DataType::Float64, 52}};

long double decode(DataType type, const std::byte* at) {
  if (type == DataType::Float32) {
    float value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  if (type == DataType::Float64) {
    double value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  int bits = 0;
  std::memcpy(&bits, at, size_of(type));
  return fake::small_float(type)->decode(bits);
}

struct Sum {
  Signature signature;
  int fraction = 0;
  std::vector<Bytes> inputs;  // by rank
  std::vector<Factor> factors;
};

Sum random_sum(std::mt19937_64& random, int n) {
  static constexpr RedOp kSums[] = {RedOp::Sum, RedOp::Avg, RedOp::PreMulSum};
  const FloatType type = kFloats[random() % std::size(kFloats)];
  Sum sum;
  sum.fraction = type.fraction;
  sum.signature = {.collective = Collective::AllReduce,
                   .type = type.type,
                   .op = kSums[random() % 3],
                   .count = 1 + random() % 3000};
  // Six ranks' sum stays far below the largest number of any type.
  std::uniform_real_distribution<double> values(-2, 2);
  for (int rank = 0; rank < n; ++rank) {
    Bytes input(sum.signature.count * size_of(type.type));
    for (size_t i = 0; i < sum.signature.count; ++i) {
      const Factor element = fake::element_of(type.type, values(random));
      std::memcpy(input.data() + i * size_of(type.type), element.element, size_of(type.type));
    }
    sum.inputs.push_back(std::move(input));
    sum.factors.push_back(fake::element_of(type.type, values(random)));
  }
  return sum;
}

// "" or what is farther from the exact sum than G roundings of it account for.
std::string fault_of(const Sum& sum, const Bytes& got) {
  const auto n = static_cast<long double>(sum.inputs.size());
  const DataType type = sum.signature.type;
  const bool scaled = sum.signature.op == RedOp::PreMulSum;
  const long double divisor = sum.signature.op == RedOp::Avg ? n : 1;
  const long double unit = std::ldexp(1.0L, -sum.fraction - 1);
  for (size_t i = 0; i < sum.signature.count; ++i) {
    const size_t at = i * size_of(type);
    long double exact = 0, magnitude = 0;
    for (size_t rank = 0; rank < sum.inputs.size(); ++rank) {
      const long double value =
          decode(type, sum.inputs[rank].data() + at) *
          (scaled ? decode(type, reinterpret_cast<const std::byte*>(sum.factors[rank].element))
                  : 1);
      exact += value / divisor;
      magnitude += std::fabs(value) / divisor;
    }
    // Below the least normal number of the small types rounding is absolute.
    const long double tiny = size_of(type) == 1 ? std::ldexp(1.0L, -9) : std::ldexp(1.0L, -24);
    const long double error = std::fabs(decode(type, got.data() + at) - exact);
    if (error > n * (unit * magnitude + tiny * (size_of(type) < 4 ? 1 : 0))) {
      return format("element %zu of %s is %Lg from %Lg", i, describe(sum.signature).c_str(), error,
                    exact);
    }
  }
  return "";
}

}  // namespace

TEST_CASE("sums are within G roundings of the exact ones, and equal on all ranks") {
  std::mt19937_64 random(17);
  for (int job = 0; job < 12; ++job) {
    Ranks ranks(fake::random_labels(random, 6, 4), {}, job % 2 == 0);
    for (int i = 0; i < 25; ++i) {
      const Sum sum = random_sum(random, ranks.n());
      std::vector<Bytes> results = sum.inputs;
      std::vector<Status> statuses(sum.inputs.size());
      comm::on_all_ranks(ranks.n(), [&](int rank) {
        const auto r = static_cast<size_t>(rank);
        comm::CollectiveArguments arguments{sum.signature, results[r].data(), results[r].data(),
                                            sum.factors[r]};
        statuses[r] = ranks[rank]->call(arguments, nullptr);
      });
      for (const Status& status : statuses) REQUIRE(status.ok());
      for (const Bytes& result : results) REQUIRE(result == results[0]);
      REQUIRE(fault_of(sum, results[0]) == "");
    }
  }
}
