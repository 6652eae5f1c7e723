#include "bootstrap/inquest.h"

#include <algorithm>

#include "base/joined.h"

namespace hetccl::bootstrap {

namespace {

constexpr size_t kListedRanks = 16;
// The number of ranks described in detail.
constexpr size_t kDetailedRanks = 4;

const char* have(const std::vector<int32_t>& ranks) {
  return ranks.size() == 1 ? "has" : "have";
}

}  // namespace

std::string rank_list(const std::vector<int32_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const size_t listed = std::min(ranks.size(), kListedRanks);
  for (size_t i = 0; i < listed; ++i) {
    text.append(i > 0 ? ", " : "").append(std::to_string(ranks[i]));
  }
  if (ranks.size() > listed) text += format(" and %zu more", ranks.size() - listed);
  return text;
}

Inquest::Inquest(Stall stall, int32_t n_ranks) : stall_(std::move(stall)), n_ranks_(n_ranks) {}

void Inquest::add_answer(int32_t rank, Position position) {
  answers_.emplace(rank, Answer{false, std::move(position)});
}

void Inquest::add_departure(int32_t rank, uint64_t called) {
  answers_.emplace(rank, Answer{true, {called, called, ""}});
}

bool Inquest::complete() const {
  return answers_.size() == static_cast<size_t>(n_ranks_);
}

bool Inquest::called(const Answer& answer) const {
  return answer.position.called > stall_.sequence;
}

bool Inquest::has_left(const Answer& answer) const {
  return answer.left && !called(answer);
}

bool Inquest::is_missing(const Answer& answer) const {
  return !answer.left && !called(answer);
}

bool Inquest::called_another(const Answer& answer) const {
  const std::string& call = answer.position.call;
  return called(answer) && !call.empty() && call != stall_.call;
}

bool Inquest::has_completed(const Answer& answer) const {
  return answer.position.completed > stall_.sequence;
}

std::vector<int32_t> Inquest::ranks_where(bool (Inquest::*holds)(const Answer&) const) const {
  std::vector<int32_t> ranks;
  for (const auto& [rank, answer] : answers_) {
    if ((this->*holds)(answer)) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<int32_t> Inquest::silent() const {
  std::vector<int32_t> ranks;
  for (int32_t rank = 0; rank < n_ranks_; ++rank) {
    if (answers_.count(rank) == 0) ranks.push_back(rank);
  }
  return ranks;
}

// Returns "rank 2 is at #15, rank 5 has called nothing".
std::string Inquest::progress_of(const std::vector<int32_t>& ranks) const {
  std::vector<std::string> parts;
  for (size_t i = 0; i < std::min(ranks.size(), kDetailedRanks); ++i) {
    const uint64_t n = answers_.at(ranks[i]).position.called;
    const std::string place =
        n > 0 ? "is at #" + std::to_string(n - 1) : std::string("has called nothing");
    parts.push_back(format("rank %d %s", ranks[i], place.c_str()));
  }
  return joined(parts, ", ");
}

std::string Inquest::blameless() const {
  std::string text = "every rank has called it";
  const std::vector<int32_t> done = ranks_where(&Inquest::has_completed);
  if (!done.empty()) text += format(", %s %s completed it", rank_list(done).c_str(), have(done));
  return stall_.detail.empty() ? text : text + "; " + stall_.detail;
}

// Takes the call of most ranks as right; of two equally common calls, the lowest rank's.
Failure Inquest::disagreement() const {
  using Group = std::pair<std::string, std::vector<int32_t>>;
  std::vector<Group> groups;  // by call, in the order of their first ranks
  for (const auto& [rank, answer] : answers_) {
    const std::string& call = answer.position.call;
    if (!called(answer) || call.empty()) continue;
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const Group& one) { return one.first == call; });
    if (group == groups.end()) group = groups.insert(group, {call, {}});
    group->second.push_back(rank);
  }
  Failure failure = stall_.failure;
  if (groups.size() < 2) {
    failure.reason += ": " + stall_.detail;
    return failure;
  }
  const auto smaller = [](const Group& a, const Group& b) {
    return a.second.size() < b.second.size();
  };
  const Group most = *std::max_element(groups.begin(), groups.end(), smaller);
  std::vector<std::string> others;
  for (const Group& group : groups) {
    if (group.first == most.first) continue;
    if (others.empty()) failure.rank = group.second.front();
    if (others.size() == kDetailedRanks) break;
    others.push_back(rank_list(group.second) + " called " + group.first);
  }
  failure.reason = format(
      "%s where %s called %s; all ranks must make the same calls in the same "
      "order",
      joined(others, ", ").c_str(), rank_list(most.second).c_str(), most.first.c_str());
  return failure;
}

Failure Inquest::conclusion() const {
  if (stall_.failure.code == ErrorCode::InvalidUsage) return disagreement();
  const std::vector<int32_t> left = ranks_where(&Inquest::has_left);
  const std::vector<int32_t> missing = ranks_where(&Inquest::is_missing);
  const std::vector<int32_t> others = ranks_where(&Inquest::called_another);
  const std::vector<int32_t> mute = silent();
  std::vector<std::string> findings;
  if (!left.empty()) {
    findings.push_back(format("%s %s left the communicator without calling it (%s)",
                              rank_list(left).c_str(), have(left), progress_of(left).c_str()));
  }
  if (!missing.empty()) {
    findings.push_back(format("%s %s not called it (%s)", rank_list(missing).c_str(), have(missing),
                              progress_of(missing).c_str()));
  }
  for (size_t i = 0; i < std::min(others.size(), kDetailedRanks); ++i) {
    findings.push_back(format("rank %d called %s instead", others[i],
                              answers_.at(others[i]).position.call.c_str()));
  }
  if (!mute.empty()) {
    findings.push_back(
        format("%s %s not answer", rank_list(mute).c_str(), mute.size() == 1 ? "does" : "do"));
  }
  Failure failure = stall_.failure;
  for (const auto* ranks : {&mute, &others, &missing, &left}) {
    if (!ranks->empty()) failure.rank = ranks->front();
  }
  failure.reason += ": " + (findings.empty() ? blameless() : joined(findings));
  return failure;
}

}  // namespace hetccl::bootstrap
