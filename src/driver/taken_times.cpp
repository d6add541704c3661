#include "driver/taken_times.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "report/exploration_report.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostTakenBytes = int64_t{64} << 20;
constexpr int kDeepestTaken = 16;

struct TakenLaunch {
  std::string name;
  std::string pass;
  double value = 0;
};

std::string taken_folder(const std::string& path) {
  const std::filesystem::path given(path);
  return path.ends_with(".json") ? given.parent_path().string() : path;
}

std::string in_folder(const std::string& folder, const char* name) {
  return folder.empty() ? name : concat(folder, "/", name);
}

Error unreadable(const std::string& file, const char* command) {
  return Error::make(ErrorKind::bad_input, concat(file, " is not what ", command, " writes"),
                     concat("remove it, or make it again with ", command));
}

// The values in the order of the plan's launches; empty if the file is about other launches.
std::vector<double> matched(const StepPlan& plan, const std::vector<TakenLaunch>& taken) {
  if (taken.size() != plan.launches.size()) return {};
  std::vector<double> values;
  for (size_t k = 0; k < taken.size(); ++k) {
    if (taken[k].name != name_of(plan.launches[k]) || taken[k].pass != name_of(plan.launches[k].pass)) return {};
    values.push_back(taken[k].value);
  }
  return values;
}

std::vector<TakenLaunch> launches_in(const Json& list, const char* name, const char* value) {
  std::vector<TakenLaunch> taken;
  for (const Json& launch : list) {
    const Json& number = launch.at(value);
    taken.push_back({launch.at(name), launch.at("pass"), number.is_number() ? number.get<double>() : 0});
  }
  return taken;
}

void take_times(const StepPlan& plan, const Json& root, TakenTimes& taken) {
  const bool other = root.contains("plan_date") && root.at("plan_date") != plan.date;
  if (root.contains("step_seconds")) taken.step_seconds = root.at("step_seconds").at("median");
  const std::vector<TakenLaunch> launches = launches_in(root.at("launches"), "name", "seconds");
  taken.launch_seconds = matched(plan, launches);
  if (!other && (launches.empty() || !taken.launch_seconds.empty())) return;
  taken.step_seconds = 0;
  taken.launch_seconds.clear();
  taken.left_out.push_back(
      concat(kTimesFile, " has the times of another plan and is left out: millrace bench PLAN --json makes it again."));
}

void take_counted(const StepPlan& plan, const Json& root, TakenTimes& taken) {
  for (const auto& [name, run] : root.at("runs").items()) {
    if (run.at("bytes_are") != "measured") continue;
    taken.launch_bytes = matched(plan, launches_in(run.at("launches"), "launch", "moved_bytes"));
    if (!taken.launch_bytes.empty()) return;
  }
  taken.left_out.push_back(
      concat(kCountedFile, " has no byte counts for this plan and is left out: bench/mue.py PLAN makes it again."));
}

// A search of an earlier plan in the folder is of no use, and no later command can make this plan's.
void take_search(const StepPlan& plan, const Json& root, TakenTimes& taken) {
  if (root.at("plan_date") != plan.date) return;
  for (const Json& point : root.at("over_time"))
    taken.search.push_back(
        {point.at("seconds"), point.at("tried"), point.at("step_seconds"), point.at("lower_bound_seconds")});
}

using Take = void (*)(const StepPlan&, const Json&, TakenTimes&);

Result<Done> take_file(const StepPlan& plan, const std::string& file, const char* command, Take take,
                       TakenTimes& taken) {
  std::error_code unknown;
  if (std::filesystem::symlink_status(file, unknown).type() == std::filesystem::file_type::not_found) return Done{};
  const Result<std::string> text = read_file(file, kMostTakenBytes);
  if (!text) return text.error();
  const Result<Json> root = parse_json(*text, kDeepestTaken, file);
  if (!root) return unreadable(file, command);
  try {
    take(plan, *root, taken);
  } catch (const Json::exception&) {
    return unreadable(file, command);
  }
  return Done{};
}

}  // namespace

Result<TakenTimes> taken_times(const StepPlan& plan, const std::string& path) {
  TakenTimes taken;
  const std::string folder = taken_folder(path);
  if (Result<Done> read =
          take_file(plan, in_folder(folder, kTimesFile), "millrace bench PLAN --json", take_times, taken);
      !read)
    return read.error();
  if (Result<Done> read =
          take_file(plan, in_folder(folder, kCountedFile), "bench/mue.py PLAN --out FILE", take_counted, taken);
      !read)
    return read.error();
  if (Result<Done> read = take_file(plan, in_folder(folder, kSearchFile), "millrace optimize", take_search, taken);
      !read)
    return read.error();
  return taken;
}

std::string step_times_json(const StepPlan& plan, double median, double low, double high) {
  const Json root = {{"schema_version", 2},
                     {"plan_date", plan.date},
                     {"step_seconds", {{"median", median}, {"low", low}, {"high", high}}},
                     {"launches", Json::array()}};
  return root.dump(1) + "\n";
}

std::string search_json(const StepPlan& plan, const std::vector<ExplorationPoint>& points) {
  const Json root = {{"schema_version", 1}, {"plan_date", plan.date}, {"over_time", over_time_json(points)}};
  return root.dump(1) + "\n";
}

}  // namespace millrace
