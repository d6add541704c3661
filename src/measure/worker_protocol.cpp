#include "measure/worker_protocol.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace millrace {
namespace {

using Json = nlohmann::json;

// Lines come from a process that a candidate may have damaged: nothing in them is trusted.
template <class T>
std::optional<T> parsed(std::string_view line, T (*read)(const Json&)) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  try {
    return read(json);
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

std::string to_line(const TrialRequest& request) {
  const TrialSettings& settings = request.settings;
  return Json{{"part", request.part},
              {"conversion", request.conversion},
              {"candidate", request.candidate},
              {"function", request.function},
              {"path", request.path},
              {"sha256", request.sha256},
              {"cold", settings.cold},
              {"cache_bytes", settings.cache_bytes},
              {"best_seconds", settings.best_seconds},
              {"seconds", settings.seconds}}
      .dump();
}

std::optional<TrialRequest> parse_request(std::string_view line) {
  return parsed<TrialRequest>(line, [](const Json& json) {
    TrialRequest request;
    json.at("part").get_to(request.part);
    json.at("conversion").get_to(request.conversion);
    json.at("candidate").get_to(request.candidate);
    json.at("function").get_to(request.function);
    json.at("path").get_to(request.path);
    json.at("sha256").get_to(request.sha256);
    json.at("cold").get_to(request.settings.cold);
    json.at("cache_bytes").get_to(request.settings.cache_bytes);
    json.at("best_seconds").get_to(request.settings.best_seconds);
    json.at("seconds").get_to(request.settings.seconds);
    return request;
  });
}

std::string to_line(const MeasurementRow& row) {
  return Json{{"outcome", kOutcomeNames.at(static_cast<size_t>(row.outcome))},
              {"seconds", row.seconds},
              {"low", row.low},
              {"high", row.high},
              {"samples", row.samples},
              {"detail", storable_detail(row.detail)}}
      .dump();
}

std::optional<MeasurementRow> parse_reply(std::string_view line) {
  return parsed<MeasurementRow>(line, [](const Json& json) {
    MeasurementRow row;
    const auto name = json.at("outcome").get<std::string>();
    const auto found = std::find(kOutcomeNames.begin(), kOutcomeNames.end(), name);
    row.outcome = found == kOutcomeNames.end() ? Outcome::failed : static_cast<Outcome>(found - kOutcomeNames.begin());
    json.at("seconds").get_to(row.seconds);
    json.at("low").get_to(row.low);
    json.at("high").get_to(row.high);
    json.at("samples").get_to(row.samples);
    json.at("detail").get_to(row.detail);
    return row;
  });
}

}  // namespace millrace
