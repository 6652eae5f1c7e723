#include "mpi/rules.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <optional>

namespace hetccl::mpi {
namespace {

constexpr int kMostParts = 16;

std::string without_spaces(std::string_view text) {
  std::string kept;
  for (const char c : text) {
    if (c != ' ' && c != '\t') kept += c;
  }
  return kept;
}

std::optional<int64_t> to_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// Collectives that MPICH has and hetccl does not serve.
bool is_unserved(std::string_view name) {
  if (name.starts_with('i')) name.remove_prefix(1);
  return name == "alltoallw" || name == "scan" || name == "exscan" || name.starts_with("neighbor_");
}

bool ends_with_word(std::string_view name, std::string_view word) {
  if (!name.ends_with(word)) return false;
  name.remove_suffix(word.size());
  return name.empty() || name.back() == '_';
}

}  // namespace

std::string_view name_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::Beta:
      return "beta";
    case Algorithm::Gamma:
      return "gamma";
    case Algorithm::Alpha:
      return "alpha";
    case Algorithm::Device:
      return "device";
    case Algorithm::None:
      break;
  }
  return "none";
}

struct Rules::Parser {
  const std::string& source;
  std::string path;  // the keys around the parser's position
  uint32_t nonblocking = 0;

  Status wrong(std::string_view key, std::string_view what) const {
    std::string place = path + std::string(key);
    if (place.ends_with(" / ")) place.resize(place.size() - 3);
    return error(ErrorCode::InvalidArgument, "%s: %s%s%.*s", source.c_str(), place.c_str(),
                 place.empty() ? "" : ": ", static_cast<int>(what.size()), what.data());
  }

  Status parse(const Json& object, std::vector<Node>& nodes) {
    const auto* members = object.members();
    if (members == nullptr || members->empty()) return wrong("", "is not an object with members");
    for (const Json::Member& member : *members) {
      const std::string key = without_spaces(member.name);
      Node node;
      if (key.starts_with("algorithm=") || key.starts_with("composition=")) {
        HETCCL_TRY(read_leaf(key, member.value, node.decision));
      } else {
        HETCCL_TRY(read_test(key, node));
        const size_t length = path.size();
        path += key + " / ";
        HETCCL_TRY(parse(member.value, node.children));
        path.resize(length);
      }
      nodes.push_back(std::move(node));
    }
    return {};
  }

  Status read_leaf(std::string_view key, const Json& parameters, Decision& decision) const {
    const std::string_view name = key.substr(key.find('=') + 1);
    if (ends_with_word(name, "alpha")) {
      decision.algorithm = Algorithm::Alpha;
    } else if (ends_with_word(name, "gamma")) {
      decision.algorithm = Algorithm::Gamma;
    } else if (ends_with_word(name, "beta") || name == "mpi") {
      decision.algorithm = Algorithm::Beta;
    } else if (ends_with_word(name, "ccl") || name == "device") {
      decision.algorithm = Algorithm::Device;
    } else if (name.starts_with("MPIR_") || name.starts_with("MPIDI_")) {
      decision.algorithm = Algorithm::Beta;  // the MPI itself chooses among its algorithms
    } else {
      return wrong(key,
                   "is no algorithm: alpha, beta, gamma, device, mpi, or one of MPICH's names");
    }
    const auto* members = parameters.members();
    if (members == nullptr) return wrong(key, "takes an object of parameters, {} for none");
    for (const Json::Member& member : *members) {
      const std::string parameter = without_spaces(member.name);
      HETCCL_TRY(read_parameter(key, parameter, decision));
    }
    if (decision.communicators > decision.streams) decision.streams = decision.communicators;
    return {};
  }

