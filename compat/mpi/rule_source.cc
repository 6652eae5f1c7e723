#include "mpi/rule_source.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "mpi/call.h"
#include "mpi/default_rules.h"
#include "mpi/rules.h"

namespace hetccl::mpi {
namespace {

Result<std::string> read_rules(const std::string& path) {
  HETCCL_ASSIGN(std::string text, read_file(path, Rules::kMaxBytes));
  if (text.empty()) return error(ErrorCode::SystemError, "%s: is missing, or empty", path.c_str());
  return text;
}

Json leaf(const char* key) {
  return Json{{key, Json(std::vector<Json::Member>())}};
}

// Copies `tree`, with `inner` wherever MPICH would go on to choose an algorithm.
Json with_algorithms(const Json& tree, const Json& inner) {
  std::vector<Json::Member> members;
  for (const Json::Member& member : *tree.members()) {
    const bool composes = member.name.starts_with("composition=");
    if (composes && !member.name.ends_with("alpha")) {
      members.push_back({"any", inner});
    } else if (composes || member.value.members() == nullptr) {
      members.push_back(member);
    } else {
      members.push_back({member.name, with_algorithms(member.value, inner)});
    }
  }
  return Json(std::move(members));
}

// Counts how often `with_algorithms` inserts the inner tree.
size_t count_leaves(const Json& tree) {
  size_t count = 0;
  for (const Json::Member& member : *tree.members()) {
    if (member.name.starts_with("composition=")) {
      ++count;
    } else if (member.value.members() != nullptr) {
      count += count_leaves(member.value);
    }
  }
  return count;
}

// Collects rules from MPICH's settings, and the names of those that are set.
class MpichSettings {
 public:
  // Reads the files for one kind of buffers: the first chooses a composition, the second an
  // algorithm for its communicators. Returns nothing if neither is set.
  Result<std::optional<Json>> read_files(const std::string& suffix) {
    HETCCL_ASSIGN(auto compositions,
                  read("MPIR_CVAR_CH4_COLL_SELECTION_TUNING_JSON_FILE" + suffix));
    HETCCL_ASSIGN(auto algorithms, read("MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE" + suffix));
    if (!compositions) return algorithms;
    if (!algorithms) return compositions;
    const size_t most =
        compositions->dump().size() + count_leaves(*compositions) * algorithms->dump().size();
    if (most > Rules::kMaxBytes) {
      return error(ErrorCode::InvalidArgument, "%s: together have more than 4 MiB of rules",
                   names_.c_str());
    }
    return std::optional(with_algorithms(*compositions, *algorithms));
  }

  // Rules for the collectives that have a setting of their own.
  std::vector<Json::Member> read_collectives() {
    std::vector<Json::Member> rules;
    for (size_t i = 0; i < kCollectives; ++i) {
      const std::string name(name_of(static_cast<Collective>(i)));
      for (const std::string& form : {name, "i" + name}) {
        if (auto rule = read_collective(form)) {
          rules.push_back({"collective=" + form, std::move(*rule)});
        }
      }
    }
    return rules;
  }

  [[nodiscard]] const std::string& names() const { return names_; }

 private:
  std::string get(const std::string& setting) {
    std::string value = mpich_setting(setting.c_str());
    if (!value.empty()) names_ += (names_.empty() ? "" : ", ") + setting;
    return value;
  }

  Result<std::optional<Json>> read(const std::string& setting) {
    const std::string path = get(setting);
    if (path.empty()) return std::optional<Json>();
    HETCCL_ASSIGN(const std::string text, read_rules(path));
    HETCCL_ASSIGN(Json tree, Json::parse(text, path.c_str(), Rules::kMaxBytes));
    if (tree.members() == nullptr) {
      return error(ErrorCode::InvalidArgument, "%s: is not an object", path.c_str());
    }
    return std::optional(std::move(tree));
  }

  std::optional<Json> read_collective(std::string name) {
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return std::toupper(c); });
    const std::string composition = get("MPIR_CVAR_" + name + "_COMPOSITION");
    const std::string algorithm = get("MPIR_CVAR_" + name + "_INTRA_ALGORITHM");
    if (!composition.empty() && composition != "0") {
      // MPICH obeys its own setting.
      if (composition != "1") return leaf("algorithm=mpi");
      return Json{{"mpi=mpich", leaf("algorithm=mpi")}, {"any", leaf("composition=alpha")}};
    }
    if (algorithm.empty() || algorithm == "auto") return std::nullopt;
    return leaf(algorithm == "ccl" ? "algorithm=device" : "algorithm=mpi");
  }

  std::string names_;
};

}  // namespace

Result<RuleSource> find_rules(const Config& config) {
  if (!config.mpi_file.empty()) {
    HETCCL_ASSIGN(std::string text, read_rules(config.mpi_file));
    return RuleSource{config.mpi_file, std::move(text)};
  }
  MpichSettings mpich;
  std::vector<Json::Member> rules = mpich.read_collectives();
  HETCCL_ASSIGN(const auto on_device, mpich.read_files("_GPU"));
  HETCCL_ASSIGN(const auto files, mpich.read_files(""));
  if (mpich.names().empty()) return RuleSource{"hetccl's rules", default_rules()};
  if (on_device) rules.push_back({"buffer=device", *on_device});
  if (files) {
    rules.push_back({"any", *files});
  } else {
    HETCCL_ASSIGN(Json own, Json::parse(default_rules(), "hetccl's rules", Rules::kMaxBytes));
    rules.push_back({"any", std::move(own)});
  }
  return RuleSource{mpich.names(), Json(std::move(rules)).dump()};
}

}  // namespace hetccl::mpi
