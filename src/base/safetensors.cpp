#include "base/safetensors.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "base/checked.h"
#include "base/file.h"
#include "base/text.h"

namespace millrace {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr int64_t kMaxFileBytes = int64_t{16} << 30;
constexpr size_t kMaxTensors = 100'000;
constexpr size_t kMaxRank = 32;
constexpr int kMaxNesting = 8;
constexpr size_t kMaxDigits = 64;
constexpr std::string_view kMetadata = "__metadata__";
constexpr std::string_view kIsIt = "is it a safetensors file?";

Error bad(std::string message, std::string remedy = {}) {
  return Error::make(ErrorKind::bad_input, std::move(message), std::move(remedy));
}

// Quotes text of the file for a message: of bounded length, and without control characters.
std::string shown(std::string_view text) {
  constexpr size_t kShownBytes = 80;
  const size_t length = valid_utf8_prefix(text.substr(0, kShownBytes));
  std::string result = "'";
  for (const char c : text.substr(0, length)) result += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
  return result + (length < text.size() ? "...'" : "'");
}

uint64_t load_little_endian(std::string_view bytes) {
  uint64_t word = 0;
  for (size_t k = 0; k < bytes.size(); ++k) word |= uint64_t{static_cast<unsigned char>(bytes[k])} << (8 * k);
  return word;
}

void append_little_endian(std::string& bytes, uint64_t word, size_t count) {
  for (size_t k = 0; k < count; ++k) bytes += static_cast<char>(word >> (8 * k) & 0xFF);
}

// ---- The header ----

struct Entry {
  StoredTensor tensor;  // without its values
  std::vector<int64_t> offsets;
  bool has_dtype = false;
  bool has_shape = false;
  bool has_offsets = false;

  std::string label() const { return "tensor " + shown(tensor.name); }  // for messages
};

// Reads the header's JSON without building a tree. Anything that the format does not allow stops the parser at once, so
// that a hostile header costs no more memory than a valid one.
class HeaderReader : public nlohmann::json::json_sax_t {
 public:
  std::vector<Entry> entries;
  std::optional<Error> error;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_float(double, const std::string& text) override { return unexpected(concat("the number ", shown(text))); }
  bool binary(nlohmann::json::binary_t&) override { return unexpected("binary data"); }
  bool number_integer(int64_t value) override {
    if (value < 0) return unexpected(concat("the negative number ", value));
    return number_unsigned(static_cast<uint64_t>(value));
  }

