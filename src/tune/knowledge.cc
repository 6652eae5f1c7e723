#include "tune/knowledge.h"

#include <algorithm>
#include <cmath>

namespace hetccl::tune {
namespace {

constexpr int64_t kFormat = 1;

uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 14'695'981'039'346'656'037U;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 1'099'511'628'211U;
  return hash;
}

// Strips the job that an adaptor's version may name after a semicolon.
std::string lasting(const std::string& library_version) {
  return library_version.substr(0, library_version.find(';'));
}

std::string text_of(const topology::RankInfo& info, int cluster, int host) {
  return format("rank %d.%d %s/%s/%s/%s kernels=%d access=%d shm=%d window=%d;", cluster, host,
                info.vendor.c_str(), info.model.c_str(), info.architecture.c_str(),
                lasting(info.library_version).c_str(), info.kernels ? 1 : 0,
                info.host_access ? 1 : 0, info.shared_memory ? 1 : 0,
                info.window_bytes > 0 ? 1 : 0);
}

std::optional<double> us_of(const Json& json) {
  const auto us = json.number();
  return us && *us > 0 && *us <= kMostUs ? us : std::nullopt;
}

Json to_json(const Learnt& one) {
  return {{"key", tune::to_json(one.key)},
          {"setting", tune::to_json(one.setting)},
          {"bytes", one.bytes},
          {"us", one.us},
          {"default_us", one.default_us},
          {"trials", one.trials}};
}

std::optional<Learnt> read(const Json& json) {
  const auto key = key_from_json(json["key"]);
  const auto setting = setting_from_json(json["setting"]);
  const auto us = us_of(json["us"]), default_us = us_of(json["default_us"]);
  const auto trials = json["trials"].integer(0, INT32_MAX);
  const auto bytes = json["bytes"].integer(0, INT64_MAX);
  if (!key || !setting || !us || !default_us || !trials || !bytes) return std::nullopt;
  return Learnt{*key, *setting,    static_cast<uint64_t>(*bytes),
                *us,  *default_us, static_cast<uint32_t>(*trials)};
}

}  // namespace

std::string digest_of(std::string_view text) {
  return format("%016llx", static_cast<unsigned long long>(fnv1a(text)));
}

Fingerprint fingerprint_of(const topology::Topology& topology, std::string_view settings,
                           int version) {
  std::string text = format("hetccl %d\n", version) + std::string(settings) + "\n";
  std::map<std::string, int> hosts;  // by first rank, so that names do not matter
  for (const topology::RankInfo& info : topology.infos()) {
    const int host = hosts.try_emplace(info.host, static_cast<int>(hosts.size())).first->second;
    text += text_of(info, topology.cluster_of(info.rank), host);
  }
  Fingerprint fingerprint;
  for (const topology::Cluster& cluster : topology.clusters()) {
    if (!fingerprint.summary.empty()) fingerprint.summary += " + ";
    fingerprint.summary += format("%zu %s", cluster.ranks.size(), cluster.vendor.c_str());
  }
  std::map<std::string, int> kinds;
  for (const topology::Link& link : topology.links()) {
    text += format("link %d-%d %s %lld;", link.a, link.b, link.kind.c_str(),
                   static_cast<long long>(link.mbps));
    if (kinds[link.kind]++ == 0)
      fingerprint.summary += (kinds.size() == 1 ? " by " : ", ") + link.kind;
  }
  fingerprint.digest = digest_of(text);
  return fingerprint;
}

Result<Knowledge> Knowledge::parse(std::string_view text) {
  HETCCL_ASSIGN(const Json json, Json::parse(text, "the tuning file", kMostBytes));
  const auto version = json["hetccl_tuning"].integer(0, INT32_MAX);
  if (!version) return error(ErrorCode::InvalidArgument, "this is no tuning file of hetccl");
  if (*version != kFormat) {
    return error(ErrorCode::Unsupported,
                 "its format has version %lld; this hetccl reads and writes version %lld",
                 static_cast<long long>(*version), static_cast<long long>(kFormat));
  }
  Knowledge knowledge;
  const auto* list = json["entries"].elements();
  if (list == nullptr) return error(ErrorCode::InvalidArgument, "it has no list \"entries\"");
  for (const Json& one : *list) {
    const auto learnt = read(one);
    const std::string* digest = one["place"].text();
    const auto time = one["time"].integer(0, INT64_MAX);
    // Skips settings of algorithms that this version does not have.
    if (!learnt || digest == nullptr || digest->size() != 16 || !time) continue;
    const std::string* summary = one["summary"].text();
    knowledge.entries_[{*digest, learnt->key}] = {*learnt, summary != nullptr ? *summary : "",
                                                  *time};
  }
  knowledge.drop_oldest();
  return knowledge;
}

std::string Knowledge::dump() const {
  std::vector<Json> list;
  for (const auto& [where, entry] : entries_) {
    Json one = to_json(entry.learnt);
    one.set("place", where.first);
    one.set("summary", entry.summary);
    one.set("time", entry.time);
    list.push_back(std::move(one));
  }
  return Json{{"hetccl_tuning", kFormat}, {"entries", std::move(list)}}.dump(1) + "\n";
}

void Knowledge::add(const Fingerprint& fingerprint, const std::vector<Learnt>& learnt,
                    int64_t time) {
  for (const Learnt& one : learnt) {
    Entry& entry = entries_[{fingerprint.digest, one.key}];
    if (entry.time <= time) entry = {one, fingerprint.summary, time};
  }
  drop_oldest();
}

void Knowledge::correct_times(int64_t now) {
  for (auto& [where, entry] : entries_) entry.time = std::min(entry.time, now);
}

void Knowledge::drop_oldest() {
  if (entries_.size() <= kMostEntries) return;
  std::vector<Entries::iterator> all;
  for (auto it = entries_.begin(); it != entries_.end(); ++it) all.push_back(it);
  const auto older = [](const auto& a, const auto& b) { return a->second.time < b->second.time; };
  const auto kept = all.end() - static_cast<ptrdiff_t>(kMostEntries);
  std::nth_element(all.begin(), kept, all.end(), older);
  for (auto it = all.begin(); it != kept; ++it) entries_.erase(*it);
}

std::vector<Learnt> Knowledge::find(const Fingerprint& fingerprint) const {
  std::vector<const Entry*> here;
  for (const auto& [where, entry] : entries_)
    if (where.first == fingerprint.digest) here.push_back(&entry);
  std::stable_sort(here.begin(), here.end(),
                   [](const Entry* a, const Entry* b) { return a->time > b->time; });
  std::vector<Learnt> found;
  for (const Entry* entry : here) found.push_back(entry->learnt);
  return found;
}

Json to_json(const std::vector<Learnt>& learnt) {
  std::vector<Json> list;
  for (const Learnt& one : learnt) list.push_back(to_json(one));
  return list;
}

std::vector<Learnt> first_that_fit(std::vector<Learnt> learnt, size_t most_bytes) {
  size_t bytes = 2, n = 0;
  for (; n < learnt.size(); ++n) {
    bytes += to_json(learnt[n]).dump().size() + 2;  // and the separator
    if (bytes > most_bytes) break;
  }
  learnt.erase(learnt.begin() + static_cast<ptrdiff_t>(n), learnt.end());
  return learnt;
}

std::vector<Learnt> learnt_from_json(const Json& json) {
  std::vector<Learnt> all;
  if (const auto* list = json.elements()) {
    for (const Json& one : *list)
      if (const auto learnt = read(one)) all.push_back(*learnt);
  }
  return all;
}

}  // namespace hetccl::tune
