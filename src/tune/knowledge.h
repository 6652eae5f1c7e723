// What jobs have learnt, for the next ones: the contents of HETCCL_TUNE_FILE.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "topology/topology.h"
#include "tune/conductor.h"

namespace hetccl::tune {

/// Stands for all of a topology and of the settings that moves times: entries hold for jobs of the
/// same fingerprint, those on like machines, whatever their names.
struct Fingerprint {
  std::string digest;   ///< 16 hexadecimal digits
  std::string summary;  ///< for people: "2 host + 2 host by tcp"
};
/// 16 hexadecimal digits that stand for a text.
[[nodiscard]] std::string digest_of(std::string_view text);
/// `settings`: those on which ranks agree; `version`: of hetccl.
[[nodiscard]] Fingerprint fingerprint_of(const topology::Topology& topology,
                                         std::string_view settings, int version);

/// A measured time above this, in microseconds, is refused.
inline constexpr double kMostUs = 1e12;

/// Pure; reading and writing files is the caller's.
class Knowledge {
 public:
  static constexpr size_t kMostBytes = size_t{4} << 20U;
  static constexpr size_t kMostEntries = 8192;

  /// InvalidArgument where the text is no such file; Unsupported where its format has another
  /// version.
  static Result<Knowledge> parse(std::string_view text);
  [[nodiscard]] std::string dump() const;

  /// Newer entries replace older ones of the same fingerprint and key; beyond kMostEntries the
  /// oldest are dropped. `time`: seconds since the Unix epoch.
  void add(const Fingerprint& fingerprint, const std::vector<Learnt>& learnt, int64_t time);
  /// Entries of later than `now`, by another machine's clock, count as of now.
  void correct_times(int64_t now);
  /// The newest first.
  [[nodiscard]] std::vector<Learnt> find(const Fingerprint& fingerprint) const;
  [[nodiscard]] size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    Learnt learnt;
    std::string summary;
    int64_t time = 0;
  };
  using Entries = std::map<std::pair<std::string, Key>, Entry>;
  void drop_oldest();

  Entries entries_;  // by digest and key
};

/// The entries of one fingerprint as a JSON array, for rank 0 to tell the others; and back. Entries
/// that are none are left out.
[[nodiscard]] Json to_json(const std::vector<Learnt>& learnt);
/// The first of `learnt`, as many as are at most `most_bytes` long in that form.
[[nodiscard]] std::vector<Learnt> first_that_fit(std::vector<Learnt> learnt, size_t most_bytes);
[[nodiscard]] std::vector<Learnt> learnt_from_json(const Json& json);

}  // namespace hetccl::tune
