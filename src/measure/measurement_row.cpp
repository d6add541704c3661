#include "measure/measurement_row.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/text.h"

namespace millrace {
namespace {

constexpr int kRowVersion = 2;
constexpr size_t kMaxKeyBytes = size_t{1} << 20;
constexpr size_t kMaxDetailBytes = 4096;
constexpr size_t kMaxLineBytes = size_t{16} << 20;
constexpr size_t kMaxComplaints = 20;
constexpr std::string_view kVersionField = "schema_version";

bool storable_text(std::string_view text) {
  return text.find('\0') == std::string_view::npos && valid_utf8_prefix(text) == text.size();
}

// Whether the day and time exist; the text has the right pattern. A day that does not exist would be later than all
// others.
bool is_possible_time(std::string_view text) {
  const auto number = [&](size_t at, size_t digits) {
    unsigned value = 0;
    for (size_t k = at; k < at + digits; ++k) value = 10 * value + static_cast<unsigned>(text[k] - '0');
    return value;
  };
  const std::chrono::year_month_day day(std::chrono::year(static_cast<int>(number(0, 4))),
                                        std::chrono::month(number(5, 2)), std::chrono::day(number(8, 2)));
  return day.ok() && number(11, 2) < 24 && number(14, 2) < 60 && number(17, 2) <= 60;  // with leap seconds
}

bool is_utc_time(std::string_view text) {
  constexpr std::string_view kPattern = "dddd-dd-ddTdd:dd:ddZ";
  if (text.size() != kPattern.size()) return false;
  for (size_t k = 0; k < text.size(); ++k) {
    const bool digit = text[k] >= '0' && text[k] <= '9';
    if (kPattern[k] == 'd' ? !digit : text[k] != kPattern[k]) return false;
  }
  return is_possible_time(text);
}

// ---- JSON lines ----

nlohmann::ordered_json to_json(const MeasurementRow& row) {
  return {{kVersionField, kRowVersion},
          {"device", row.key.device},
          {"partition", row.key.partition},
          {"candidate", row.key.candidate},
          {"outcome", kOutcomeNames.at(static_cast<size_t>(row.outcome))},
          {"seconds", row.seconds},
          {"low", row.low},
          {"high", row.high},
          {"samples", row.samples},
          {"detail", row.detail},
          {"when", row.when}};
}

// Reads the fields of one line's object and remembers the first error.
class LineReader {
 public:
  explicit LineReader(const nlohmann::json& object) : object_(object) {}

  std::string text(const char* name) {
    const nlohmann::json* const value = field(name);
    if (value == nullptr) return {};
    if (value->is_string()) return value->get<std::string>();
    complain(concat("'", name, "' is not a string"));
    return {};
  }

  double number(const char* name) {
    const nlohmann::json* const value = field(name);
    if (value == nullptr) return 0;
    if (value->is_number()) return value->get<double>();
    complain(concat("'", name, "' is not a number"));
    return 0;
  }

  int64_t integer(const char* name) {
    const nlohmann::json* const value = field(name);
    if (value == nullptr) return 0;
    // nlohmann stores every non-negative integer as unsigned.
    if (value->is_number_unsigned() && value->get<uint64_t>() <= uint64_t{INT64_MAX}) return value->get<int64_t>();
    complain(concat("'", name, "' is not a non-negative integer"));
    return 0;
  }

  void reject_other_fields() {
    for (const auto& [name, value] : object_.items())
      if (!taken_.contains(name)) complain("the line has an unknown field");
  }

  void complain(const std::string& what) {
    if (complaint_.empty()) complaint_ = what;
  }
  const std::string& complaint() const { return complaint_; }

 private:
  const nlohmann::json* field(const char* name) {
    taken_.insert(name);
    const auto found = object_.find(name);
    if (found != object_.end()) return &*found;
    complain(concat("'", name, "' is missing"));
    return nullptr;
  }

