// Calls of several callers on a few threads.
#include "device/compile_queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <set>

namespace millrace {
namespace {

TEST(CompileQueue, MakesEachCallOnce) {
  CompileQueue queue;
  for (const int jobs : {0, 1, 3}) {
    std::mutex mutex;
    std::multiset<size_t> made;
    queue.run(20, jobs, [&](size_t k) {
      const std::lock_guard lock(mutex);
      made.insert(k);
    });
    EXPECT_EQ(made.size(), 20U);
    EXPECT_EQ(std::set<size_t>(made.begin(), made.end()).size(), 20U);
  }
  queue.run(0, 1, [](size_t) { FAIL() << "nothing to do"; });
}

// The second caller comes while the first call of the first one runs.
TEST(CompileQueue, TheEarliestCallersCallsAreFirst) {
  CompileQueue queue;
  std::string order;  // written by the only thread of the queue
  std::promise<void> begun;
  std::promise<void> second_came;
  std::thread first([&] {
    queue.run(3, 1, [&](size_t k) {
      if (k == 0) {
        begun.set_value();
        second_came.get_future().wait();
      }
      order += '1';
    });
  });
  begun.get_future().wait();
  std::thread second([&] { queue.run(2, 1, [&](size_t) { order += '2'; }); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // most likely it waits in the queue by then
  second_came.set_value();
  first.join();
  second.join();
  EXPECT_EQ(order, "11122");
}

TEST(CompileQueue, ForgetsCallsThatHaveNotBegun) {
  CompileQueue queue;
  size_t made = 0;
  std::promise<void> begun;
  std::promise<void> forgotten;
  std::thread caller([&] {
    queue.run(3, 1, [&](size_t) {
      ++made;
      begun.set_value();
      forgotten.get_future().wait();
    });
  });
  begun.get_future().wait();
  queue.forget();
  forgotten.set_value();
  caller.join();
  EXPECT_EQ(made, 1U);
}

}  // namespace
}  // namespace millrace
