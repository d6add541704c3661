// `millrace db`: lists, prunes, merges, exports and imports the database of measurements.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
#include "base/quote.h"
#include "base/text.h"
#include "driver/tuning.h"
#include "measure/database.h"
#include "millrace/millrace.h"
#include "report/json_text.h"
#include "report/table.h"

namespace millrace {
namespace {

constexpr int kSchemaVersion = 2;
constexpr int64_t kMaxImportBytes = int64_t{1} << 30;

// ---- Opening ----

Result<Database> open_to_write(const DatabaseOptions& options) {
  const Result<std::string> path = database_path(options.path);
  if (!path) return path.error();
  return Database::open(*path);
}

// Whether the user's own database does not exist yet because nothing was measured; this is not an error.
bool not_begun(const DatabaseOptions& options, const std::string& path) {
  struct stat status {};
  return options.path.empty() && stat(path.c_str(), &status) != 0 && errno == ENOENT;
}

// ---- Printing ----

std::string programs_text(const std::vector<ProgramSummary>& programs, size_t width) {
  if (programs.empty()) return "";
  Table table({Align::left, Align::right, Align::right, Align::left});
  table.row({"program", "rows", "partitions", "device"});
  constexpr size_t kDevice = 40;
  for (const ProgramSummary& program : programs)
    table.row({printable_line(program.name), concat(program.rows), concat(program.partitions),
               printable_line(program.device).substr(0, kDevice)});
  return concat("\n", table.text(width));
}

std::string list_text(const std::string& path, const std::vector<DeviceSummary>& devices,
                      const std::vector<ProgramSummary>& programs, size_t width) {
  if (devices.empty()) return concat("no measurements in ", printable_line(path), "\n");
  Table table({Align::left, Align::right, Align::right, Align::right, Align::right, Align::left, Align::left});
  table.line(concat("measurements in ", printable_line(path)));
  table.row({"device", "rows", "partitions", "measured", "refused", "first", "last"});
  constexpr size_t kDate = 10;
  for (const DeviceSummary& device : devices) {
    const auto measured = device.outcomes.find(Outcome::measured);
    const int64_t count = measured == device.outcomes.end() ? 0 : measured->second;
    table.row({printable_line(device.device), concat(device.rows), concat(device.partitions), concat(count),
               concat(device.rows - count), device.first.substr(0, kDate), device.last.substr(0, kDate)});
  }
  return table.text(width) + programs_text(programs, width);
}

nlohmann::ordered_json device_json(const DeviceSummary& device) {
  nlohmann::ordered_json outcomes = nlohmann::ordered_json::object();
  for (size_t k = 0; k < kOutcomeNames.size(); ++k) {
    const auto found = device.outcomes.find(static_cast<Outcome>(k));
    outcomes[std::string(kOutcomeNames.at(k))] = found == device.outcomes.end() ? 0 : found->second;
  }
  return {{"device", device.device}, {"rows", device.rows},   {"partitions", device.partitions},
          {"outcomes", outcomes},    {"first", device.first}, {"last", device.last}};
}

std::string ascii_of(std::string text) {
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return text;
}

// A path may contain any bytes; JSON may not.
std::string utf8_path(const std::string& path) {
  return valid_utf8_prefix(path) == path.size() ? path : ascii_of(path);
}

std::string list_json(const std::string& path, const std::vector<DeviceSummary>& devices,
                      const std::vector<ProgramSummary>& programs) {
  JsonText json;
  json.field("schema_version", kSchemaVersion);
  json.field("database", utf8_path(path));
  json.list("devices", devices.size(), [&](size_t k) { return device_json(devices[k]); });
  json.list("programs", programs.size(), [&](size_t k) {
    const ProgramSummary& program = programs[k];
    return nlohmann::ordered_json{{"program", utf8_path(program.name)},
                                  {"device", program.device},
                                  {"rows", program.rows},
                                  {"partitions", program.partitions}};
  });
  return std::move(json).finish();
}

Result<std::string> merged_text(const Result<Merged>& merged, Format format) {
  if (!merged) return merged.error();
  if (format != Format::json)
    return concat(merged->added, " rows added, ", merged->replaced, " replaced by later ones, ", merged->kept,
                  " ignored because ours are later, ", merged->known, " already known\n");
  JsonText json;
  json.field("schema_version", kSchemaVersion);
  json.field("added", merged->added);
  json.field("replaced", merged->replaced);
  json.field("kept", merged->kept);
  json.field("known", merged->known);
  return std::move(json).finish();
}

// ---- Pruning ----

// "2026-01-31"
bool is_day(const std::string& text) {
  constexpr std::string_view kForm = "dddd-dd-dd";
  if (text.size() != kForm.size()) return false;
  for (size_t k = 0; k < kForm.size(); ++k) {
    const bool digit = text[k] >= '0' && text[k] <= '9';
    if (kForm[k] == 'd' ? !digit : text[k] != kForm[k]) return false;
  }
  const auto number = [&](size_t at, size_t digits) { return std::atoi(text.substr(at, digits).c_str()); };
  return std::chrono::year_month_day(std::chrono::year(number(0, 4)),
                                     std::chrono::month(static_cast<unsigned>(number(5, 2))),
                                     std::chrono::day(static_cast<unsigned>(number(8, 2))))
      .ok();
}

std::string pruned_json(int64_t rows, const DatabaseOptions& options) {
  JsonText json;
  json.field("schema_version", kSchemaVersion);
  json.field("deleted", options.dry_run ? 0 : rows);
  json.field("selected", rows);
  return std::move(json).finish();
}

// ---- Exporting ----

Result<std::string> whole_lines(const std::string& path) {
  const Result<Database> database = Database::open(path, DatabaseAccess::read);
  if (!database) return database.error();
  return database->export_lines();
}

// A file whose header is damaged cannot be told from one that was never a database.
bool may_be_damaged(const std::string& path, const Error& error) {
  constexpr std::string_view kHeader = "SQLite format 3";
  if (error.kind != ErrorKind::bad_input) return error.kind == ErrorKind::failed;
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed)) return false;  // opening a pipe would wait for ever
  std::ifstream file(path, std::ios::binary);
  std::string begin(kHeader.size(), '\0');
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  return static_cast<bool>(file) && begin != kHeader;
}

