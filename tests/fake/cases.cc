#include "fake/cases.h"

#include <algorithm>
#include <cstring>

#include "base/reduce.h"
#include "base/status.h"
#include "fake/reference.h"

namespace hetccl::fake {
namespace {

template <typename T>
T pick(std::mt19937_64& random, std::initializer_list<T> values) {
  return values.begin()[random() % values.size()];
}

uint64_t random_count(std::mt19937_64& random, uint64_t max_count) {
  switch (random() % 8) {
    case 0:
      return random() % 3;
    case 1:
      return random() % 70;
    default:
      return random() % (max_count + 1);
  }
}

bool reduces(const Signature& call) {
  return call.collective == Collective::AllReduce || call.collective == Collective::ReduceScatter ||
         call.collective == Collective::Reduce;
}

}  // namespace

std::string Case::text() const {
  std::string layout;
  for (const auto& label : labels) layout += label;
  return format("%s %s %s count %llu root %d%s, layout %s",
                std::string(name_of(signature.collective)).c_str(),
                std::string(name_of(signature.type)).c_str(),
                std::string(name_of(signature.op)).c_str(),
                static_cast<unsigned long long>(signature.count), signature.root,
                in_place ? " in place" : "", layout.c_str());
}

std::vector<std::string> random_labels(std::mt19937_64& random, int max_ranks, int max_clusters) {
  const int n = 1 + static_cast<int>(random() % static_cast<uint64_t>(max_ranks));
  const int clusters = 1 + static_cast<int>(random() % static_cast<uint64_t>(max_clusters));
  std::vector<std::string> labels;
  for (int rank = 0; rank < n; ++rank) {
    labels.emplace_back(1, static_cast<char>('A' + random() % static_cast<uint64_t>(clusters)));
  }
  return labels;
}

Case random_case(std::mt19937_64& random, std::vector<std::string> labels, uint64_t max_count) {
  Case test;
  test.labels = std::move(labels);
  auto& call = test.signature;
  call.collective =
      pick(random, {Collective::AllReduce, Collective::AllReduce, Collective::ReduceScatter,
                    Collective::AllGather, Collective::Broadcast, Collective::Reduce,
                    Collective::Reduce, Collective::Barrier});
  call.type = kTypes[random() % std::size(kTypes)];
  const bool rooted =
      call.collective == Collective::Broadcast || call.collective == Collective::Reduce;
  if (reduces(call)) call.op = kOps[random() % std::size(kOps)];
  if (rooted) {
    call.root = static_cast<int>(random() % test.labels.size());
  }
  call.count = random_count(random, max_count);
  if (call.collective == Collective::Barrier) call.count = 0, call.type = DataType::Int8;
  test.in_place = random() % 2 == 0;
  return test;
}

std::vector<topology::RankInfo> infos_of(const std::vector<std::string>& labels) {
  std::vector<topology::RankInfo> infos;
  for (size_t rank = 0; rank < labels.size(); ++rank) {
    topology::RankInfo info;
    info.rank = static_cast<int>(rank);
    info.host = "h";
    info.host_name = "h";
    info.pid = 1;
    info.vendor = info.library = "host";
    info.library_version = "1";
    info.label = labels[rank];
    infos.push_back(std::move(info));
  }
  return infos;
}

size_t send_elements(const Case& test) {
  const bool blocks = test.signature.collective == Collective::ReduceScatter;
  return test.signature.count * (blocks ? test.labels.size() : 1);
}

size_t recv_elements(const Case& test) {
  const bool blocks = test.signature.collective == Collective::AllGather;
  return test.signature.count * (blocks ? test.labels.size() : 1);
}

bool receives(const Case& test, int rank) {
  return test.signature.collective != Collective::Reduce || rank == test.signature.root;
}

Factor factor_of(const Case& test, int rank) {
  return element_of(test.signature.type, rank % 3 == 1 ? 2 : 1);
}

std::vector<std::byte> input_of(const Case& test, int rank) {
  const size_t n = send_elements(test), bytes = size_of(test.signature.type);
  std::vector<std::byte> input(n * bytes);
  const bool product = test.signature.op == RedOp::Prod;
  // fp8 e5m2 holds whole numbers up to 8: as many as six ranks with their factors may add up.
  const size_t values = size_of(test.signature.type) == 1 ? 2 : 5;
  for (size_t i = 0; i < n; ++i) {
    const size_t mixed = (i * 2654435761U) ^ (static_cast<size_t>(rank) * 40503U) ^ (i >> 7);
    const int value =
        product ? 1 + static_cast<int>(mixed % 16 == 0) : static_cast<int>(mixed % values);
    const Factor element = element_of(test.signature.type, value);
    std::memcpy(input.data() + i * bytes, element.element, bytes);
  }
  return input;
}

std::vector<std::byte> expected_of(const Case& test, int rank,
                                   const std::vector<std::vector<std::byte>>& inputs) {
  const Signature& call = test.signature;
  const size_t bytes = call.count * size_of(call.type);
  std::vector<std::byte> result(recv_elements(test) * size_of(call.type));
  if (result.empty() || !receives(test, rank)) return {};
  switch (call.collective) {
    case Collective::AllReduce:
    case Collective::ReduceScatter:
    case Collective::Reduce: {
      const bool scatter = call.collective == Collective::ReduceScatter;
      std::vector<const void*> srcs;
      std::vector<Factor> factors;
      for (const auto& input : inputs) {
        factors.push_back(factor_of(test, static_cast<int>(srcs.size())));
        srcs.push_back(input.data() + (scatter ? bytes * static_cast<size_t>(rank) : 0));
      }
      reference_reduce(result.data(), srcs, call.count, call.type, call.op,
                       static_cast<uint32_t>(inputs.size()), factors.data());
      break;
    }
    case Collective::AllGather:
      for (size_t r = 0; r < inputs.size(); ++r) {
        std::memcpy(result.data() + r * bytes, inputs[r].data(), bytes);
      }
      break;
    case Collective::Broadcast:
      std::memcpy(result.data(), inputs[static_cast<size_t>(call.root)].data(), bytes);
      break;
    case Collective::Barrier:
      break;
  }
  return result;
}

}  // namespace hetccl::fake
