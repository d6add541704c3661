#include "device/cubin_bundle.h"

#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "base/text.h"

namespace millrace {
namespace {

constexpr int kDeepest = 3;
constexpr int64_t kMostBytes = int64_t{1} << 30;

Error damaged(const std::string& what) {
  return Error::make(ErrorKind::bad_input, concat("damaged file of GPU kernels: ", what),
                     "remove it: the kernels are compiled again");
}

}  // namespace

std::string write_bundle(const CubinBundle& bundle) {
  nlohmann::ordered_json index = nlohmann::ordered_json::array();
  for (const auto& [kernel, cubin] : bundle)
    index.push_back({{"kernel", kernel}, {"name", cubin.name}, {"bytes", cubin.bytes.size()}});
  std::string text = index.dump() + "\n";
  for (const auto& [kernel, cubin] : bundle) text += cubin.bytes;
  return text;
}

Result<CubinBundle> read_bundle(std::string_view text) {
  const size_t end = text.find('\n');
  if (end == std::string_view::npos) return damaged("it has no index");
  const Result<JsonReader::Json> index = parse_json(text.substr(0, end), kDeepest, "");
  if (!index) return damaged("its index is not JSON");
  text.remove_prefix(end + 1);
  JsonReader reader;
  CubinBundle bundle;
  for (const JsonReader::Node& node : reader.elements({&*index, ""})) {
    const std::string kernel = reader.text(JsonReader::field(node, "kernel"));
    std::string name = reader.text(JsonReader::field(node, "name"));
    const int64_t bytes = reader.integer(JsonReader::field(node, "bytes"), 0, kMostBytes);
    if (reader.failed() || static_cast<size_t>(bytes) > text.size()) return damaged("its index does not fit");
    bundle[kernel] = {std::move(name), std::string(text.substr(0, static_cast<size_t>(bytes)))};
    text.remove_prefix(static_cast<size_t>(bytes));
  }
  if (reader.failed() || !text.empty()) return damaged("its index does not fit");
  return bundle;
}

}  // namespace millrace