  const nlohmann::json& object_;
  std::set<std::string> taken_;
  std::string complaint_;
};

// The object of a line; nothing unless its values are not nested and its names differ.
std::optional<nlohmann::json> flat_object(std::string_view line) {
  std::set<std::string> names;
  bool flat = true;
  const auto look = [&](int depth, nlohmann::json::parse_event_t event, const nlohmann::json& parsed) {
    if (event == nlohmann::json::parse_event_t::key) flat = flat && names.insert(parsed.get<std::string>()).second;
    flat = flat && depth <= 1;
    return flat;
  };
  nlohmann::json object = nlohmann::json::parse(line.begin(), line.end(), look, false);
  if (!flat || object.is_discarded() || !object.is_object()) return std::nullopt;
  return object;
}

MeasurementRow row_of(LineReader& reader) {
  MeasurementRow row;
  if (reader.integer(kVersionField.data()) != kRowVersion)
    reader.complain(concat("'", kVersionField, "' is not ", kRowVersion, ", the version that this Millrace reads"));
  row.key = {reader.text("device"), reader.text("partition"), reader.text("candidate")};
  const std::string outcome = reader.text("outcome");
  const auto* const name = std::find(kOutcomeNames.begin(), kOutcomeNames.end(), outcome);
  if (name == kOutcomeNames.end()) reader.complain(concat("'outcome' is not one of ", join(kOutcomeNames, ", ")));
  row.outcome = static_cast<Outcome>(name - kOutcomeNames.begin());
  row.seconds = reader.number("seconds");
  row.low = reader.number("low");
  row.high = reader.number("high");
  row.samples = reader.integer("samples");
  row.detail = reader.text("detail");
  row.when = reader.text("when");
  reader.reject_other_fields();
  return row;
}

// Reads a row from a line; returns the first error, or "".
std::string read_line(std::string_view line, MeasurementRow& row) {
  if (line.size() > kMaxLineBytes) return concat("the line is longer than ", kMaxLineBytes, " bytes");
  const std::optional<nlohmann::json> object = flat_object(line);
  if (!object) return "the line is not a JSON object of strings and numbers with distinct names";
  LineReader reader(*object);
  row = row_of(reader);
  return reader.complaint().empty() ? complaint_about(row) : reader.complaint();
}

}  // namespace

MeasurementRow failed_row(Outcome outcome, std::string detail) {
  MeasurementRow row;
  row.outcome = outcome;
  row.detail = std::move(detail);
  return row;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm fields{};
  gmtime_r(&now, &fields);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &fields)};
}

std::string complaint_about(const MeasurementRow& row) {
  for (const std::string* text : {&row.key.device, &row.key.partition, &row.key.candidate}) {
    if (text->empty()) return "device, partition or candidate is empty";
    if (text->size() > kMaxKeyBytes)
      return concat("device, partition or candidate is longer than ", kMaxKeyBytes, " bytes");
    if (!storable_text(*text)) return "device, partition or candidate is not UTF-8 text";
  }
  if (static_cast<size_t>(row.outcome) >= kOutcomeNames.size()) return "the outcome is unknown";
  for (const double value : {row.seconds, row.low, row.high})
    if (!std::isfinite(value) || std::signbit(value)) return "seconds, low or high is negative or not finite";
  if (row.samples < 0) return "the number of samples is negative";
  if (row.outcome == Outcome::measured && (row.low > row.seconds || row.seconds > row.high || row.samples == 0))
    return "seconds is not between low and high, or there are no samples";
  if (row.detail != storable_detail(row.detail))
    return concat("the detail is longer than ", kMaxDetailBytes, " bytes or not printable UTF-8 text");
  if (!is_utc_time(row.when)) return "when is not a time such as 2024-05-31T23:59:59Z";
  return {};
}

std::string storable_detail(std::string_view detail) {
  std::string text;
  while (!detail.empty() && text.size() < kMaxDetailBytes) {
    const size_t valid =
        valid_utf8_prefix(detail.substr(0, 4));  // includes at least its first character, if that is valid
    const auto lead = static_cast<unsigned char>(detail.front());
    const size_t length = valid == 0 ? 1 : lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    const bool control = (lead < 0x20 && lead != '\n' && lead != '\t') || lead == 0x7F;
    if (text.size() + length > kMaxDetailBytes) break;
    text += valid == 0 || control ? "?" : detail.substr(0, length);
    detail.remove_prefix(length);
  }
  return text;
}

bool replaces(const MeasurementRow& other, const MeasurementRow& ours) {
  return other.when != ours.when ? other.when > ours.when : other > ours;
}

std::string to_lines(std::vector<MeasurementRow> rows) {
  std::sort(rows.begin(), rows.end());
  std::string text;
  for (const MeasurementRow& row : rows) text += to_json(row).dump() + "\n";
  return text;
}

Result<std::vector<MeasurementRow>> from_lines(std::string_view text) {
  std::vector<MeasurementRow> rows;
  Error complaints{ErrorKind::bad_input, {}};
  for (int number = 1; !text.empty() && complaints.diagnostics.size() < kMaxComplaints; ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    MeasurementRow row;
    std::string wrong = read_line(line, row);
    if (wrong.empty()) {
      rows.push_back(std::move(row));
      continue;
    }
    Diagnostic diagnostic;
    diagnostic.line = number;
    diagnostic.column = 1;
    diagnostic.message = std::move(wrong);
    complaints.diagnostics.push_back(std::move(diagnostic));
  }
  if (complaints.diagnostics.empty()) return rows;
  complaints.diagnostics.back().remedy = "nothing was imported; write the lines with `millrace db export`";
  return complaints;
}

}  // namespace millrace
