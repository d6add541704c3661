#include "plan/plan_json.h"

#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "base/sha256.h"
#include "base/text.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;
using Node = JsonReader::Node;

constexpr int kSchemaVersion = 3;
constexpr int kDeepest = 8;
constexpr const char* kSeparate = "separate";  // the operators of a plan that fuses none
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kMostInt = std::numeric_limits<int>::max();

// --- writing ---

Json program_json(const PlanProgram& program) {
  Json layouts = Json::array();
  for (const auto& [tensor, layout] : program.layouts) layouts.push_back({{"tensor", tensor}, {"layout", layout}});
  Json json = {{"file", program.file},   {"text", program.text},   {"entry", program.entry},
               {"sizes", program.sizes}, {"dtype", program.dtype}, {"layouts", std::move(layouts)}};
  if (program.fusing == Fusing::separate) json["operators"] = kSeparate;
  return json;
}

Json buffer_json(const PlanBuffer& buffer) {
  Json json = {{"tensor", buffer.tensor},
               {"layout", buffer.layout},
               {"bytes", buffer.bytes},
               {"location", std::string(name_of(buffer.location))}};
  if (buffer.location == BufferLocation::arena)
    json["offset"] = buffer.offset;
  else
    json["position"] = buffer.position;
  json["first"] = buffer.first;
  json["last"] = buffer.last;
  return json;
}

Json launch_json(const PlanLaunch& launch) {
  Json json = Json::object();
  if (launch.partition.empty())
    json["conversion_of"] = launch.conversion_of;
  else
    json["partition"] = launch.partition;
  json["pass"] = name_of(launch.pass);
  json["candidate"] = launch.candidate;
  json["buffers"] = launch.buffers;
  json["predicted_seconds"] = launch.predicted_seconds;
  if (launch.estimated) json["estimated"] = true;
  if (!launch.function.empty()) json["function"] = launch.function;
  return json;
}

template <class T>
Json list_json(const std::vector<T>& list, Json (*element)(const T&)) {
  Json json = Json::array();
  for (const T& entry : list) json.push_back(element(entry));
  return json;
}