  Status read_parameter(std::string_view key, std::string_view parameter,
                        Decision& decision) const {
    for (auto [name, place] : {std::pair{"streams=", &decision.streams},
                               std::pair{"communicators=", &decision.communicators}}) {
      if (!parameter.starts_with(name)) continue;
      const auto value = to_number(parameter.substr(std::string_view(name).size()));
      if (!value || *value < 1 || *value > kMostParts || !decision.by_hetccl()) {
        return wrong(key, format("%.*s: 1 to %d, of device", static_cast<int>(parameter.size()),
                                 parameter.data(), kMostParts));
      }
      *place = static_cast<int>(*value);
      return {};
    }
    if (key.ends_with("=device")) {
      return wrong(key, format("%.*s is no parameter of it: streams=N or communicators=N",
                               static_cast<int>(parameter.size()), parameter.data()));
    }
    // Ignores MPICH's own: ccl=auto, k=4, chunk_size=4096 ...
    if (parameter.find('=') != std::string_view::npos) return {};
    return wrong(key, format("%.*s is no parameter: NAME=VALUE", static_cast<int>(parameter.size()),
                             parameter.data()));
  }

  Status read_test(std::string_view key, Node& node) {
    if (key == "any" || key.ends_with("=any")) return {};
    if (key.starts_with("collective=")) return read_collective(key, node);
    if (key.starts_with("mpi=")) return read_maker(key, node);
    struct Fixed {
      std::string_view key;
      Test test;
      int64_t value;
    };
    static constexpr Fixed kWords[] = {
        {"comm_type=intra", Test::Any, 0},
        {"comm_type=inter", Test::Never, 0},
        {"comm_size=pow2", Test::SizePowerOfTwo, 0},
        {"comm_size=node_comm_size", Test::OnOneNode, 0},
        {"comm_hierarchy=parent", Test::HasHierarchy, 1},
        {"comm_hierarchy=node_roots", Test::HasHierarchy, 0},
        {"comm_hierarchy=node", Test::HasHierarchy, 0},
        {"comm_hierarchy=flat", Test::HasHierarchy, 0},
        {"count<pow2", Test::CountBelowPowerOfTwo, 0},
        {"is_node_consecutive=yes", Test::Consecutive, 1},
        {"is_node_consecutive=no", Test::Consecutive, 0},
        {"is_multi_threaded=yes", Test::Multithreaded, 1},
        {"is_multi_threaded=no", Test::Multithreaded, 0},
        {"is_sendbuf_inplace=yes", Test::InPlace, 1},
        {"is_sendbuf_inplace=no", Test::InPlace, 0},
        // Questions are asked only for predefined operators, which commute, and not for block
        // lengths that only one rank knows.
        {"is_commutative=yes", Test::Any, 0},
        {"is_commutative=no", Test::Never, 0},
        {"is_op_built_in=yes", Test::Any, 0},
        {"is_op_built_in=no", Test::Never, 0},
        {"is_block_regular=yes", Test::Any, 0},
        {"is_block_regular=no", Test::Never, 0},
        {"buffer=device", Test::Device, 1},
        {"buffer=host", Test::Device, 0},
        {"gpu=shared", Test::SharesGpus, 1},
        {"gpu=own", Test::SharesGpus, 0},
    };
    for (const Fixed& word : kWords) {
      if (word.key != key) continue;
      node.test = word.test;
      node.value = word.value;
      return {};
    }
    return read_limit(key, node);
  }

  Status read_maker(std::string_view key, Node& node) const {
    const auto found = std::find(kMakers.begin(), kMakers.end(), key.substr(key.find('=') + 1));
    if (found == kMakers.end()) return wrong(key, "is no MPI: mpich, intel or openmpi");
    node.test = Test::MadeBy;
    node.value = found - kMakers.begin();
    return {};
  }

