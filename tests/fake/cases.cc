#include "fake/cases.h"

#include <algorithm>
#include <cstring>
#include <numeric>

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

bool is_one_of(Collective collective, std::initializer_list<Collective> list) {
  return std::find(list.begin(), list.end(), collective) != list.end();
}

bool reduces(const Signature& call) {
  return is_one_of(call.collective,
                   {Collective::AllReduce, Collective::ReduceScatter, Collective::Reduce});
}

bool has_v_form(Collective collective) {
  return is_one_of(collective, {Collective::AllGather, Collective::ReduceScatter,
                                Collective::Gather, Collective::Scatter, Collective::AllToAll});
}

bool has_root(Collective collective) {
  return is_one_of(collective, {Collective::Broadcast, Collective::Reduce, Collective::Gather,
                                Collective::Scatter});
}

uint64_t sum(const std::vector<uint64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

}  // namespace

std::string Case::text() const {
  std::string layout;
  for (const auto& label : labels) layout += label;
  return format("%s %s %s count %llu root %d%s, layout %s", name_of(signature).c_str(),
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
  call.collective = pick(
      random, {Collective::AllReduce, Collective::AllReduce, Collective::ReduceScatter,
               Collective::AllGather, Collective::Broadcast, Collective::Reduce, Collective::Reduce,
               Collective::Barrier, Collective::Gather, Collective::Scatter, Collective::AllToAll});
  call.type = kTypes[random() % std::size(kTypes)];
  const std::vector<RedOp> ops = ops_of(call.type);
  if (reduces(call)) call.op = ops[random() % ops.size()];
  if (has_root(call.collective)) {
    call.root = static_cast<int>(random() % test.labels.size());
  }
  call.count = random_count(random, max_count);
  if (call.collective == Collective::Barrier) call.count = 0, call.type = DataType::Int8;
  test.in_place = random() % 2 == 0 && call.collective != Collective::AllToAll;
  if (has_v_form(call.collective) && random() % 2 == 0) {
    call.uneven = true;
    test.seed = random();
    // As callers count: see Signature.
    const bool known =
        is_one_of(call.collective, {Collective::AllGather, Collective::ReduceScatter});
    test.max_count = call.count;
    const bool gathers = call.collective == Collective::AllGather;
    if (known) call.count = sum(gathers ? recv_counts(test, 0) : send_counts(test, 0));
    if (!known) call.count = 0;
  }
  return test;
}

namespace {

// Not all ranks of a cluster are at its border, and those that are have unlike shares: every third
// rank is further away from the card of another of its cluster, where there is one.
topology::Nic card_of(size_t rank, const std::vector<std::string>& labels) {
  const bool is_far = rank % 3 == 0;
  size_t owner = rank;
  for (size_t other = 0; is_far && other < labels.size(); ++other)
    if (other % 3 != 0 && labels[other] == labels[rank]) owner = other;
  return {"nic" + std::to_string(owner), "", 1000 * (1 + static_cast<int64_t>(owner) % 3),
          is_far ? 1 : 0};
}

}  // namespace

std::vector<topology::RankInfo> infos_of(const std::vector<std::string>& labels) {
  std::vector<topology::RankInfo> infos;
  for (size_t rank = 0; rank < labels.size(); ++rank) {
    topology::RankInfo info;
    info.rank = static_cast<int>(rank);
    info.host = info.host_name = std::string(1, 'h');  // GCC 12 warns of `= "h"` for no reason
    info.pid = 1;
    info.vendor = info.library = "host";
    info.reach.hosts = false;
    info.library_version = std::string(1, '1');
    info.label = labels[rank];
    info.nics = {card_of(rank, labels)};
    infos.push_back(std::move(info));
  }
  return infos;
}

uint64_t block_length(const Case& test, int from, int to) {
  if (!test.signature.uneven) return test.signature.count;
  // The blocks of an all-gather are their senders', those of a reduce-scatter their receivers'.
  const bool by_sender = test.signature.collective == Collective::AllGather;
  const bool by_receiver = test.signature.collective == Collective::ReduceScatter;
  std::mt19937_64 random(test.seed + (by_receiver ? 0 : 1'000 * static_cast<uint64_t>(from)) +
                         (by_sender ? 0 : static_cast<uint64_t>(to)));
  return random() % 4 == 0 ? 0 : random() % (test.max_count + 1);
}

std::vector<uint64_t> send_counts(const Case& test, int rank) {
  const Signature& call = test.signature;
  if (is_one_of(call.collective,
                {Collective::Scatter, Collective::AllToAll, Collective::ReduceScatter})) {
    if (call.collective == Collective::Scatter && rank != call.root) return {};
    std::vector<uint64_t> counts;
    for (int to = 0; to < test.n_ranks(); ++to) counts.push_back(block_length(test, rank, to));
    return counts;
  }
  return {block_length(test, rank, call.collective == Collective::Gather ? call.root : rank)};
}

std::vector<uint64_t> recv_counts(const Case& test, int rank) {
  const Signature& call = test.signature;
  if (!receives(test, rank)) return {};
  if (is_one_of(call.collective,
                {Collective::Gather, Collective::AllToAll, Collective::AllGather})) {
    std::vector<uint64_t> counts;
    for (int from = 0; from < test.n_ranks(); ++from)
      counts.push_back(block_length(test, from, rank));
    return counts;
  }
  return {block_length(test, call.collective == Collective::Scatter ? call.root : rank, rank)};
}

std::vector<uint64_t> packed(const std::vector<uint64_t>& counts) {
  std::vector<uint64_t> offsets(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), uint64_t{0});
  return offsets;
}

size_t send_elements(const Case& test, int rank) {
  return sum(send_counts(test, rank));
}

size_t recv_elements(const Case& test, int rank) {
  return sum(recv_counts(test, rank));
}

InPlace in_place(const Case& test, int rank) {
  if (!test.in_place) return {};
  const auto sent = send_counts(test, rank), received = recv_counts(test, rank);
  const auto own = static_cast<size_t>(rank);
  if (sent.empty() || received.empty()) return {};
  if (sent.size() > received.size()) return {0, packed(sent)[own]};
  return {received.size() > sent.size() ? packed(received)[own] : 0, 0};
}

bool receives(const Case& test, int rank) {
  const Collective collective = test.signature.collective;
  return !is_one_of(collective, {Collective::Reduce, Collective::Gather}) ||
         rank == test.signature.root;
}

Factor factor_of(const Case& test, int rank) {
  return element_of(test.signature.type, rank % 3 == 1 ? 2 : 1);
}

std::vector<std::byte> input_of(const Case& test, int rank) {
  const size_t n = send_elements(test, rank), bytes = size_of(test.signature.type);
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
  const size_t width = size_of(call.type);
  std::vector<std::byte> result(recv_elements(test, rank) * width);
  if (result.empty() || call.collective == Collective::Barrier) return {};
  if (reduces(call)) {
    const bool scatter = call.collective == Collective::ReduceScatter;
    const auto own = static_cast<size_t>(rank);
    const size_t begin = scatter ? packed(send_counts(test, rank))[own] * width : 0;
    std::vector<const void*> srcs;
    std::vector<Factor> factors;
    for (const auto& input : inputs) {
      factors.push_back(factor_of(test, static_cast<int>(srcs.size())));
      srcs.push_back(input.data() + begin);
    }
    reference_reduce(result.data(), srcs, result.size() / width, call.type, call.op,
                     static_cast<uint32_t>(inputs.size()), factors.data());
    return result;
  }
  std::byte* out = result.data();
  for (int from = 0; from < test.n_ranks(); ++from) {
    if (has_root(call.collective) && call.collective != Collective::Gather && from != call.root)
      continue;
    const auto sent = send_counts(test, from);
    const size_t block = sent.size() > 1 ? static_cast<size_t>(rank) : 0;
    const std::byte* in = inputs[static_cast<size_t>(from)].data() + packed(sent)[block] * width;
    out = std::copy(in, in + sent[block] * width, out);
  }
  return result;
}

}  // namespace hetccl::fake