// Replaces what is not UTF-8 instead of throwing.
std::string dumped(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// A hash of everything except itself, independent of white space.
std::string hash_of(const Json& root) {
  Json rest = root;
  rest.erase("sha256");
  return sha256(dumped(rest, -1));
}

// --- reading ---

class PlanReader {
 public:
  JsonReader& reader() { return reader_; }

  StepPlan plan(const Json& json) {
    const Node root{&json, ""};
    StepPlan made;
    reader_.object(root, {"schema_version", "sha256", "version", "device", "date", "program", "cost", "bound",
                          "default_cost", "kernels", "arena_bytes", "sum_bytes", "saved_bytes", "scratch_offset",
                          "scratch_bytes", "buffers", "launches"});
    const Node version = JsonReader::field(root, "schema_version");
    if (const int64_t number = reader_.integer(version, 0, kMostInt); number != kSchemaVersion)
      reader_.complain(version, concat("unknown version ", number),
                       concat("this program reads version ", kSchemaVersion, "; run millrace optimize again"));
    const Node hash = JsonReader::field(root, "sha256");
    if (const std::string text = reader_.text(hash); !reader_.failed() && text != hash_of(json))
      reader_.complain(hash, "the plan was changed after it was written", "run millrace optimize again");
    made.version = text(root, "version");
    made.device = text(root, "device");
    made.date = text(root, "date");
    made.program = program(JsonReader::field(root, "program"));
    made.cost = number(root, "cost");
    made.bound = number(root, "bound");
    made.default_cost = number(root, "default_cost");
    made.kernels = kernels(JsonReader::field(root, "kernels"));
    made.arena_bytes = integer(root, "arena_bytes", 0, kMost);
    made.sum_bytes = integer(root, "sum_bytes", 0, kMost);
    made.saved_bytes = integer(root, "saved_bytes", 0, kMost);
    made.scratch_offset = integer(root, "scratch_offset", 0, kMost);
    made.scratch_bytes = integer(root, "scratch_bytes", 0, kMost);
    for (const Node& node : list(root, "buffers")) made.buffers.push_back(buffer(node));
    for (const Node& node : list(root, "launches")) made.launches.push_back(launch(node));
    return made;
  }

 private:
  std::string text(const Node& node, const char* key) { return reader_.text(JsonReader::field(node, key)); }
  double number(const Node& node, const char* key) { return reader_.number(JsonReader::field(node, key)); }
  int64_t integer(const Node& node, const char* key, int64_t least, int64_t most) {
    return reader_.integer(JsonReader::field(node, key), least, most);
  }
  // Empty after an error: one complaint is enough, however long the list is.
  std::vector<Node> list(const Node& node, const char* key) {
    std::vector<Node> found = reader_.elements(JsonReader::field(node, key));
    if (reader_.failed()) found.clear();
    return found;
  }

  PlanProgram program(const Node& node) {
    reader_.object(node, {"file", "text", "entry", "sizes", "dtype", "layouts", "operators"});
    PlanProgram made;
    made.file = text(node, "file");
    made.text = text(node, "text");
    made.entry = text(node, "entry");
    made.dtype = text(node, "dtype");
    for (const Node& size : list(node, "sizes")) made.sizes.push_back(reader_.text(size));
    for (const Node& layout : list(node, "layouts")) {
      reader_.object(layout, {"tensor", "layout"});
      made.layouts.emplace_back(text(layout, "tensor"), text(layout, "layout"));
    }
    if (const Node operators = JsonReader::field(node, "operators"); operators.json != nullptr) {
      if (reader_.text(operators) != kSeparate)
        reader_.complain(operators, "unknown kind", concat("give ", kSeparate, ", or leave it out"));
      made.fusing = Fusing::separate;
    }
    return made;
  }

  PlanKernels kernels(const Node& node) {
    reader_.object(node, {"file", "sha256", "sources", "machine"});
    PlanKernels made{text(node, "file"), text(node, "sha256"), text(node, "sources"), text(node, "machine")};
    if (made.file.find('/') != std::string::npos || made.file == "." || made.file == "..")
      reader_.complain(JsonReader::field(node, "file"), "it contains a folder", "the kernels must be next to the plan");
    return made;
  }

  PlanBuffer buffer(const Node& node) {
    PlanBuffer made;
    const Node location = JsonReader::field(node, "location");
    const std::string name = reader_.text(location);
    bool known = false;
    for (const BufferLocation kind : {BufferLocation::arena, BufferLocation::argument, BufferLocation::result,
                                      BufferLocation::result_gradient, BufferLocation::argument_gradient}) {
      if (name_of(kind) != name) continue;
      made.location = kind;
      known = true;
    }
    if (!known)
      reader_.complain(location, concat("unknown location '", name, "'"),
                       "give arena, argument, result, result_gradient or argument_gradient");
    const bool arena = made.location == BufferLocation::arena;
    reader_.object(node, {"tensor", "layout", "bytes", "location", arena ? "offset" : "position", "first", "last"});
    made.tensor = text(node, "tensor");
    made.layout = text(node, "layout");
    made.bytes = integer(node, "bytes", 0, kMost);
    if (arena)
      made.offset = integer(node, "offset", 0, kMost);
    else
      made.position = static_cast<int>(integer(node, "position", 0, kMostInt));
    made.first = static_cast<int>(integer(node, "first", -1, kMostInt));
    made.last = static_cast<int>(integer(node, "last", -1, kMostInt));
    return made;
  }

  PlanLaunch launch(const Node& node) {
    PlanLaunch made;
    const bool conversion = JsonReader::field(node, "partition").json == nullptr;
    const char* const name = conversion ? "conversion_of" : "partition";
    reader_.object(node, {name, "pass", "candidate", "buffers", "predicted_seconds", "estimated", "function"});
    (conversion ? made.conversion_of : made.partition) = text(node, name);
    if (!conversion && made.partition.empty())
      reader_.complain(JsonReader::field(node, name), "it is empty", "give the partition's name");
    const Node pass = JsonReader::field(node, "pass");
    const std::string named = reader_.text(pass);
    if (named != "forward" && named != "backward") reader_.complain(pass, "unknown pass", "give forward or backward");
    made.pass = named == "backward" ? Pass::backward : Pass::forward;
    made.candidate = text(node, "candidate");
    for (const Node& number : list(node, "buffers"))
      made.buffers.push_back(static_cast<int>(reader_.integer(number, kNoBuffer, kMostInt)));
    made.predicted_seconds = number(node, "predicted_seconds");
    if (const Node estimated = JsonReader::field(node, "estimated"); estimated.json != nullptr)
      made.estimated = reader_.boolean(estimated);
    if (const Node function = JsonReader::field(node, "function"); function.json != nullptr)
      made.function = reader_.text(function);
    return made;
  }

  JsonReader reader_;
};

}  // namespace

std::string plan_json(const StepPlan& plan) {
  Json root = {{"schema_version", kSchemaVersion},
               {"sha256", ""},
               {"version", plan.version},
               {"device", plan.device},
               {"date", plan.date},
               {"program", program_json(plan.program)},
               {"cost", plan.cost},
               {"bound", plan.bound},
               {"default_cost", plan.default_cost},
               {"kernels",
                {{"file", plan.kernels.file},
                 {"sha256", plan.kernels.sha256},
                 {"sources", plan.kernels.sources},
                 {"machine", plan.kernels.machine}}},
               {"arena_bytes", plan.arena_bytes},
               {"sum_bytes", plan.sum_bytes},
               {"saved_bytes", plan.saved_bytes},
               {"scratch_offset", plan.scratch_offset},
               {"scratch_bytes", plan.scratch_bytes},
               {"buffers", list_json(plan.buffers, buffer_json)},
               {"launches", list_json(plan.launches, launch_json)}};
  root["sha256"] = hash_of(root);
  return dumped(root, 1) + "\n";
}

Result<StepPlan> parse_plan(std::string_view text, const std::string& file) {
  const Result<Json> root = parse_json(text, kDeepest, file);
  if (!root) return root.error();
  PlanReader reader;
  StepPlan plan = reader.plan(*root);
  if (reader.reader().failed()) return reader.reader().error(file);
  return plan;
}

}  // namespace millrace
