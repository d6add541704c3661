// `millrace db`: lists, merges, exports and imports the database of measurements.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
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

// Texts come from other machines: removes control characters, and what would break columns.
std::string printable(std::string text) {
  for (char& c : text)
    if (c < ' ' || c > '~') c = c == '\n' ? ' ' : '?';
  return text;
}

std::string list_text(const std::string& path, const std::vector<DeviceSummary>& devices, size_t width) {
  if (devices.empty()) return concat("no measurements in ", printable(path), "\n");
  Table table({Align::left, Align::right, Align::right, Align::right, Align::right, Align::left, Align::left});
  table.line(concat("measurements in ", printable(path)));
  table.row({"device", "rows", "partitions", "measured", "refused", "first", "last"});
  constexpr size_t kDate = 10;
  for (const DeviceSummary& device : devices) {
    const auto measured = device.outcomes.find(Outcome::measured);
    const int64_t count = measured == device.outcomes.end() ? 0 : measured->second;
    table.row({printable(device.device), concat(device.rows), concat(device.partitions), concat(count),
               concat(device.rows - count), device.first.substr(0, kDate), device.last.substr(0, kDate)});
  }
  return table.text(width);
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

// A path may contain any bytes; JSON may not.
std::string utf8_path(const std::string& path) {
  return valid_utf8_prefix(path) == path.size() ? path : printable(path);
}

std::string list_json(const std::string& path, const std::vector<DeviceSummary>& devices) {
  JsonText json;
  json.field("schema_version", kSchemaVersion);
  json.field("database", utf8_path(path));
  json.list("devices", devices.size(), [&](size_t k) { return device_json(devices[k]); });
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

// ---- Exporting ----

Result<std::string> whole_lines(const std::string& path) {
  const Result<Database> database = Database::open(path, DatabaseAccess::read);
  if (!database) return database.error();
  return database->export_lines();
}

// All rows, or the readable ones if the file is damaged.
Result<std::string> lines_of(const std::string& path, std::string* notice) {
  Result<std::string> lines = whole_lines(path);
  if (lines || lines.error().kind != ErrorKind::failed) return lines;
  const Result<std::vector<MeasurementRow>> rows = salvage_database(path);
  if (!rows || rows->empty()) {
    const Error nothing = Error::make(ErrorKind::failed, "no row can be read",
                                      "if it is damaged, move it away: a new database is then created");
    lines.error().diagnostics.push_back(nothing.diagnostics.front());
    return lines;
  }
  if (notice != nullptr) {
    const Error note = Error::make(ErrorKind::failed, concat(rows->size(), " rows of '", path, "' could be recovered"),
                                   "move the file away and import these rows; the others will be measured again");
    *notice = to_string(lines.error()) + to_string(note);
  }
  return to_lines(*rows);
}

}  // namespace

Result<std::string> list_database(const DatabaseOptions& options) {
  const Result<std::string> path = database_path(options.path);
  if (!path) return path.error();
  Result<std::vector<DeviceSummary>> devices = std::vector<DeviceSummary>();
  if (!not_begun(options, *path)) {
    const Result<Database> database = Database::open(*path, DatabaseAccess::read);
    if (!database) return database.error();
    devices = database->list();
    if (!devices) return devices.error();
  }
  if (options.format == Format::json) return list_json(*path, *devices);
  return list_text(*path, *devices, static_cast<size_t>(options.width));
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
  const Result<std::string> path = database_path(options.path);
  if (!path) return path.error();
  Result<std::string> lines = not_begun(options, *path) ? std::string() : lines_of(*path, options.notice);
  if (!lines || options.file.empty()) return lines;
  const Result<Done> written = write_file(options.file, *lines);
  if (!written) return written.error();
  const auto rows = std::count(lines->begin(), lines->end(), '\n');
  return concat(rows, " rows written to ", options.file, "\n");
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