  bool number_unsigned(uint64_t value) override {
    if (expecting_ != Expecting::shape && expecting_ != Expecting::offsets)
      return unexpected(concat("the number ", value));
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return unexpected(concat("the number ", value, ", which is too large"));
    Entry& entry = entries.back();
    if (expecting_ == Expecting::shape && entry.tensor.shape.size() == kMaxRank)
      return fail(concat(entry.label(), " has more than ", kMaxRank, " dimensions"),
                  concat("at most ", kMaxRank, " dimensions are read"));
    if (expecting_ == Expecting::offsets && entry.offsets.size() == 2)
      return wrong_offset_count("more than two numbers");
    (expecting_ == Expecting::shape ? entry.tensor.shape : entry.offsets).push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(std::string& value) override {
    if (expecting_ == Expecting::metadata) return true;
    if (expecting_ != Expecting::dtype) return unexpected(concat("the text ", shown(value)));
    const std::optional<StoredType> type = stored_type_named(value);
    if (!type) {
      return fail(concat(entries.back().label(), " has the unknown dtype ", shown(value)),
                  "known types: F64, F32, F16, BF16, I64, I32, I16, I8, U8, BOOL");
    }
    entries.back().tensor.type = *type;
    expecting_ = Expecting::fields;
    return true;
  }

  bool start_object(size_t) override {
    switch (expecting_) {
      case Expecting::document: expecting_ = Expecting::names; return true;
      case Expecting::tensor: expecting_ = Expecting::fields; return true;
      case Expecting::metadata_value: expecting_ = Expecting::metadata; return true;
      default: return unexpected("an object");
    }
  }

  bool key(std::string& name) override {
    if (expecting_ == Expecting::names) return tensor_name(name);
    return expecting_ == Expecting::metadata || field_name(name);
  }

  bool end_object() override {
    if (expecting_ == Expecting::fields) {
      const Entry& entry = entries.back();
      const std::string_view missing = !entry.has_dtype     ? "dtype"
                                       : !entry.has_shape   ? "shape"
                                       : !entry.has_offsets ? "data_offsets"
                                                            : "";
      if (!missing.empty()) return fail(concat(entry.label(), " has no field '", missing, "'"), std::string(kFields));
    }
    expecting_ = Expecting::names;
    return true;
  }

  bool start_array(size_t) override {
    if (expecting_ == Expecting::shape_value) {
      expecting_ = Expecting::shape;
    } else if (expecting_ == Expecting::offsets_value) {
      expecting_ = Expecting::offsets;
    } else {
      return unexpected("an array");
    }
    return true;
  }

  bool end_array() override {
    if (expecting_ == Expecting::offsets && entries.back().offsets.size() != 2)
      return wrong_offset_count("fewer than two numbers");
    expecting_ = Expecting::fields;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    return fail(concat("the header is not JSON: syntax error at its byte ", position), std::string(kHeader));
  }

 private:
  // What comes next in the header; those ending in _value come before a container's opening bracket.
  enum class Expecting {
    document,
    names,
    tensor,
    fields,
    dtype,
    shape_value,
    shape,
    offsets_value,
    offsets,
    metadata_value,
    metadata
  };
  static constexpr std::string_view kHeader = R"(the header must be an object: {"name": {...}, ...})";
  static constexpr std::string_view kFields = "a tensor has the fields 'dtype', 'shape' and 'data_offsets', each once";

  bool fail(std::string message, std::string remedy = {}) {
    error = bad(std::move(message), std::move(remedy));
    return false;
  }

  bool wrong_offset_count(std::string_view what) {
    return fail(concat("'data_offsets' of ", entries.back().label(), " has ", what),
                "give two numbers: where the tensor's data begins and ends");
  }

  bool tensor_name(const std::string& name) {
    if (name == kMetadata) {
      if (has_metadata_) return fail(concat("the header gives '", kMetadata, "' twice"), "each name may be given once");
      has_metadata_ = true;
      expecting_ = Expecting::metadata_value;
      return true;
    }
    if (entries.size() == kMaxTensors)
      return fail(concat("the file has more than ", kMaxTensors, " tensors"),
                  concat("at most ", kMaxTensors, " are read"));
    entries.emplace_back().tensor.name = name;
    expecting_ = Expecting::tensor;
    return true;
  }

  bool field_name(const std::string& field) {
    Entry& entry = entries.back();
    bool* seen = nullptr;
    if (field == "dtype") {
      seen = &entry.has_dtype;
      expecting_ = Expecting::dtype;
    } else if (field == "shape") {
      seen = &entry.has_shape;
      expecting_ = Expecting::shape_value;
    } else if (field == "data_offsets") {
      seen = &entry.has_offsets;
      expecting_ = Expecting::offsets_value;
    } else {
      return fail(concat(entry.label(), " has the unknown field ", shown(field)), std::string(kFields));
    }
    if (*seen) return fail(concat(entry.label(), " gives '", field, "' twice"), std::string(kFields));
    *seen = true;
    return true;
  }

  bool unexpected(const std::string& what) {
    const std::string tensor = entries.empty() ? "" : entries.back().label();
    switch (expecting_) {
      case Expecting::document:
        return fail(concat("the header is ", what, ", not a JSON object"), std::string(kHeader));
      case Expecting::tensor: return fail(concat(tensor, " is ", what, ", not an object"), std::string(kFields));
      case Expecting::dtype:
        return fail(concat("'dtype' of ", tensor, " is ", what, ", not text"), R"(write "F32", for example)");
      case Expecting::shape_value:
      case Expecting::shape:
        return fail(concat("'shape' of ", tensor, expecting_ == Expecting::shape ? " contains " : " is ", what),
                    "give an array of integers from 0 to 2^63-1");
      case Expecting::offsets_value:
      case Expecting::offsets:
        return fail(
            concat("'data_offsets' of ", tensor, expecting_ == Expecting::offsets ? " contains " : " is ", what),
            "give an array of two integers from 0 to 2^63-1");
      case Expecting::metadata_value:
      case Expecting::metadata:
        return fail(concat("'", kMetadata, "' ", expecting_ == Expecting::metadata ? "contains " : "is ", what),
                    "give an object of strings");
      case Expecting::names:
      case Expecting::fields: break;  // a key comes first, or the parser has reported an error
    }
    return fail("the header is not JSON");
  }

  Expecting expecting_ = Expecting::document;
  bool has_metadata_ = false;
};

// Where the string that opens at `open` closes; the end of the text if it does not, which the parser reports.
size_t end_of_string(std::string_view json, size_t open) {
  for (size_t close = json.find('"', open + 1); close != std::string_view::npos; close = json.find('"', close + 1)) {
    size_t content_end = close;
    while (content_end > open + 1 && json[content_end - 1] == '\\') --content_end;
    if ((close - content_end) % 2 == 0) return close;  // an odd backslash would escape the quote
  }
  return json.size();
}

// Rejects what would cost the parser too much: it keeps a stack of brackets, and converts numbers of any length.
Result<Done> check_parsable(std::string_view json) {
  int depth = 0;
  size_t number_length = 0;
  for (size_t at = 0; at < json.size(); ++at) {
    const char c = json[at];
    if (c == '"') {
      at = end_of_string(json, at);
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      --depth;
    }
    number_length = c >= '0' && c <= '9' ? number_length + 1 : 0;
    if (depth > kMaxNesting)
      return bad(concat("the header nests deeper than ", kMaxNesting, " levels"), "the format needs three");
    if (number_length > kMaxDigits)
      return bad(concat("the header has a number of more than ", kMaxDigits, " digits at its byte ", at + 1),
                 "use integers from 0 to 2^63-1");
  }
  return Done{};
}

Result<std::vector<Entry>> parse_header(std::string_view json) {
  if (Result<Done> checked = check_parsable(json); !checked) return std::move(checked.error());
  // The parser would take a zero byte for the end of the text and ignore what follows.
  if (const size_t zero = json.find('\0'); zero != std::string_view::npos)
    return bad(concat("the header is not JSON: byte ", zero + 1, " of it is zero"), "pad the header with spaces");
  HeaderReader reader;
  const bool parsed = nlohmann::json::sax_parse(json.data(), json.data() + json.size(), &reader);
  if (reader.error) return std::move(*reader.error);
  if (!parsed) return bad("the header is not JSON");
  if (json.front() != '{')
    return bad("the header does not begin with '{'", "the format allows spaces only after the object");
  std::vector<std::string_view> names;
  for (const Entry& entry : reader.entries) names.push_back(entry.tensor.name);
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    return bad(concat("the header has two tensors named ", shown(*twice)), "each name may be given once");
  return std::move(reader.entries);
}

// ---- The extent of the data ----

// nullopt if the size does not fit into int64_t. A tensor with a dimension of 0 has size 0 for any other dimensions.
std::optional<int64_t> element_count(const std::vector<int64_t>& shape) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::optional<int64_t> count = 1;
  for (size_t k = 0; k < shape.size() && count; ++k) count = checked_multiply(*count, shape[k]);
  return count;
}

Result<Done> check_offsets(const Entry& entry, int64_t data_size) {
  const int64_t element = bytes_of(entry.tensor.type);
  const std::string_view type = name_of(entry.tensor.type);
  const int64_t begin = entry.offsets[0];
  const int64_t end = entry.offsets[1];
  const std::optional<int64_t> count = element_count(entry.tensor.shape);
  const std::optional<int64_t> size = count ? checked_multiply(*count, element) : std::nullopt;
  if (!size)
    return bad(
        concat(entry.label(), " has the shape [", join(entry.tensor.shape, ", "), "], which is more than 2^63-1 bytes"),
        "the product of a shape times the element's size must fit into 63 bits");
  if (begin > end)
    return bad(
        concat("the data of ", entry.label(), " end before they begin: data_offsets are [", begin, ", ", end, "]"),
        "data_offsets are [begin, end], with begin <= end");
  if (end > data_size)
    return bad(concat("the data of ", entry.label(), " end at byte ", end, ", but the file has only ", data_size,
                      " bytes of data"),
               "the file may have been truncated");
  if (end - begin != *size)
    return bad(concat(entry.label(), " has ", end - begin, " bytes of data, but its shape [",
                      join(entry.tensor.shape, ", "), "] of ", type, " takes ", *size),
               "the difference of the data_offsets must be the size of the tensor");
  if (begin % element != 0)
    return bad(concat("the data of ", entry.label(), " are misaligned: they begin at byte ", begin),
               concat(type, " must begin at a multiple of ", element));
  return Done{};
}

Result<Done> check_cover(const std::vector<Entry>& entries, int64_t data_size) {
  std::vector<const Entry*> order;
  for (const Entry& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) { return a->offsets < b->offsets; });
  int64_t covered = 0;
  for (size_t k = 0; k < order.size(); ++k) {
    const int64_t begin = order[k]->offsets[0];
    // There was neither hole nor overlap so far, so the previous tensor ends at `covered`.
    if (begin < covered)
      return bad(concat("the data of ", order[k]->label(), " overlap those of ", order[k - 1]->label()),
                 concat("it begins at byte ", begin, ", but must begin at byte ", covered));
    if (begin > covered)
      return bad(concat("the data have a hole: no tensor has bytes ", covered, " to ", begin),
                 concat("the next tensor, ", order[k]->label(), ", begins at byte ", begin));
    covered = order[k]->offsets[1];
  }
  if (covered < data_size)
    return bad(concat("the file is too long: ", data_size - covered, " bytes follow the last tensor's data"),
               concat("the data must end at byte ", covered));
  return Done{};
}

