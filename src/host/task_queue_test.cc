#include "host/task_queue.h"

#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "fake/thread.h"

using namespace hetccl;

TEST_CASE("a queue runs tasks in order and stops at a pending one") {
  TaskQueue queue;
  std::vector<int> ran;
  bool open = false;
  queue.push([&] { return ran.push_back(1), TaskState::Done; });
  queue.push([&] { return open ? TaskState::Done : TaskState::Pending; });
  queue.push([&] { return ran.push_back(2), TaskState::Done; });
  CHECK(queue.poll());
  CHECK(ran == std::vector{1});
  CHECK_FALSE(queue.poll());
  CHECK_FALSE(queue.empty());
  open = true;
  CHECK(queue.poll());
  CHECK(ran == std::vector{1, 2});
  CHECK(queue.empty());
  CHECK_FALSE(queue.poll());
}

TEST_CASE("an advanced task yields and goes on at the next poll") {
  TaskQueue queue;
  int steps = 0;
  queue.push([&] { return ++steps < 3 ? TaskState::Advanced : TaskState::Done; });
  CHECK(queue.poll());
  CHECK(steps == 1);
  CHECK(queue.poll());
  CHECK(queue.poll());
  CHECK(steps == 3);
  CHECK(queue.empty());
}

TEST_CASE("a task may push to its own queue, over many chunks") {
  TaskQueue queue;
  int left = 1000;
  struct Again {
    TaskQueue* queue;
    int* left;
    TaskState operator()() const {
      if (--*left > 0) queue->push(Again{*this});
      return TaskState::Done;
    }
  };
  queue.push(Again{&queue, &left});
  while (!queue.empty()) queue.poll();
  CHECK(left == 0);
}

TEST_CASE("tasks that never ran are destroyed with their queue") {
  auto captured = std::make_shared<int>(7);
  {
    TaskQueue queue;
    for (int i = 0; i < 100; ++i) queue.push([captured] { return TaskState::Done; });
    for (int i = 0; i < 100; ++i) queue.push([captured] { return TaskState::Pending; });
    queue.poll();
    CHECK(captured.use_count() == 101);
  }
  CHECK(captured.use_count() == 1);
}

TEST_CASE("several threads push while one polls") {
  constexpr int kThreads = 4, kEach = 5000;
  TaskQueue queue;
  int last[kThreads] = {-1, -1, -1, -1};
  int out_of_order = 0, done = 0;
  std::vector<fake::Thread> pushers;
  for (int t = 0; t < kThreads; ++t)
    pushers.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i)
        queue.push([&, t, i] {
          if (last[t] != i - 1) ++out_of_order;
          last[t] = i;
          ++done;
          return TaskState::Done;
        });
    });
  while (done < kThreads * kEach)
    if (!queue.poll()) std::this_thread::yield();
  for (auto& pusher : pushers) pusher.join();
  CHECK(out_of_order == 0);
  CHECK(queue.empty());
}

TEST_CASE("host_address is the identity unless a map is given") {
  TaskQueue plain;
  int x = 0;
  CHECK(plain.host_address(&x) == &x);
  int there[4] = {};
  TaskQueue mapped([](void* context, const void*) { return context; }, there);
  CHECK(mapped.host_address(&x) == there);
}
