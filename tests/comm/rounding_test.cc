// Sums of arbitrary floats: close to a wider type's, and the same bits on every rank.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "base/encoding.h"
#include "comm/ranks.h"
#include "fake/reference.h"

namespace {

using namespace hetccl;
using comm::Ranks;
using Bytes = std::vector<std::byte>;

// A few cases are enough for sanitizers to see all uses of memory.
#if defined(HETCCL_UNDER_ASAN)
constexpr uint64_t kOneIn = 4;
#else
constexpr uint64_t kOneIn = 1;
#endif

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

Sum random_sum(std::mt19937_64& random, int n, const FloatType& type) {
  static constexpr RedOp kSums[] = {RedOp::Sum, RedOp::Avg, RedOp::PreMulSum};
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

// The largest error of an encoding, as a part of the largest magnitude in a block.
long double coarseness_of(const Encoding& encoding) {
  switch (encoding.format) {
    case Format::Int8:
      return 1.0L / 254;
    case Format::Int4:
      return 1.0L / 14;
    case Format::E4m3:
      return 1.0L / 16;
    case Format::E5m2:
      return 1.0L / 8;
    default:
      return 0;
  }
}

// The term of element `i` that comes from `rank`.
long double contribution(const Sum& sum, size_t rank, size_t i) {
  const DataType type = sum.signature.type;
  const bool scaled = sum.signature.op == RedOp::PreMulSum;
  const auto* factor = reinterpret_cast<const std::byte*>(sum.factors[rank].element);
  return decode(type, sum.inputs[rank].data() + i * size_of(type)) *
         (scaled ? decode(type, factor) : 1);
}

// By block of the encoding: the largest of each rank, in sum. A cluster's partial sums are no
// larger than those of its ranks, and neither is the sum.
std::vector<long double> magnitudes_of(const Sum& sum, const Encoding& encoding) {
  std::vector<long double> blocks(sum.signature.count / encoding.block + 1);
  for (size_t rank = 0; rank < sum.inputs.size(); ++rank) {
    std::vector<long double> own(blocks.size());
    for (size_t i = 0; i < sum.signature.count; ++i) {
      long double& largest = own[i / encoding.block];
      largest = std::max(largest, std::fabs(contribution(sum, rank, i)));
    }
    for (size_t b = 0; b < blocks.size(); ++b) blocks[b] += own[b];
  }
  return blocks;
}

// "" or what is farther from the exact sum than G roundings of it account for, and an encoding that
// rounds the clusters' parts and the sum.
std::string fault_of(const Sum& sum, const Bytes& got, const Encoding& encoding = {}) {
  const auto n = static_cast<long double>(sum.inputs.size());
  const DataType type = sum.signature.type;
  const long double divisor = sum.signature.op == RedOp::Avg ? n : 1;
  const long double unit = std::ldexp(1.0L, -sum.fraction - 1);
  const std::vector<long double> blocks = magnitudes_of(sum, encoding);
  for (size_t i = 0; i < sum.signature.count; ++i) {
    long double exact = 0, magnitude = 0;
    for (size_t rank = 0; rank < sum.inputs.size(); ++rank) {
      const long double value = contribution(sum, rank, i);
      exact += value / divisor;
      magnitude += std::fabs(value) / divisor;
    }
    // Below the least normal number of the small types rounding is absolute.
    const long double tiny = size_of(type) == 1 ? std::ldexp(1.0L, -9) : std::ldexp(1.0L, -24);
    const long double coarse = (encoding.stochastic ? 4.02L : 2.01L) * coarseness_of(encoding) *
                               blocks[i / encoding.block] / divisor;
    const long double error = std::fabs(decode(type, got.data() + i * size_of(type)) - exact);
    if (error > coarse + n * (unit * (magnitude + coarse) + tiny * (size_of(type) < 4 ? 1 : 0))) {
      return format("element %zu of %s is %Lg from %Lg", i, describe(sum.signature).c_str(), error,
                    exact);
    }
  }
  return "";
}

// The result, which is the same on all ranks.
Bytes add(Ranks& ranks, const Sum& sum) {
  std::vector<Bytes> results = sum.inputs;
  std::vector<Status> statuses(sum.inputs.size());
  comm::on_all_ranks(ranks, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    comm::CollectiveArguments arguments{sum.signature, results[r].data(), results[r].data(),
                                        sum.factors[r]};
    statuses[r] = ranks[rank]->dispatch().call(arguments, nullptr);
  });
  for (const Status& status : statuses) REQUIRE_MESSAGE(status.ok(), status.message());
  for (const Bytes& result : results) REQUIRE(result == results[0]);
  return results[0];
}

// Returns "", or the error of the mean of elements that are all equal to `value`.
std::string fault_of_mean(Ranks& ranks, const Signature& signature, double value) {
  const size_t width = size_of(signature.type);
  const auto n = static_cast<size_t>(ranks.n());
  const size_t blocks = signature.collective == Collective::ReduceScatter ? n : 1;
  const Factor element = fake::element_of(signature.type, value);
  Bytes input;
  for (size_t i = 0; i < signature.count * blocks; ++i)
    for (size_t at = 0; at < width; ++at) input.push_back(std::byte{element.element[at]});
  std::vector<Bytes> results(n, Bytes(signature.count * width));
  std::vector<Status> statuses(n);
  comm::on_all_ranks(ranks.n(), [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    const comm::CollectiveArguments arguments{signature, input.data(), results[r].data()};
    statuses[r] = ranks[rank]->dispatch().call(arguments, nullptr);
  });
  for (const Status& status : statuses)
    if (!status.ok()) return status.message();
  const long double equal = decode(signature.type, input.data());
  for (size_t r = 0; r < (signature.collective == Collective::Reduce ? 1 : n); ++r) {
    for (size_t i = 0; i < signature.count; ++i) {
      const long double mean = decode(signature.type, results[r].data() + i * width);
      const auto* kind = std::find_if(std::begin(kFloats), std::end(kFloats),
                                      [&](const auto& one) { return one.type == signature.type; });
      const long double bound = std::ldexp(n + 1.0L, -kind->fraction - 1);
      if (std::fabs(mean / equal - 1) <= bound) continue;
      return format("element %zu on rank %zu: %Lg, not %Lg", i, r, mean, equal);
    }
  }
  return "";
}

}  // namespace