Result<Done> check_header_size(std::string_view bytes) {
  const uint64_t size = load_little_endian(bytes.substr(0, kLengthBytes));
  if (size <= kMaxHeaderBytes) return Done{};
  return bad(concat("the file says that its header has ", size, " bytes"),
             concat("at most ", kMaxHeaderBytes, " are read; ", kIsIt));
}

// So that /dev/zero and /dev/urandom are not read into memory.
Result<Done> check_beginning(std::string_view bytes) {
  if (bytes.size() <= kLengthBytes) return Done{};
  if (Result<Done> fits = check_header_size(bytes); !fits) return fits;
  const bool json = load_little_endian(bytes.substr(0, kLengthBytes)) > 0 && bytes[kLengthBytes] == '{';
  return json ? Result<Done>(Done{}) : Result<Done>(bad("the file has no header of JSON", std::string(kIsIt)));
}

}  // namespace

Result<std::vector<StoredTensor>> parse_safetensors(std::string_view bytes) {
  if (bytes.size() < kLengthBytes)
    return bad(concat("the file has ", bytes.size(), " bytes, too few for a safetensors file"),
               "the first 8 bytes are the length of its header");
  if (Result<Done> fits = check_header_size(bytes); !fits) return fits.error();
  const uint64_t header_size = load_little_endian(bytes.substr(0, kLengthBytes));
  const std::string_view rest = bytes.substr(kLengthBytes);
  if (header_size > rest.size())
    return bad(concat("the file says that its header has ", header_size, " bytes, but only ", rest.size(), " follow"),
               "the file may have been truncated");
  Result<std::vector<Entry>> entries = parse_header(rest.substr(0, header_size));
  if (!entries) return std::move(entries.error());
  const std::string_view data = rest.substr(header_size);
  const auto data_size = static_cast<int64_t>(data.size());
  for (const Entry& entry : *entries)
    if (Result<Done> checked = check_offsets(entry, data_size); !checked) return std::move(checked.error());
  if (Result<Done> checked = check_cover(*entries, data_size); !checked) return std::move(checked.error());

  // Allocate only now: the checked shapes are together no larger than the file.
  std::vector<StoredTensor> tensors;
  tensors.reserve(entries->size());
  for (Entry& entry : *entries) {
    StoredTensor& tensor = tensors.emplace_back(std::move(entry.tensor));
    const auto size = static_cast<size_t>(bytes_of(tensor.type));
    const auto end = static_cast<size_t>(entry.offsets[1]);
    const auto begin = static_cast<size_t>(entry.offsets[0]);
    tensor.values.reserve((end - begin) / size);
    for (size_t at = begin; at < end; at += size)
      tensor.values.push_back(decode(load_little_endian(data.substr(at, size)), tensor.type));
  }
  return tensors;
}

