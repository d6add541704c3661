// One line at the bottom of the terminal that says what a command is doing and how long that may take. A thread redraws
// it, so that it appears within the first second even if the command calls nothing. Draws nothing if standard error is
// not a terminal. Test: tests/python/terminal_test.py
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "millrace/millrace.h"

class StatusLine {
 public:
  // `doing`: what the command does, until progress says more.
  explicit StatusLine(std::string doing);
  ~StatusLine() { finish(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  void show(const millrace::Progress& progress);
  // Prints a line that stays, above this one. Also if standard error is not a terminal.
  void print(const std::string& line);
  // Erases it; from then on nothing is drawn.
  void finish();

 private:
  void redraw_until_finished();
  void draw();
  void erase();

  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::mutex mutex_;  // guards everything below
  std::condition_variable ends_;
  millrace::Progress progress_;
  std::chrono::steady_clock::time_point told_;  // when progress_ was
  bool drawn_ = false;
  bool finished_ = false;
  std::thread ticker_;  // not running if there is no terminal
};

// The line for a terminal of this many columns: the fields that fit, most important first.
std::string status_text(const millrace::Progress& progress, double elapsed, size_t columns);