  // For example "avg_msg_size<=65536".
  Status read_limit(std::string_view key, Node& node) const {
    static constexpr std::pair<std::string_view, Test> kLimits[] = {
        {"comm_size", Test::SizeAtMost},       {"comm_avg_ppn", Test::PerNodeAtMost},
        {"avg_msg_size", Test::AverageAtMost}, {"total_msg_size", Test::TotalAtMost},
        {"count", Test::CountAtMost},
    };
    for (const auto& [name, test] : kLimits) {
      if (!key.starts_with(name) || key.substr(name.size(), 1) != "<") continue;
      std::string_view number = key.substr(name.size() + 1);
      const bool or_equal = number.starts_with('=');
      if (or_equal) number.remove_prefix(1);
      const auto value = to_number(number);
      if (!value) return wrong(key, "takes a number that is not negative");
      node.test = test;
      node.value = or_equal ? *value : *value - 1;
      return {};
    }
    return wrong(key, "is no condition that hetccl or MPICH knows");
  }

  Status read_collective(std::string_view key, Node& node) {
    std::string_view name = key.substr(std::string_view("collective=").size());
    if (is_unserved(name)) {
      node.test = Test::Never;
      return {};
    }
    auto collective = collective_of(name);
    if (!collective && name.starts_with('i')) {
      collective = collective_of(name.substr(1));
      node.test = Test::Nonblocking;
    } else {
      node.test = Test::OfCollective;
    }
    if (!collective) return wrong(key, "is no collective");
    node.value = static_cast<int64_t>(*collective);
    if (node.test == Test::Nonblocking) nonblocking |= 1U << static_cast<unsigned>(*collective);
    return {};
  }
};

Result<Rules> Rules::parse(std::string_view text, const std::string& source) {
  HETCCL_ASSIGN(const Json tree, Json::parse(text, source.c_str(), kMaxBytes));
  Rules rules;
  Parser parser{source, {}, 0};
  HETCCL_TRY(parser.parse(tree, rules.roots_));
  rules.nonblocking_ = parser.nonblocking;
  return rules;
}

bool Rules::holds(const Node& node, const Question& question) const {
  const Shape& shape = question.shape;
  const auto is = [&](bool fact) { return fact == (node.value != 0); };
  const auto at_most = [&](int64_t bytes) { return bytes >= 0 && bytes <= node.value; };
  switch (node.test) {
    case Test::Any:
      return true;
    case Test::Never:
      return false;
    case Test::OfCollective:
      return static_cast<int64_t>(question.collective) == node.value &&
             !(question.nonblocking &&
               (nonblocking_ >> static_cast<unsigned>(node.value) & 1U) != 0);
    case Test::Nonblocking:
      return question.nonblocking && static_cast<int64_t>(question.collective) == node.value;
    case Test::Device:
      return is(question.device);
    case Test::SharesGpus:
      return is(question.shares_gpus);
    case Test::InPlace:
      return is(question.in_place);
    case Test::Multithreaded:
      return is(question.multithreaded);
    case Test::MadeBy:
      return static_cast<int64_t>(question.maker) == node.value;
    case Test::SizeAtMost:
      return shape.size <= node.value;
    case Test::SizePowerOfTwo:
      return std::has_single_bit(static_cast<unsigned>(shape.size));
    case Test::OnOneNode:
      return shape.on_one_node();
    case Test::HasHierarchy:
      return is(shape.has_hierarchy());
    case Test::Consecutive:
      return is(shape.consecutive);
    case Test::PerNodeAtMost:
      return (shape.size + shape.nodes - 1) / shape.nodes <=
             node.value;  // a product could overflow
    case Test::AverageAtMost:
      return at_most(question.average_bytes);
    case Test::TotalAtMost:
      return at_most(question.total_bytes);
    case Test::CountAtMost:
      return at_most(question.count);
    case Test::CountBelowPowerOfTwo:
      return question.count >= 0 &&
             question.count < std::bit_floor(static_cast<unsigned>(shape.size));
  }
  return false;
}

Decision Rules::follow(const std::vector<Node>& nodes, const Question& question) const {
  for (const Node& node : nodes) {
    if (!holds(node, question)) continue;
    return node.children.empty() ? node.decision : follow(node.children, question);
  }
  return {};
}

Decision Rules::decide(const Question& question) const {
  return follow(roots_, question);
}

}  // namespace hetccl::mpi
