#include "measure/worker_protocol.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace millrace {
namespace {

// Lines come from a process that a candidate may have corrupted: trust nothing in them.
template <class T>
std::optional<T> parsed(std::string_view line, T (*read)(const nlohmann::json&)) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  try {
    return read(json);
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

// A path may contain anything. Bytes that are not UTF-8 are replaced; the file is then not found.
std::string line_of(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool is_finite_time(double seconds) { return std::isfinite(seconds) && seconds >= 0; }

// Whether the database accepts the row.
bool is_valid(const MeasurementRow& row) {
  if (!is_finite_time(row.seconds) || !is_finite_time(row.low) || !is_finite_time(row.high) || row.samples < 0)
    return false;
  return row.outcome != Outcome::measured ||
         (row.seconds > 0 && row.low <= row.seconds && row.seconds <= row.high && row.samples > 0);
}

}  // namespace

std::string to_line(const TrialRequest& request) {
  const TrialSettings& settings = request.settings;
  return line_of({{"partition", request.partition},
                  {"conversion", request.conversion},
                  {"candidate", request.candidate},
                  {"function", request.function},
                  {"path", request.path},
                  {"sha256", request.sha256},
                  {"cold", settings.caches.cold},
                  {"cache_bytes", settings.caches.cache_bytes},
                  {"turn_bytes", settings.caches.turn_bytes},
                  {"best_seconds", settings.best_seconds},
                  {"seconds", settings.seconds}});
}

std::optional<TrialRequest> parse_request(std::string_view line) {
  return parsed<TrialRequest>(line, [](const nlohmann::json& json) {
    TrialRequest request;
    json.at("partition").get_to(request.partition);
    json.at("conversion").get_to(request.conversion);
    json.at("candidate").get_to(request.candidate);
    json.at("function").get_to(request.function);
    json.at("path").get_to(request.path);
    json.at("sha256").get_to(request.sha256);
    json.at("cold").get_to(request.settings.caches.cold);
    json.at("cache_bytes").get_to(request.settings.caches.cache_bytes);
    json.at("turn_bytes").get_to(request.settings.caches.turn_bytes);
    json.at("best_seconds").get_to(request.settings.best_seconds);
    json.at("seconds").get_to(request.settings.seconds);
    return request;
  });
}

std::string to_line(const MeasurementRow& row) {
  return line_of({{"outcome", kOutcomeNames.at(static_cast<size_t>(row.outcome))},
                  {"seconds", row.seconds},
                  {"low", row.low},
                  {"high", row.high},
                  {"samples", row.samples},
                  {"detail", storable_detail(row.detail)}});
}

std::optional<MeasurementRow> parse_reply(std::string_view line) {
  std::optional<MeasurementRow> row = parsed<MeasurementRow>(line, [](const nlohmann::json& json) {
    MeasurementRow read;
    const auto name = json.at("outcome").get<std::string>();
    const auto* const found = std::find(kOutcomeNames.begin(), kOutcomeNames.end(), name);
    read.outcome = static_cast<Outcome>(found - kOutcomeNames.begin());
    json.at("seconds").get_to(read.seconds);
    json.at("low").get_to(read.low);
    json.at("high").get_to(read.high);
    read.samples = json.at("samples").is_number_integer() ? json.at("samples").get<int64_t>() : -1;
    json.at("detail").get_to(read.detail);
    return read;
  });
  if (row && (static_cast<size_t>(row->outcome) >= kOutcomeNames.size() || !is_valid(*row))) return std::nullopt;
  return row;
}

}  // namespace millrace
