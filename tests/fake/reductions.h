// Reductions that tell twins apart: every type and operator, every bit pattern of narrow types,
// denormals and NaNs among wide ones, tails, and pointers that are aligned alike, otherwise, or
// not. And those of which operands are encoded.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "base/encoding.h"
#include "fake/reference.h"

namespace hetccl::fake {

/// Memory of one operand: its first element is `offset` elements behind the beginning. (An encoded
/// one has no offset.)
struct Operand {
  std::vector<std::byte> bytes;
  size_t offset = 0;
};

/// One reduction in host memory. The result may be that of a source.
struct ReductionCase {
  DataType type{};
  RedOp op{};
  size_t count = 0;
  std::vector<Operand> srcs{};
  size_t dst_offset = 0;
  int alias = -1;  ///< the source that is the result too
  Divisor divisor = 1;
  Factor factor{};
  Encoding encoding{};
  uint32_t encoded = 0;
  uint32_t salt = 0;
  uint64_t first_element = 0;
  Operand residual{};  ///< empty: none

  /// Returns it as base/reduce.h takes it, without the operands' addresses.
  [[nodiscard]] Reduction reduction() const {
    Reduction r;
    r.n_srcs = static_cast<int>(srcs.size());
    r.count = count;
    r.type = type;
    r.op = op;
    r.divisor = divisor;
    r.factor = factor;
    r.encoding = encoding;
    r.encoded = encoded;
    r.salt = salt;
    r.first_element = first_element;
    return r;
  }
  [[nodiscard]] size_t result_bytes() const {
    return bytes_of_operand(reduction(), Reduction::kMaxSources);
  }
};

/// The bytes that base/reduce.h computes: the result, and the residual with its surroundings.
struct Expected {
  std::vector<std::byte> result, residual;
};
inline Expected expected_of(const ReductionCase& test) {
  Expected expected{std::vector<std::byte>(test.result_bytes()), test.residual.bytes};
  Reduction r = test.reduction();
  r.dst = expected.result.data();
  for (size_t i = 0; i < test.srcs.size(); ++i)
    r.srcs[i] = test.srcs[i].bytes.data() + test.srcs[i].offset * size_of(test.type);
  if (!expected.residual.empty())
    r.residual = expected.residual.data() + test.residual.offset * size_of(test.type);
  reduce(r);
  return expected;
}

/// Random cases, of every type and operator; deterministic. `run` gets each.
inline void for_each_reduction(size_t largest,
                               const std::function<void(const ReductionCase&)>& run) {
  std::mt19937_64 random(17);
  for (const DataType type : kTypes) {
    for (const RedOp op : ops_of(type)) {
      for (const size_t count : {size_t{1}, size_t{3}, size_t{64}, size_t{1001}, largest}) {
        ReductionCase test{type, op, count};
        const size_t n = count == largest ? 2 : 1 + random() % Reduction::kMaxSources;
        const size_t aligned_alike = random() % 3 == 0 ? 0 : random() % 16;
        for (size_t s = 0; s < n; ++s) {
          const size_t offset = random() % 4 == 0 ? random() % 16 : aligned_alike;
          test.srcs.push_back({random_elements(random, type, count + 16), offset});
        }
        test.dst_offset = random() % 4 == 0 ? random() % 16 : aligned_alike;
        if (random() % 3 == 0) test.alias = static_cast<int>(random() % n);
        test.divisor = {static_cast<uint32_t>(1 + random() % 9), random() % 3 == 0};
        test.factor = element_of(type, random() % 2 == 0 ? 2.5 : 0.3);
        run(test);
      }
    }
  }
}

/// `count` elements: mostly finite ones, of one magnitude.
inline std::vector<std::byte> usual_elements(std::mt19937_64& random, DataType type, size_t count) {
  std::vector<std::byte> elements = random_elements(random, type, count);
  if (random() % 4 == 0) return elements;
  std::normal_distribution<double> normal(0, std::ldexp(1.0, int(random() % 20) - 10));
  for (size_t i = 0; i < count; ++i) {
    const Factor element = element_of(type, normal(random));
    std::memcpy(elements.data() + i * size_of(type), element.element, size_of(type));
  }
  return elements;
}

/// The same, encoded.
inline std::vector<std::byte> encoded_elements(std::mt19937_64& random, DataType type, size_t count,
                                               const Encoding& encoding) {
  std::vector<std::byte> bytes(encoded_bytes(encoding, count));
  const std::vector<std::byte> elements = usual_elements(random, type, count);
  Reduction r{.dst = bytes.data(), .n_srcs = 1, .count = count, .type = type};
  r.srcs[0] = elements.data();
  r.encoding = encoding;
  r.encoded = 1U << Reduction::kMaxSources;
  reduce(r);
  return bytes;
}

/// The same of reductions of which some operands are encoded, in every format.
inline void for_each_encoded_reduction(size_t largest,
                                       const std::function<void(const ReductionCase&)>& run) {
  std::mt19937_64 random(19);
  for (const DataType type : {DataType::Float32, DataType::Float16, DataType::BFloat16}) {
    for (const Format format : kFormats) {
      for (const uint16_t block : std::initializer_list<uint16_t>{32, 64, 128, 256, 512}) {
        for (const size_t count : {size_t{1}, size_t{31}, size_t{515}, size_t{1001}, largest}) {
          ReductionCase test{type, random() % 2 == 0 ? RedOp::Sum : RedOp::Avg, count};
          test.encoding = {format, block, random() % 2 == 0};
          test.salt = static_cast<uint32_t>(random());
          test.first_element = random() % 8 * block + (random() % 2 == 0 ? 0 : uint64_t{5} << 32U);
          test.divisor = {static_cast<uint32_t>(2 + random() % 9), random() % 3 == 0};
          const size_t n = 1 + random() % (random() % 2 == 0 ? 2 : Reduction::kMaxSources);
          const bool aligned = random() % 2 == 0;
          test.encoded = static_cast<uint32_t>(random() % (1U << n));
          if (test.encoded == 0 || random() % 2 == 0) test.encoded |= 1U << Reduction::kMaxSources;
          for (size_t s = 0; s < n; ++s) {
            if ((test.encoded >> s & 1U) != 0) {
              test.srcs.push_back({encoded_elements(random, type, count, test.encoding), 0});
            } else {
              test.srcs.push_back(
                  {usual_elements(random, type, count + 16), aligned ? 0 : random() % 16});
            }
          }
          const bool encoded = (test.encoded >> Reduction::kMaxSources & 1U) != 0;
          test.dst_offset = encoded || aligned ? 0 : random() % 16;
          if (encoded && random() % 2 == 0) {
            test.residual = {usual_elements(random, type, count + 16), aligned ? 0 : random() % 16};
          }
          const size_t alias = random() % (2 * n);
          if (alias < n && ((test.encoded >> alias & 1U) != 0) == encoded) {
            test.alias = static_cast<int>(alias);
          }
          run(test);
        }
      }
    }
  }
}

}  // namespace hetccl::fake