// All rows, or the readable ones if the file is damaged.
Result<std::string> lines_of(const std::string& path, const std::function<void(const std::string&)>& notice) {
  Result<std::string> lines = whole_lines(path);
  if (lines || !may_be_damaged(path, lines.error())) return lines;
  const Result<std::vector<MeasurementRow>> rows = salvage_database(path);
  if (!rows || rows->empty()) {
    const Error nothing = Error::make(ErrorKind::failed, "no row can be read",
                                      "if it is damaged, move it away: a new database is then created");
    lines.error().diagnostics.push_back(nothing.diagnostics.front());
    return lines;
  }
  if (notice) {
    const Error note = Error::make(ErrorKind::failed, concat(rows->size(), " rows of '", path, "' could be recovered"),
                                   "move the file away and import these rows; the others will be measured again");
    std::string text = to_string(lines.error()) + to_string(note);
    text.pop_back();  // a notice is printed as a line
    notice(text);
  }
  return to_lines(*rows);
}

}  // namespace

Result<std::string> list_database(const DatabaseOptions& options) {
  const Result<std::string> path = find_database_path(options.path);
  if (!path) return path.error();
  Result<std::vector<DeviceSummary>> devices = std::vector<DeviceSummary>();
  Result<std::vector<ProgramSummary>> programs = std::vector<ProgramSummary>();
  if (!not_begun(options, *path)) {
    const Result<Database> database = Database::open(*path, DatabaseAccess::read);
    if (!database) return database.error();
    devices = database->list();
    if (!devices) return devices.error();
    programs = database->programs();
    if (!programs) return programs.error();
  }
  if (options.format == Format::json) return list_json(*path, *devices, *programs);
  return list_text(*path, *devices, *programs, static_cast<size_t>(options.width));
}

Result<std::string> prune_database(const DatabaseOptions& options) {
  if (options.before.empty() && options.other_than.empty() && !options.refused)
    return Error::make(ErrorKind::bad_input, "no condition says which rows to delete",
                       "give --before YYYY-MM-DD, --other-than TEXT or --refused");
  if (!options.before.empty() && !is_day(options.before))
    return Error::make(ErrorKind::bad_input, concat("--before ", options.before, ": invalid day"),
                       "write it as 2026-01-31");
  const Result<std::string> path = find_database_path(options.path);
  if (!path) return path.error();
  Result<Database> database =
      not_begun(options, *path) ? Result<Database>(Error::make(ErrorKind::bad_input, "there are no measurements yet"))
                                : Database::open(*path, options.dry_run ? DatabaseAccess::read : DatabaseAccess::write);
  if (!database) return database.error();
  const PrunedRows rows{options.before, options.other_than, options.refused};
  const Result<int64_t> deleted = options.dry_run ? database->count(rows) : database->prune(rows);
  if (!deleted) return deleted.error();
  if (options.format == Format::json) return pruned_json(*deleted, options);
  return concat(*deleted, *deleted == 1 ? " row" : " rows",
                options.dry_run ? " would be deleted from " : " deleted from ", printable_line(*path), "\n");
}

Result<std::string> merge_database(const DatabaseOptions& options) {
  Result<Database> database = open_to_write(options);
  if (!database) return database.error();
  Merged all;
  for (const std::string& other : options.others) {
    const Result<Merged> merged = database->merge_from(other);
    if (!merged) return merged.error();
    all.added += merged->added;
    all.replaced += merged->replaced;
    all.kept += merged->kept;
    all.known += merged->known;
  }
  return merged_text(all, options.format);
}

Result<std::string> export_database(const DatabaseOptions& options) {
  const Result<std::string> path = find_database_path(options.path);
  if (!path) return path.error();
  Result<std::string> lines = not_begun(options, *path) ? std::string() : lines_of(*path, options.notice);
  if (!lines || options.file.empty()) return lines;
  const Result<Done> written = write_file(options.file, *lines);
  if (!written) return written.error();
  const auto rows = std::count(lines->begin(), lines->end(), '\n');
  return concat(rows, " rows written to ", printable_line(options.file), "\n");
}

Result<std::string> import_database(const DatabaseOptions& options) {
  const Result<std::string> text = read_file_or_pipe(options.file, kMaxImportBytes);
  if (!text) return text.error();
  Result<std::vector<MeasurementRow>> rows = from_lines(*text);
  if (!rows) {
    for (Diagnostic& diagnostic : rows.error().diagnostics) diagnostic.file = options.file;
    return rows.error();
  }
  Result<Database> database = open_to_write(options);
  if (!database) return database.error();
  return merged_text(database->merge(*rows), options.format);
}

}  // namespace millrace