TEST_CASE("a mean of equal numbers is that number, though their sum overflows") {
  const std::pair<DataType, double> numbers[] = {
      {DataType::Float8E4m3, 416}, {DataType::Float8E5m2, 57344}, {DataType::Float16, 60000},
      {DataType::BFloat16, 3e38},  {DataType::Float32, 3e38},     {DataType::Float64, 1.7e308},
      {DataType::Float32, -1.5}};
  const std::vector<std::string> layouts[] = {
      {"A", "A", "B", "B"}, {"A", "B", "C"}, {"A", "A", "A", "B", "C"}, {"A", "A", "A"}};
  for (const auto& labels : layouts) {
    Ranks ranks(labels, {}, labels.size() % 2 == 0);
    for (const auto& [type, value] : numbers) {
      for (const auto collective :
           {Collective::AllReduce, Collective::ReduceScatter, Collective::Reduce}) {
        for (const uint64_t count : {3, 20'000}) {  // by unlike algorithms
          const Signature mean{collective, type, RedOp::Avg, 0, count};
          CAPTURE(labels.size());
          CHECK_MESSAGE(fault_of_mean(ranks, mean, value) == "", describe(mean));
        }
      }
    }
  }
}

TEST_CASE("sums are within G roundings of the exact ones, and equal on all ranks") {
  for (const uint64_t job : fake::sampled_seeds(12, kOneIn)) {
    std::mt19937_64 random(job);
    Ranks ranks(fake::random_labels(random, 6, 4), {}, job % 2 == 0);
    for (int i = 0; i < 25; ++i) {
      const Sum sum = random_sum(random, ranks.n(), kFloats[random() % std::size(kFloats)]);
      REQUIRE(fault_of(sum, add(ranks, sum)) == "");
    }
  }
}

TEST_CASE("encoded sums are within the encoding's bound, and equal on all ranks") {
  constexpr const char* kWires[] = {"int8",     "int4:32",         "e4m3:64",
                                    "e5m2:512", "int8:stochastic", "int4"};
  for (const uint64_t job : fake::sampled_seeds(12, kOneIn)) {
    std::mt19937_64 random(100 + job);
    Config config;
    config.wire = kWires[job % 6];
    config.wire_least_bytes = job % 3 == 0 ? 1000 : 0;
    config.slice_bytes = job % 2 == 0 ? 0 : 4096;
    const Encoding wire = parse_encoding(config.wire).value();
    Ranks ranks(fake::random_labels(random, 6, 4), config, job % 2 == 0);
    for (int i = 0; i < 25; ++i) {
      const Sum sum = random_sum(random, ranks.n(), kFloats[2 + random() % 3]);
      REQUIRE(fault_of(sum, add(ranks, sum), wire) == "");
    }
    // Doubles have no encoding.
    Sum exact = random_sum(random, ranks.n(), kFloats[5]);
    REQUIRE(fault_of(exact, add(ranks, exact)) == "");
  }
}

// Each rank's block is a part of the sum that begins a block of the encoding.
TEST_CASE("encoded reduce-scatters are within the encoding's bound") {
  std::mt19937_64 random(29);
  for (const char* name : {"int8", "int4:32", "e4m3:512", "e5m2:64:stochastic"}) {
    Config config;
    config.wire = name;
    config.wire_least_bytes = 0;
    config.slice_bytes = random() % 2 == 0 ? 0 : 4096;
    Ranks ranks(fake::random_labels(random, 6, 4), config, random() % 2 == 0);
    for (int i = 0; i < 10; ++i) {
      Sum sum = random_sum(random, ranks.n(), kFloats[2 + random() % 3]);
      const size_t block = 512 * (1 + random() % 6), width = size_of(sum.signature.type);
      const size_t whole = block * static_cast<size_t>(ranks.n());
      for (Bytes& input : sum.inputs) {
        const Bytes few = input;
        for (input.resize(0); input.size() < whole * width;) {
          input.insert(input.end(), few.begin(), few.end());
        }
        input.resize(whole * width);
      }
      Signature call = sum.signature;
      call.collective = Collective::ReduceScatter;
      call.count = block;
      Bytes result(whole * width);
      comm::on_all_ranks(ranks, [&](int rank) {
        const auto r = static_cast<size_t>(rank);
        CHECK(ranks[rank]
                  ->dispatch()
                  .call({call, sum.inputs[r].data(), result.data() + r * block * width,
                         sum.factors[r]},
                        nullptr)
                  .ok());
      });
      sum.signature.count = whole;
      REQUIRE(fault_of(sum, result, parse_encoding(name).value()) == "");
    }
  }
}

TEST_CASE("encoded all-gathers give what the encoding makes of each block, on all ranks") {
  std::mt19937_64 random(31);
  for (const char* name : {"int8", "int4:32", "e4m3:512", "e5m2:64"}) {
    Config config;
    config.wire_gather = name;
    config.wire_least_bytes = 0;
    config.slice_bytes = random() % 2 == 0 ? 0 : 4096;
    Ranks ranks({"a", "b", "a", "c", "b"}, config, random() % 2 == 0);
    for (int i = 0; i < 10; ++i) {
      const Sum sum = random_sum(random, ranks.n(), kFloats[2 + random() % 3]);
      Signature call = sum.signature;
      call.collective = Collective::AllGather;
      const size_t bytes = call.count * size_of(call.type);
      Bytes expected;
      for (const Bytes& input : sum.inputs) {
        Reduction reduction{.n_srcs = 1, .count = call.count, .type = call.type};
        reduction.encoding = parse_encoding(name).value();
        Bytes encoded(encoded_bytes(reduction.encoding, call.count)), block(bytes);
        reduction.dst = encoded.data(), reduction.srcs[0] = input.data();
        reduction.encoded = 1U << Reduction::kMaxSources;
        reduce(reduction);
        reduction.dst = block.data(), reduction.srcs[0] = encoded.data();
        reduction.encoded = 1;
        reduce(reduction);
        expected.insert(expected.end(), block.begin(), block.end());
      }
      std::vector<Bytes> results(sum.inputs.size(), Bytes(expected.size()));
      comm::on_all_ranks(ranks, [&](int rank) {
        const auto r = static_cast<size_t>(rank);
        const bool in_place = r % 2 == 0;
        std::byte* own = results[r].data() + r * bytes;
        if (in_place) std::memcpy(own, sum.inputs[r].data(), bytes);
        CHECK(ranks[rank]
                  ->dispatch()
                  .call({call, in_place ? own : sum.inputs[r].data(), results[r].data()}, nullptr)
                  .ok());
      });
      for (const Bytes& result : results) REQUIRE(result == expected);
    }
  }
}

// An algorithm that is chosen without an encoding may lack an encoded form.
TEST_CASE("long encoded calls over many clusters") {
  Config config;
  config.wire = config.wire_gather = "int8";
  Ranks ranks({"a", "b", "c", "d", "d"}, config, true);
  constexpr size_t kBlock = 1 << 19;
  for (const Collective collective :
       {Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather}) {
    const Signature call{collective, DataType::Float32, RedOp::Sum, 0, kBlock};
    const bool gathers = collective == Collective::AllGather;
    comm::on_all_ranks(ranks, [&](int rank) {
      std::vector<float> input(5 * kBlock, 0.5F), output(5 * kBlock);
      REQUIRE(ranks[rank]->dispatch().call({call, input.data(), output.data()}, nullptr).ok());
      CHECK(std::fabs(output[kBlock / 2] - (gathers ? 0.5F : 2.5F)) < 0.02F);
    });
  }
}

TEST_CASE("in one cluster sums are encoded where they are to be") {
  std::mt19937_64 random(37);
  for (const char* name : {"int8", "e4m3:64", "int4:32:stochastic"}) {
    for (const bool inside : {false, true}) {
      Config config;
      config.wire = name;
      config.wire_inside = inside;
      config.wire_least_bytes = 0;
      config.slice_bytes = inside ? 4096 : 0;
      const Encoding wire = inside ? parse_encoding(name).value() : Encoding{};
      Ranks ranks(std::vector<std::string>(3, "a"), config, random() % 2 == 0);
      bool exact = true;
      for (int i = 0; i < 10; ++i) {
        const Sum sum = random_sum(random, ranks.n(), kFloats[2 + random() % 3]);
        const Bytes got = add(ranks, sum);
        REQUIRE(fault_of(sum, got, wire) == "");
        exact &= fault_of(sum, got) == "";
      }
      CHECK(exact == !inside);
    }
  }
}

TEST_CASE("encoded sums move a fraction of the bytes between clusters") {
  for (const auto& [wire, bits] : {std::pair{"int8", 8}, {"int4:128", 4}}) {
    Config config;
    config.wire = wire;
    Ranks ranks({"a", "a", "b", "b"}, config, true);
    std::vector<std::vector<float>> data(4, std::vector<float>(1 << 18, 0.5F));
    comm::on_all_ranks(ranks, [&](int rank) {
      const auto r = static_cast<size_t>(rank);
      CHECK(comm::sum(*ranks[rank], data[r]).ok());
    });
    uint64_t crossed = 0;
    for (int rank = 0; rank < 4; ++rank)
      crossed += ranks[rank]->dispatch().statistics().cross_bytes_sent;
    const Encoding encoding = parse_encoding(wire).value();
    CHECK(crossed == 2 * encoded_bytes(encoding, 1 << 18));
    CHECK(crossed ==
          2 * ((1U << 18) * static_cast<unsigned>(bits) / 8 + (1U << 18) / encoding.block * 4));
    CHECK(std::fabs(data[0][77] - 2) < 0.02);
  }
}
