#include "tools/status_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <system_error>
#include <vector>

#include "base/quote.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kFirst = std::chrono::milliseconds(300);  // shorter commands show no line
constexpr auto kEvery = std::chrono::milliseconds(250);
constexpr size_t kUsualColumns = 80;
constexpr const char* kErase = "\r\033[K";

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

size_t terminal_columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* const columns = std::getenv("COLUMNS");  // NOLINT(concurrency-mt-unsafe): nothing sets variables
  const int count = columns == nullptr ? 0 : std::atoi(columns);
  return count > 0 ? static_cast<size_t>(count) : kUsualColumns;
}

template <class... Values>
std::string formatted(const char* format, Values... values) {
  std::array<char, 96> text{};
  std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}

std::string clock_text(double seconds) {
  const int whole = static_cast<int>(seconds);
  return formatted("%d:%02d", whole / 60, whole % 60);
}

// A field of the line; the least important ones are left out first.
struct Field {
  std::string text;
  int importance = 0;
};

std::vector<Field> fields_of(const millrace::Progress& progress, double elapsed) {
  std::vector<Field> fields = {{progress.doing, 5}};
  if (progress.total > 0) {
    fields.push_back({formatted("%.0f of %.0f candidates", progress.done, progress.total), 3});
    fields.push_back({progress.seconds > 0 ? formatted("step %.3g ms", progress.seconds * 1e3) : "step unknown", 2});
  }
  if (progress.bound > 0) fields.push_back({formatted("bound %.3g ms", progress.bound * 1e3), 1});
  fields.push_back({progress.left > 0 ? clock_text(progress.left) + " left" : clock_text(elapsed), 4});
  return fields;
}

std::string joined(const std::vector<Field>& fields) {
  std::string line;
  for (const Field& field : fields) line += (line.empty() ? "" : " | ") + field.text;
  return line;
}

}  // namespace

std::string status_text(const millrace::Progress& progress, double elapsed, size_t columns) {
  const auto less = [](const Field& l, const Field& r) { return l.importance < r.importance; };
  std::vector<Field> fields = fields_of(progress, elapsed);
  while (fields.size() > 1 && joined(fields).size() >= columns)
    fields.erase(std::min_element(fields.begin(), fields.end(), less));
  return joined(fields).substr(0, columns > 0 ? columns - 1 : 0);  // a full line would wrap
}

StatusLine::StatusLine(std::string doing) : told_(begin_) {
  progress_.doing = std::move(doing);
  if (isatty(STDERR_FILENO) == 0) return;
  try {
    ticker_ = std::thread([this] { redraw_until_finished(); });
  } catch (const std::system_error&) {
    // No more threads can be created: the command works without the line.
  }
}

void StatusLine::show(const millrace::Progress& progress) {
  const std::lock_guard lock(mutex_);
  progress_ = progress;
  told_ = Clock::now();
}

void StatusLine::print(const std::string& line) {
  const std::lock_guard lock(mutex_);
  erase();
  std::cerr << millrace::printable(line) << std::endl;
}

void StatusLine::finish() {
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
    erase();
  }
  ends_.notify_all();
  if (ticker_.joinable()) ticker_.join();
}

void StatusLine::redraw_until_finished() {
  std::unique_lock lock(mutex_);
  const auto finished = [this] { return finished_; };
  for (auto pause = kFirst; !ends_.wait_for(lock, pause, finished); pause = kEvery) draw();
}

// Needs the lock.
void StatusLine::draw() {
  millrace::Progress shown = progress_;
  if (shown.left > 0) shown.left = std::max(0.01, shown.left - seconds_since(told_));
  std::cerr << kErase << status_text(shown, seconds_since(begin_), terminal_columns()) << std::flush;
  drawn_ = true;
}

// Needs the lock.
void StatusLine::erase() {
  if (drawn_) std::cerr << kErase << std::flush;
  drawn_ = false;
}
