#include "mpi/waits.h"

#include <sched.h>

#include "mpi/job.h"

namespace hetccl::mpi {
namespace {

bool any_pending() {
  Job* job = Job::get();
  return job != nullptr && job->requests().any_pending();
}

// An error of hetccl is that of the wait or test in which it came to light.
int with_error(int code) {
  Job* job = Job::get();
  const int error = job == nullptr ? 0 : job->requests().take_error();
  return code != 0 ? code : error;
}

}  // namespace

// MPI_Testall in a loop would do, but MPICH 5.0.2 gives an error for a persistent collective of its
// own that is under way.
int wait_for_all(const Caller& wait, const Words& words,
                 const std::function<std::vector<Word>()>& requests) {
  if (!any_pending()) return with_error(wait(words));
  Requests& under_way = Job::get()->requests();
  for (const Word request : requests()) {
    const InsideCall inside;
    do {
      under_way.advance();
    } while (under_way.await(request));
  }
  return with_error(wait(words));
}

int wait_for_any(const Caller& wait, const Caller& test, const Words& words, size_t flag) {
  Words tested = words;
  int is_complete = 0;  // as large as a Fortran logical
  tested.insert(flag, from_pointer(&is_complete));
  while (any_pending()) {
    Job::get()->requests().advance();
    const int code = test(tested);
    if (code != 0 || is_complete != 0) return with_error(code);
    sched_yield();
  }
  return with_error(wait(words));
}

int wait_for_some(const Caller& wait, const Caller& test, const Words& words, const int* count) {
  while (any_pending()) {
    Job::get()->requests().advance();
    const int code = test(words);
    if (code != 0 || *count != 0) return with_error(code);
    sched_yield();
  }
  return with_error(wait(words));
}

int test_for(const Caller& test, const Words& words) {
  if (any_pending()) Job::get()->requests().advance();
  return with_error(test(words));
}

bool start_request(Word request, int* code) {
  Job* job = Job::get();
  if (job == nullptr) return false;
  const InsideCall inside;
  return job->requests().start_persistent(request, code);
}

}  // namespace hetccl::mpi
