#include "measure/measurements_json.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "base/text.h"
#include "measure/verify.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMeasurementsVersion = 2;
constexpr int kDeepest = 16;  // our own files have depth 6

// --- writing ---

Json tensor_json(const MeasuredTensor& tensor) {
  Json json = {{"name", tensor.name}, {"layouts", tensor.layouts}};
  if (tensor.pinned != kNoLayout) json["pinned"] = tensor.pinned;
  return json;
}

Json partition_json(const MeasuredPartition& partition) {
  Json candidates = Json::array();
  for (const MeasuredCandidate& candidate : partition.candidates) {
    candidates.push_back({{"candidate", candidate.candidate},
                          {"layouts", candidate.layouts},
                          {"seconds", candidate.seconds},
                          {"low", candidate.low},
                          {"high", candidate.high}});
  }
  return {{"name", partition.name},
          {"pass", partition.backward ? "backward" : "forward"},
          {"reads", partition.reads},
          {"writes", partition.writes},
          {"candidates", std::move(candidates)}};
}

Json choice_point_json(const MeasuredChoicePoint& choice_point) {
  return {{"alternatives", choice_point.alternatives}};
}

Json conversion_json(const MeasuredConversion& conversion) {
  return {{"tensor", conversion.tensor},
          {"from", conversion.from},
          {"to", conversion.to},
          {"seconds", conversion.seconds},
          {"candidate", conversion.candidate}};
}

// One element per line.
template <class T>
std::string list_text(const char* key, const std::vector<T>& list, Json (*element)(const T&)) {
  std::string text = concat(",\n  \"", key, "\": [");
  for (size_t k = 0; k < list.size(); ++k) {
    text += k == 0 ? "\n    " : ",\n    ";
    // Do not throw on names that are not UTF-8.
    text += element(list[k]).dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return text + (list.empty() ? "]" : "\n  ]");
}

// --- reading ---

class Reader {
 public:
  using Node = JsonReader::Node;

  const JsonReader& json() const { return json_; }

  Measurements measurements(const Node& root) {
    Measurements made;
    json_.object(root, {"schema_version", "tensors", "partitions", "choice_points", "conversions"});
    const Node schema = JsonReader::field(root, "schema_version");
    if (const int version = position(schema); version != kMeasurementsVersion)
      json_.complain(schema, concat("version ", version, " is unknown"),
                     concat("this program reads version ", kMeasurementsVersion, "; measure again with it"));
    made.tensors = list(JsonReader::field(root, "tensors"), &Reader::tensor);
    made.partitions = list(JsonReader::field(root, "partitions"), &Reader::partition);
    made.choice_points = list(JsonReader::field(root, "choice_points"), &Reader::choice_point);
    made.conversions = list(JsonReader::field(root, "conversions"), &Reader::conversion);
    return made;
  }

 private:
  template <class T>
  std::vector<T> list(const Node& node, T (Reader::*element)(const Node&)) {
    std::vector<T> made;
    for (const Node& one : json_.elements(node)) made.push_back((this->*element)(one));
    return made;
  }

  int position(const Node& node) { return static_cast<int>(json_.integer(node, 0, std::numeric_limits<int>::max())); }

  std::string text(const Node& node) { return json_.text(node); }

  double seconds(const Node& node) {
    const double value = json_.number(node);
    if (value < 0) json_.complain(node, concat(node.json->dump(), " is not a time"), "give seconds, zero or more");
    return value;
  }

  MeasuredTensor tensor(const Node& node) {
    json_.object(node, {"name", "layouts", "pinned"});
    MeasuredTensor made;
    made.name = text(JsonReader::field(node, "name"));
    made.layouts = list(JsonReader::field(node, "layouts"), &Reader::text);
    const Node pinned = JsonReader::field(node, "pinned");
    if (pinned.json != nullptr) made.pinned = position(pinned);
    return made;
  }

  MeasuredCandidate candidate(const Node& node) {
    json_.object(node, {"candidate", "layouts", "seconds", "low", "high"});
    MeasuredCandidate made;
    made.candidate = text(JsonReader::field(node, "candidate"));
    made.layouts = list(JsonReader::field(node, "layouts"), &Reader::position);
    made.seconds = seconds(JsonReader::field(node, "seconds"));
    made.low = seconds(JsonReader::field(node, "low"));
    made.high = seconds(JsonReader::field(node, "high"));
    return made;
  }

  MeasuredPartition partition(const Node& node) {
    json_.object(node, {"name", "pass", "reads", "writes", "candidates"});
    MeasuredPartition made;
    made.name = text(JsonReader::field(node, "name"));
    const Node pass = JsonReader::field(node, "pass");
    const std::string named = text(pass);
    if (named != "forward" && named != "backward")
      json_.complain(pass, "this is not a pass", "give \"forward\" or \"backward\"");
    made.backward = named == "backward";
    made.reads = list(JsonReader::field(node, "reads"), &Reader::position);
    made.writes = list(JsonReader::field(node, "writes"), &Reader::position);
    made.candidates = list(JsonReader::field(node, "candidates"), &Reader::candidate);
    return made;
  }

  std::vector<int> alternative(const Node& node) { return list(node, &Reader::position); }

  MeasuredChoicePoint choice_point(const Node& node) {
    json_.object(node, {"alternatives"});
    return {list(JsonReader::field(node, "alternatives"), &Reader::alternative)};
  }

  MeasuredConversion conversion(const Node& node) {
    json_.object(node, {"tensor", "from", "to", "seconds", "candidate"});
    return {position(JsonReader::field(node, "tensor")), position(JsonReader::field(node, "from")),
            position(JsonReader::field(node, "to")), seconds(JsonReader::field(node, "seconds")),
            text(JsonReader::field(node, "candidate"))};
  }

  JsonReader json_;
};

}  // namespace

std::string measurements_json(const Measurements& measurements) {
  return concat("{\n  \"schema_version\": ", kMeasurementsVersion,
                list_text("tensors", measurements.tensors, tensor_json),
                list_text("partitions", measurements.partitions, partition_json),
                list_text("choice_points", measurements.choice_points, choice_point_json),
                list_text("conversions", measurements.conversions, conversion_json), "\n}\n");
}

Result<Measurements> parse_measurements(std::string_view text, const std::string& file) {
  const Result<JsonReader::Json> root = parse_json(text, kDeepest, file);
  if (!root) return root.error();
  Reader reader;
  Measurements measurements = reader.measurements({&*root, ""});
  if (reader.json().failed()) return reader.json().error(file);
  if (Result<Done> verified = verify(measurements); !verified) {
    verified.error().diagnostics[0].file = file;
    return verified.error();
  }
  return measurements;
}

}  // namespace millrace
