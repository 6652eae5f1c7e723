#include "mpi/serve.h"

#include "mpi/communicator.h"
#include "mpi/job.h"

namespace hetccl::mpi {
namespace {

Status run(const Call& call, const Route& route, Communicator& comm, const Library& library) {
  auto& endpoints = *route.endpoints;
  HETCCL_ASSIGN(auto exchange, Exchange::prepare(call, comm.size(), comm.rank(),
                                                 endpoints.front()->place(), library));
  const auto parts = static_cast<size_t>(route.decision.streams);
  if (parts == 1 || call.collective != Collective::Allreduce) {
    HETCCL_TRY(endpoints.front()->run(*exchange));
    return exchange->deliver();
  }
  const auto n = static_cast<size_t>(route.decision.communicators);
  std::vector<uint64_t> marks;
  for (size_t part = 0; part < parts; ++part) {
    HETCCL_ASSIGN(const uint64_t mark, endpoints[part % n]->start(*exchange, part, parts));
    marks.push_back(mark);
  }
  for (size_t part = 0; part < parts; ++part) {
    HETCCL_TRY(endpoints[part % n]->await(marks[part]));
  }
  return exchange->deliver();
}

Result<Operation> begin(const Call& call, const Route& route, Communicator& comm,
                        const Library& library) {
  auto& endpoints = *route.endpoints;
  Operation operation{comm.shared_from_this(), nullptr, {}};
  HETCCL_ASSIGN(operation.exchange, Exchange::prepare(call, comm.size(), comm.rank(),
                                                      endpoints.front()->place(), library));
  const bool cut = call.collective == Collective::Allreduce;
  const auto parts = static_cast<size_t>(cut ? route.decision.streams : 1);
  for (size_t part = 0; part < parts; ++part) {
    Endpoint* endpoint = endpoints[part % static_cast<size_t>(route.decision.communicators)].get();
    HETCCL_ASSIGN(const uint64_t mark, endpoint->start(*operation.exchange, part, parts));
    operation.parts.push_back({endpoint, mark});
  }
  return operation;
}

int fail(const Call& call, const Status& status, const Job& job) {
  job.log().error("MPI %s: %s", std::string(name_of(call.collective)).c_str(),
                  status.message().c_str());
  return job.library().raise(call.comm, job.library().error_code(status.message()));
}

int serve_by_hetccl(const Call& call, const Route& route, Communicator& comm, Job& job) {
  const Library& library = job.library();
  switch (call.form) {
    case Form::Blocking: {
      const InsideCall inside;
      const Status status = run(call, route, comm, library);
      return status.ok() ? 0 : fail(call, status, job);
    }
    case Form::Nonblocking: {
      auto operation = begin(call, route, comm, library);
      if (!operation.ok()) return fail(call, operation.status(), job);
      return job.requests().add(std::move(operation).value(), call.comm, call.request);
    }
    case Form::Persistent:
      break;
  }
  // Persistent calls may be started in any order, and hetccl's are made in one.
  Endpoint* endpoint = comm.reserve(route);
  if (endpoint == nullptr) return call_mpi(call);
  return job.requests().add_persistent(call, comm.shared_from_this(), endpoint, call.request);
}

int serve_by_mpi(const Call& call, const Route& route, Communicator& comm) {
  if (route.decision.algorithm == Algorithm::Alpha && call.form == Form::Blocking &&
      Composition::applies(call.collective) && !call.large && route.reason == Reason::Rule) {
    return comm.composition().run(call);
  }
  return call_mpi(call);
}

}  // namespace

int serve(Collective collective, Form form, bool large, const Words& words) {
  Library* library = Library::get();
  const Call call = read_call(collective, form, large, words, *library);
  Job* job = Job::get();
  if (job == nullptr) return call_mpi(call);
  Summary::Timer timer(job->summary(), call);
  Communicator* comm = Communicator::find(call.comm, *job);
  if (!comm->enter()) {
    timer.served(Reason::Concurrent, 0);
    return call_mpi(call);
  }
  struct Leave {
    Communicator* comm;
    ~Leave() { comm->leave(); }
  } const leave{comm};
  const Route route = comm->route(call);
  timer.served(route.reason, route.volume.average);
  if (route.reason == Reason::Hetccl) return serve_by_hetccl(call, route, *comm, *job);
  return serve_by_mpi(call, route, *comm);
}

}  // namespace hetccl::mpi