Result<std::vector<StoredTensor>> read_safetensors(const std::string& path) {
  // Errors of reading name the file already.
  Result<std::string> bytes = read_file_or_pipe(path, kMaxFileBytes, check_beginning);
  if (!bytes) return std::move(bytes.error());
  Result<std::vector<StoredTensor>> tensors = parse_safetensors(*bytes);
  if (!tensors)
    for (Diagnostic& diagnostic : tensors.error().diagnostics) diagnostic.file = path;
  return tensors;
}

std::string serialize_safetensors(const std::vector<StoredTensor>& tensors) {
  // Largest elements first: then all are aligned without padding, which would be a hole.
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return bytes_of(tensors[a].type) > bytes_of(tensors[b].type); });
  std::vector<size_t> begins(tensors.size());
  size_t data_size = 0;
  for (const size_t k : order) {
    assert(element_count(tensors[k].shape) == static_cast<int64_t>(tensors[k].values.size()));
    begins[k] = data_size;
    data_size += tensors[k].values.size() * static_cast<size_t>(bytes_of(tensors[k].type));
  }
  std::string header = "{";
  for (size_t k = 0; k < tensors.size(); ++k) {
    const StoredTensor& tensor = tensors[k];
    // dump() escapes; invalid UTF-8 in a name is replaced, because an exception would escape.
    const std::string name = nlohmann::json(tensor.name).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    header += concat(k == 0 ? "" : ",", name, R"(:{"dtype":")", name_of(tensor.type), R"(","shape":[)",
                     join(tensor.shape, ","), R"(],"data_offsets":[)", begins[k], ",",
                     begins[k] + tensor.values.size() * static_cast<size_t>(bytes_of(tensor.type)), "]}");
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');

  std::string bytes;
  bytes.reserve(kLengthBytes + header.size() + data_size);
  append_little_endian(bytes, header.size(), kLengthBytes);
  bytes += header;
  for (const size_t k : order)
    for (const double value : tensors[k].values)
      append_little_endian(bytes, encode(value, tensors[k].type), static_cast<size_t>(bytes_of(tensors[k].type)));
  return bytes;
}

}  // namespace millrace
