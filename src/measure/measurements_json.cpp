#include "measure/measurements_json.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text.h"
#include "measure/verify.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchemaVersion = 1;
constexpr int kDeepest = 16;  // a file of ours is 6 deep

// --- writing ---

Json tensor_json(const MeasuredTensor& tensor) {
  Json json = {{"name", tensor.name}, {"layouts", tensor.layouts}};
  if (tensor.pinned != kNoLayout) json["pinned"] = tensor.pinned;
  return json;
}

Json part_json(const MeasuredPart& part) {
  Json ways = Json::array();
  for (const MeasuredWay& way : part.ways) {
    ways.push_back({{"candidate", way.candidate},
                    {"layouts", way.layouts},
                    {"seconds", way.seconds},
                    {"low", way.low},
                    {"high", way.high}});
  }
  return {{"name", part.name},
          {"pass", part.backward ? "backward" : "forward"},
          {"reads", part.reads},
          {"writes", part.writes},
          {"ways", std::move(ways)}};
}

Json site_json(const MeasuredSite& site) { return {{"alternatives", site.alternatives}}; }

Json conversion_json(const MeasuredConversion& conversion) {
  return {{"tensor", conversion.tensor},
          {"from", conversion.from},
          {"to", conversion.to},
          {"seconds", conversion.seconds},
          {"candidate", conversion.candidate}};
}

// One element a line.
template <class T>
std::string list_text(const char* key, const std::vector<T>& list, Json (*element)(const T&)) {
  std::string text = concat(",\n  \"", key, "\": [");
  for (size_t k = 0; k < list.size(); ++k) {
    text += k == 0 ? "\n    " : ",\n    ";
    // Names that are not UTF-8 are no reason to throw.
    text += element(list[k]).dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return text + (list.empty() ? "]" : "\n  ]");
}

// --- reading ---

struct Complaint {
  std::string place;
  std::string what;
  std::string remedy;
};

// Reads values out of a tree; after the first complaint it goes on with empty ones, and that complaint stands.
class Reader {
 public:
  const std::optional<Complaint>& complaint() const { return complaint_; }

  Measurements measurements(const Json& root) {
    Measurements made;
    const Fields fields = object(root, "", {"schema_version", "tensors", "parts", "sites", "conversions"});
    if (const int version = integer(fields("schema_version"), "schema_version");
        !complaint_ && version != kSchemaVersion)
      complain("schema_version", concat("version ", version, " is not known"),
               concat("this program reads version ", kSchemaVersion, "; measure again with it"));
    made.tensors = list<MeasuredTensor>(fields("tensors"), "tensors", &Reader::tensor);
    made.parts = list<MeasuredPart>(fields("parts"), "parts", &Reader::part);
    made.sites = list<MeasuredSite>(fields("sites"), "sites", &Reader::site);
    made.conversions = list<MeasuredConversion>(fields("conversions"), "conversions", &Reader::conversion);
    return made;
  }

 private:
  // The fields of an object by name; nullptr for one that is not there.
  class Fields {
   public:
    explicit Fields(const Json* json) : json_(json) {}
    const Json* operator()(const char* key) const {
      if (json_ == nullptr) return nullptr;
      const auto found = json_->find(key);
      return found == json_->end() ? nullptr : &*found;
    }

   private:
    const Json* json_;
  };

  void complain(const std::string& place, const std::string& what, const std::string& remedy) {
    if (!complaint_) complaint_ = {place, what, remedy};
  }

  static std::string type_of(const Json* json) { return json == nullptr ? "nothing" : json->type_name(); }

  void wrong_type(const Json* json, const std::string& place, const std::string& wanted) {
    complain(place, json == nullptr ? std::string("it is missing") : concat("it is of type ", type_of(json)),
             concat("give ", wanted));
  }

  Fields object(const Json& json, const std::string& place, const std::vector<std::string>& keys) {
    if (!json.is_object()) {
      wrong_type(&json, place.empty() ? "the file" : place, concat("an object with ", join(keys, ", ")));
      return Fields(nullptr);
    }
    for (const auto& [key, value] : json.items()) {
      if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
      const std::string meant = nearest(key, keys);
      complain(place.empty() ? key : concat(place, ".", key), "there is no such field",
               meant.empty() ? concat("the fields are ", join(keys, ", ")) : concat("did you mean '", meant, "'?"));
    }
    return Fields(&json);
  }

  template <class T>
  std::vector<T> list(const Json* json, const std::string& place,
                      T (Reader::*element)(const Json*, const std::string&)) {
    std::vector<T> result;
    if (json == nullptr || !json->is_array()) {
      wrong_type(json, place, "an array");
      return result;
    }
    for (size_t k = 0; k < json->size() && !complaint_; ++k)
      result.push_back((this->*element)(&(*json)[k], concat(place, "[", k, "]")));
    return result;
  }

  int integer(const Json* json, const std::string& place) {
    if (json == nullptr || !json->is_number_integer()) {
      wrong_type(json, place, "an integer");
      return 0;
    }
    const bool fits = json->is_number_unsigned()
                          ? json->get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int>::max())
                          : json->get<int64_t>() >= 0;
    if (!fits) {
      complain(place, concat(json->dump(), " is out of range"), "give a position, counted from 0");
      return 0;
    }
    return static_cast<int>(json->get<int64_t>());
  }

  double seconds(const Json* json, const std::string& place) {
    if (json == nullptr || !json->is_number()) {
      wrong_type(json, place, "a number of seconds");
      return 0;
    }
    const double value = json->get<double>();
    if (!std::isfinite(value) || value < 0)
      complain(place, concat(json->dump(), " is no time"), "give seconds, zero or more");
    return value;
  }

  std::string text(const Json* json, const std::string& place) {
    if (json != nullptr && json->is_string()) return json->get<std::string>();
    wrong_type(json, place, "a string");
    return {};
  }

  MeasuredTensor tensor(const Json* json, const std::string& place) {
    const Fields fields = object(*json, place, {"name", "layouts", "pinned"});
    MeasuredTensor made;
    made.name = text(fields("name"), place + ".name");
    made.layouts = list<std::string>(fields("layouts"), place + ".layouts", &Reader::text);
    if (fields("pinned") != nullptr) made.pinned = integer(fields("pinned"), place + ".pinned");
    return made;
  }

  MeasuredWay way(const Json* json, const std::string& place) {
    const Fields fields = object(*json, place, {"candidate", "layouts", "seconds", "low", "high"});
    MeasuredWay made;
    made.candidate = text(fields("candidate"), place + ".candidate");
    made.layouts = list<int>(fields("layouts"), place + ".layouts", &Reader::integer);
    made.seconds = seconds(fields("seconds"), place + ".seconds");
    made.low = seconds(fields("low"), place + ".low");
    made.high = seconds(fields("high"), place + ".high");
    return made;
  }

  MeasuredPart part(const Json* json, const std::string& place) {
    const Fields fields = object(*json, place, {"name", "pass", "reads", "writes", "ways"});
    MeasuredPart made;
    made.name = text(fields("name"), place + ".name");
    const std::string pass = text(fields("pass"), place + ".pass");
    if (pass != "forward" && pass != "backward")
      complain(place + ".pass", "it is neither pass", "give \"forward\" or \"backward\"");
    made.backward = pass == "backward";
    made.reads = list<int>(fields("reads"), place + ".reads", &Reader::integer);
    made.writes = list<int>(fields("writes"), place + ".writes", &Reader::integer);
    made.ways = list<MeasuredWay>(fields("ways"), place + ".ways", &Reader::way);
    return made;
  }

  std::vector<int> alternative(const Json* json, const std::string& place) {
    return list<int>(json, place, &Reader::integer);
  }

  MeasuredSite site(const Json* json, const std::string& place) {
    const Fields fields = object(*json, place, {"alternatives"});
    return {list<std::vector<int>>(fields("alternatives"), place + ".alternatives", &Reader::alternative)};
  }

  MeasuredConversion conversion(const Json* json, const std::string& place) {
    const Fields fields = object(*json, place, {"tensor", "from", "to", "seconds", "candidate"});
    return {integer(fields("tensor"), place + ".tensor"), integer(fields("from"), place + ".from"),
            integer(fields("to"), place + ".to"), seconds(fields("seconds"), place + ".seconds"),
            text(fields("candidate"), place + ".candidate")};
  }

  std::optional<Complaint> complaint_;
};

