#include "mpi/waits.h"

#include <sched.h>

#include <memory>
#include <utility>
#include <vector>

#include "mpi/job.h"
#include "mpi/outcomes.h"

namespace hetccl::mpi {
namespace {

bool any_pending() {
  Job* job = Job::get();
  return job != nullptr && job->requests().any_pending();
}

bool has_number(Which which) {
  return which != Which::One;
}

std::vector<Word> requests_of(const Language& language, Which which, const Words& words) {
  const int n = has_number(which) ? language.number(words.word[0]) : 1;
  std::vector<Word> list;
  for (int i = 0; i < n; ++i) list.push_back(language.request(words.word[has_number(which)], i));
  return list;
}

// The requests of a call, looked up before the call, since the MPI frees completed ones.
class Watched {
 public:
  Watched(const Language& language, Which which, const Words& words, bool tests, bool keeps = false)
      : language_(language), which_(which), words_(words), tests_(tests), keeps_(keeps) {
    if (!outcomes::exist()) return;
    for (const Word request : requests_of(language, which, words)) {
      outcomes_.push_back(outcomes::find(request));
    }
  }

  // Returns the call's result, given the MPI's `code`. Errors of the MPI itself are not hetccl's
  // and pass through.
  int settle(int code) const {
    const bool has_several = which_ == Which::All || which_ == Which::Some;
    const bool is_complete = code == 0 || (has_several && code == mpi().abi.err_in_status);
    if (outcomes_.empty() || !is_complete || !is_flagged()) return code;
    int first = 0;
    for (const auto& [request, status] : completed()) {
      const int error = take(request);
      if (error == 0) continue;
      if (has_several && first == 0 && code == 0) clear_errors();
      if (has_several) set_error(status, error);
      if (first == 0) first = error;
    }
    if (first == 0) return code;
    return has_several && !language_.ignores(statuses()) ? mpi().abi.err_in_status : first;
  }

 private:
  // Index of the first argument behind the requests and their number.
  [[nodiscard]] size_t next() const { return has_number(which_) ? 2 : 1; }
  [[nodiscard]] int* out(size_t place) const { return to_pointer<int>(words_.word[place]); }
  // Whether a testing function has found a completed request.
  [[nodiscard]] bool is_flagged() const {
    if (!tests_ || which_ == Which::Some) return true;
    return *out(which_ == Which::Any ? 3 : next()) != 0;
  }
  [[nodiscard]] Word statuses() const {
    switch (which_) {
      case Which::One:
      case Which::All:
        return words_.word[next() + (tests_ ? 1 : 0)];
      case Which::Any:
        return words_.word[tests_ ? 4 : 3];
      case Which::Some:
        break;
    }
    return words_.word[4];
  }
  // The completed requests, each with the index of its status.
  [[nodiscard]] std::vector<std::pair<int, int>> completed() const {
    std::vector<std::pair<int, int>> list;
    const int n = static_cast<int>(outcomes_.size());
    if (which_ == Which::One || which_ == Which::All) {
      for (int i = 0; i < n; ++i) list.emplace_back(i, i);
    } else if (which_ == Which::Any) {
      if (*out(2) != mpi().abi.undefined) list.emplace_back(*out(2) - language_.first, 0);
    } else if (*out(2) != mpi().abi.undefined) {
      for (int i = 0; i < *out(2); ++i) list.emplace_back(out(3)[i] - language_.first, i);
    }
    return list;
  }
  [[nodiscard]] int take(int request) const {
    if (request < 0 || static_cast<size_t>(request) >= outcomes_.size()) return 0;
    Outcome* outcome = outcomes_[static_cast<size_t>(request)].get();
    if (outcome == nullptr) return 0;
    return keeps_ ? outcome->code.load() : outcome->code.exchange(0);
  }
  // The MPI writes MPI_ERROR only if one of its own requests failed.
  void clear_errors() const {
    for (const auto& [request, status] : completed()) set_error(status, 0);
  }
  void set_error(int status, int error) const {
    if (language_.ignores(statuses())) return;
    const Abi& abi = mpi().abi;
    *to_pointer<int>(statuses() + static_cast<Word>(status) * abi.status_bytes + abi.status_error) =
        error;
  }

  const Language& language_;
  const Which which_;
  const Words& words_;
  const bool tests_, keeps_;
  std::vector<std::shared_ptr<Outcome>> outcomes_;  // empty if no request is hetccl's
};

// Not MPI_Testall in a loop: MPICH 5.0.2 returns an error for an active persistent collective of
// its own.
void finish_all(const std::vector<Word>& requests) {
  Requests& under_way = Job::get()->requests();
  for (const Word request : requests) {
    const InsideCall inside;
    do {
      under_way.advance();
    } while (under_way.await(request));
  }
}

}  // namespace

int wait_for(const Language& language, Which which, const Caller& wait, const Caller& test,
             const Words& words) {
  const Watched watched(language, which, words, false);
  if (which == Which::One || which == Which::All) {
    if (any_pending()) finish_all(requests_of(language, which, words));
    return watched.settle(wait(words));
  }
  Words tested = words;
  int flag = 0;  // a Fortran LOGICAL fits too
  if (which == Which::Any) tested.insert(3, from_pointer(&flag));
  const int* found = which == Which::Any ? &flag : to_pointer<const int>(words.word[2]);
  while (any_pending()) {
    Job::get()->requests().advance();
    const int code = test(tested);
    if (code != 0 || *found != 0) return watched.settle(code);
    sched_yield();
  }
  return watched.settle(wait(words));
}

int test_for(const Language& language, Which which, const Caller& test, const Words& words,
             bool keeps) {
  const Watched watched(language, which, words, true, keeps);
  if (any_pending()) Job::get()->requests().advance();
  return watched.settle(test(words));
}

bool start_request(Word request, int* code) {
  Job* job = Job::get();
  if (job == nullptr) return false;
  const InsideCall inside;
  return job->requests().start_persistent(request, code);
}

}  // namespace hetccl::mpi
