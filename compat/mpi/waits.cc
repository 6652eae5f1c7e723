#include "mpi/waits.h"

#include <sched.h>

#include "mpi/job.h"

namespace hetccl::mpi {
namespace {

bool any_pending() {
  Job* job = Job::get();
  return job != nullptr && job->requests().any_pending();
}

// A little time for what is under way.
void pause(const std::vector<Word>& requests, bool all) {
  Job* job = Job::get();
  if (job == nullptr) return;
  // Of several, any of which may come first, none is waited for.
  if (all || requests.size() == 1) {
    const InsideCall inside;
    for (const Word request : requests) {
      if (job->requests().await(request)) return;
    }
  }
  sched_yield();
}

}  // namespace

int wait_for(const Caller& wait, const Caller& test, const Words& words, size_t flag,
             const std::function<std::vector<Word>()>& requests, bool all) {
  if (!any_pending()) return wait(words);
  const std::vector<Word> handles = requests();
  Words tested = words;
  int is_complete = 0;  // as large as a Fortran logical
  tested.insert(flag, from_pointer(&is_complete));
  while (any_pending()) {
    Job::get()->requests().advance();
    const int code = test(tested);
    if (code != 0 || is_complete != 0) return code;
    pause(handles, all);
  }
  return wait(words);
}

int wait_for_some(const Caller& wait, const Caller& test, const Words& words, const int* count) {
  while (any_pending()) {
    Job::get()->requests().advance();
    const int code = test(words);
    if (code != 0 || *count != 0) return code;
    pause({}, false);
  }
  return wait(words);
}

int test_for(const Caller& test, const Words& words) {
  if (any_pending()) Job::get()->requests().advance();
  return test(words);
}

bool start_request(Word request, int* code) {
  Job* job = Job::get();
  if (job == nullptr) return false;
  const InsideCall inside;
  return job->requests().start_persistent(request, code);
}

}  // namespace hetccl::mpi