Error in_file(const std::string& file, const std::string& message, const std::string& remedy) {
  Error error = Error::make(ErrorKind::bad_input, message, remedy);
  error.diagnostics[0].file = file;
  return error;
}

// Whether brackets outside of strings nest deeper than any file of ours.
bool too_deep(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t k = 0; k < text.size(); ++k) {
    const char c = text[k];
    if (quoted && c == '\\')
      ++k;
    else if (c == '"')
      quoted = !quoted;
    else if (!quoted && (c == '[' || c == '{'))
      ++depth;
    else if (!quoted && (c == ']' || c == '}'))
      --depth;
    if (depth > kDeepest) return true;
  }
  return false;
}

// nlohmann's own message without its prefix: "parse error at line 1, column 2: …".
std::string without_prefix(const std::string& message) {
  const size_t end = message.find("] ");
  return end == std::string::npos ? message : message.substr(end + 2);
}

}  // namespace

std::string measurements_json(const Measurements& measurements) {
  return concat("{\n  \"schema_version\": ", kSchemaVersion, list_text("tensors", measurements.tensors, tensor_json),
                list_text("parts", measurements.parts, part_json), list_text("sites", measurements.sites, site_json),
                list_text("conversions", measurements.conversions, conversion_json), "\n}\n");
}

Result<Measurements> parse_measurements(std::string_view text, const std::string& file) {
  if (too_deep(text))
    return in_file(file, concat("brackets nest deeper than ", kDeepest), "this is not a file of measurements");
  Json root;
  try {
    root = Json::parse(text);
  } catch (const Json::exception& problem) {
    return in_file(file, without_prefix(problem.what()), "a file of measurements is JSON; measure again to get one");
  }
  Reader reader;
  Measurements measurements = reader.measurements(root);
  if (const auto& complaint = reader.complaint())
    return in_file(file, concat(complaint->place, ": ", complaint->what), complaint->remedy);
  if (Result<Done> verified = verify(measurements); !verified) {
    verified.error().diagnostics[0].file = file;
    return verified.error();
  }
  return measurements;
}

}  // namespace millrace
