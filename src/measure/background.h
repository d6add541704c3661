// Work that runs while candidates are measured. Test: tests/measure/explore_test.cpp
#pragma once

#include <chrono>
#include <future>
#include <system_error>
#include <type_traits>
#include <utility>

namespace millrace {

enum class Background {
  on_a_thread,
  when_requested,  // where another thread would disturb the measurement: runs in get()
};

template <class Work>
std::future<std::invoke_result_t<Work>> run_in_background(Background mode, Work work) {
  if (mode == Background::on_a_thread) {
    try {
      return std::async(std::launch::async, work);
    } catch (const std::system_error&) {
      // No thread is available: run it when its result is requested.
    }
  }
  return std::async(std::launch::deferred, std::move(work));
}

// Whether get() returns without waiting for another thread.
template <class T>
bool is_ready(const std::future<T>& work) {
  return work.wait_for(std::chrono::seconds(0)) != std::future_status::timeout;
}

}  // namespace millrace
