#include "tune/note.h"

#include <cmath>

#include "tune/knowledge.h"

namespace hetccl::tune {
namespace {

constexpr size_t kMostBytes = size_t{16} << 10U;

Json to_json(const Change& change) {
  return {{"key", tune::to_json(change.key)},
          {"setting", tune::to_json(change.setting)},
          {"calls", change.calls},
          {"phase", change.phase},
          {"rests", change.rests}};
}
Json to_json(const Proposal& proposal) {
  std::vector<Json> changes;
  for (const Change& change : proposal.changes) changes.push_back(to_json(change));
  return {{"kind", "proposal"},
          {"round", proposal.round},
          {"from", proposal.from},
          {"changes", std::move(changes)}};
}
Json to_json(const Vote& vote) {
  return {{"kind", "vote"}, {"round", vote.round}, {"yes", vote.yes}};
}
Json to_json(const Verdict& verdict) {
  return {{"kind", "verdict"}, {"round", verdict.round}, {"commit", verdict.commit}};
}
Json to_json(const Doubt& doubt) {
  return {{"kind", "doubt"}, {"round", doubt.round}};
}
Json to_json(const Samples& samples) {
  return {{"kind", "samples"},
          {"round", samples.round},
          {"change", samples.change},
          {"us", samples.us}};
}

std::optional<uint64_t> number_of(const Json& json) {
  const auto value = json.integer(0, INT64_MAX);
  return value ? std::optional(static_cast<uint64_t>(*value)) : std::nullopt;
}

std::optional<Change> read_change(const Json& json) {
  const auto key = key_from_json(json["key"]);
  const auto setting = setting_from_json(json["setting"]);
  const auto calls = json["calls"].integer(0, kMostCalls);
  const Json* given = json.find("phase");
  const auto phase = given == nullptr ? std::optional<int64_t>(1) : given->integer(1, kMostCalls);
  const auto rests = json["rests"].boolean();
  if (!key || !setting || !calls || !phase) return std::nullopt;
  if (*calls % *phase != 0 || *calls / *phase > kMostPhases) return std::nullopt;
  return Change{*key, *setting, static_cast<uint32_t>(*calls), static_cast<uint32_t>(*phase),
                rests.value_or(false)};
}

std::optional<Note> read_proposal(uint64_t round, const Json& json) {
  const auto from = number_of(json["from"]);
  const auto* list = json["changes"].elements();
  if (!from || list == nullptr || list->size() > kMostChanges) return std::nullopt;
  Proposal proposal{round, *from, {}};
  for (const Json& one : *list) {
    const auto change = read_change(one);
    if (!change) return std::nullopt;
    proposal.changes.push_back(*change);
  }
  return proposal;
}

std::optional<Note> read_samples(uint64_t round, const Json& json) {
  const auto change = json["change"].integer(0, kMostChanges - 1);
  const auto* list = json["us"].elements();
  if (!change || list == nullptr || list->size() > kMostPhases) return std::nullopt;
  Samples samples{round, static_cast<uint32_t>(*change), {}};
  for (const Json& one : *list) {
    const auto us = one.number();
    if (!us || !(*us >= 0 && *us <= kMostUs)) return std::nullopt;
    samples.us.push_back(*us);
  }
  return samples;
}

}  // namespace

std::vector<uint8_t> encode(const Note& note) {
  const std::string text = std::visit([](const auto& one) { return to_json(one); }, note).dump();
  return {text.begin(), text.end()};
}

std::optional<Note> decode(std::span<const uint8_t> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto parsed = Json::parse(text, "a note", kMostBytes);
  if (!parsed.ok()) return std::nullopt;
  const Json& json = parsed.value();
  const std::string* kind = json["kind"].text();
  const auto round = number_of(json["round"]);
  if (kind == nullptr || !round) return std::nullopt;
  if (*kind == "proposal") return read_proposal(*round, json);
  if (*kind == "samples") return read_samples(*round, json);
  if (*kind == "doubt") return Doubt{*round};
  const auto said = json[*kind == "vote" ? "yes" : "commit"].boolean();
  if (!said) return std::nullopt;
  if (*kind == "vote") return Vote{*round, *said};
  if (*kind == "verdict") return Verdict{*round, *said};
  return std::nullopt;
}

}  // namespace hetccl::tune
