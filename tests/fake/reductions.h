// Reductions that tell twins apart: every type and operator, every bit pattern of narrow types,
// denormals and NaNs among wide ones, tails, and pointers that are aligned alike, otherwise, or
// not.
#pragma once

#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "base/reduce.h"
#include "fake/reference.h"

namespace hetccl::fake {

/// Memory of one operand: elements begin `offset` elements into it.
struct Operand {
  std::vector<std::byte> bytes;
  size_t offset = 0;
};

/// One reduction in host memory. The result may be that of a source.
struct ReductionCase {
  DataType type{};
  RedOp op{};
  size_t count = 0;
  std::vector<Operand> srcs;
  size_t dst_offset = 0;
  int alias = -1;  ///< the source that is the result too
  uint32_t divisor = 1;
  Factor factor{};
};

/// What base/reduce.h makes of it: the elements of the result.
inline std::vector<std::byte> expected_of(const ReductionCase& test) {
  const size_t element = size_of(test.type);
  std::vector<std::byte> result(test.count * element);
  Reduction r;
  r.dst = result.data();
  r.n_srcs = static_cast<int>(test.srcs.size());
  for (size_t i = 0; i < test.srcs.size(); ++i)
    r.srcs[i] = test.srcs[i].bytes.data() + test.srcs[i].offset * element;
  r.count = test.count;
  r.type = test.type;
  r.op = test.op;
  r.divisor = test.divisor;
  r.factor = test.factor;
  reduce(r);
  return result;
}

/// Random cases, of every type and operator; deterministic. `run` gets each.
inline void for_each_reduction(size_t largest,
                               const std::function<void(const ReductionCase&)>& run) {
  std::mt19937_64 random(17);
  for (const DataType type : kTypes) {
    for (const RedOp op : ops_of(type)) {
      for (const size_t count : {size_t{1}, size_t{3}, size_t{64}, size_t{1001}, largest}) {
        ReductionCase test{type, op, count, {}, 0, -1, 1, {}};
        const size_t n = count == largest ? 2 : 1 + random() % Reduction::kMaxSources;
        const size_t aligned_alike = random() % 3 == 0 ? 0 : random() % 16;
        for (size_t s = 0; s < n; ++s) {
          const size_t offset = random() % 4 == 0 ? random() % 16 : aligned_alike;
          test.srcs.push_back({random_elements(random, type, count + 16), offset});
        }
        test.dst_offset = random() % 4 == 0 ? random() % 16 : aligned_alike;
        if (random() % 3 == 0) test.alias = static_cast<int>(random() % n);
        test.divisor = static_cast<uint32_t>(1 + random() % 9);
        test.factor = element_of(type, random() % 2 == 0 ? 2.5 : 0.3);
        run(test);
      }
    }
  }
}

}  // namespace hetccl::fake
