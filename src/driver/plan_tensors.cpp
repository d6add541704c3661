#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <new>

#include "base/text.h"
#include "device/backend.h"
#include "millrace/half.h"
#include "millrace/tensors.h"

namespace millrace {
namespace {

struct Aligned {
  void operator()(char* memory) const { ::operator delete[](memory, std::align_val_t(kPlanMemoryAlignment)); }
};
using AlignedMemory = std::unique_ptr<char[], Aligned>;  // NOLINT(modernize-avoid-c-arrays): of run-time size

AlignedMemory zeros(int64_t bytes) {
  const auto count = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  AlignedMemory memory(new (std::align_val_t(kPlanMemoryAlignment)) char[count]);
  std::memset(memory.get(), 0, count);
  return memory;
}

// The tensor that must directly follow tensor `k`; the number of tensors if none.
size_t follower(const std::vector<TensorInfo>& tensors, size_t k) {
  size_t next = 0;
  while (next < tensors.size() && tensors[next].follows != static_cast<int>(k)) ++next;
  return next;
}

template <class T>
double load(const char* at) {
  T value{};
  std::memcpy(&value, at, sizeof(T));
  return static_cast<double>(value);
}

template <class T>
void store(double value, char* at) {
  const auto stored = static_cast<T>(value);
  std::memcpy(at, &stored, sizeof(T));
}

// How the elements of a type are stored.
struct ElementType {
  std::string_view name;
  int64_t bytes;
  double (*load)(const char*);
  void (*store)(double, char*);
};

double load_half(const char* at, float (*convert)(uint16_t)) {
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof(bits));
  return static_cast<double>(convert(bits));
}

void store_half(double value, char* at, uint16_t (*convert)(float)) {
  const uint16_t bits = convert(static_cast<float>(value));
  std::memcpy(at, &bits, sizeof(bits));
}

constexpr std::array<ElementType, 7> kTypes = {{
    {"float64", 8, load<double>, store<double>},
    {"float32", 4, load<float>, store<float>},
    {"float16", 2, [](const char* at) { return load_half(at, from_float16); },
     [](double value, char* at) { store_half(value, at, to_float16); }},
    {"bfloat16", 2, [](const char* at) { return load_half(at, from_bfloat16); },
     [](double value, char* at) { store_half(value, at, to_bfloat16); }},
    {"int32", 4, load<int32_t>, store<int32_t>},
    {"int64", 8, load<int64_t>, store<int64_t>},
    {"bool", 1, load<uint8_t>, [](double value, char* at) { *at = value != 0 ? 1 : 0; }},
}};

const ElementType& type_named(std::string_view name) {
  for (const ElementType& type : kTypes) {
    if (type.name == name) return type;
  }
  return kTypes.front();  // a scalar's
}

int64_t elements_of(const TensorInfo& info) {
  int64_t count = 1;
  for (const int64_t extent : info.shape) count *= extent;
  return count;
}

// Calls `visit` with the offset of every element, in the program's order of axes.
void for_each_offset(const TensorInfo& info, const std::function<void(int64_t)>& visit) {
  std::vector<int64_t> index(info.shape.size(), 0);
  int64_t offset = 0;
  for (int64_t left = elements_of(info); left > 0; --left) {
    visit(offset);
    for (size_t axis = index.size(); axis-- > 0;) {
      offset += info.strides[axis];
      if (++index[axis] < info.shape[axis]) break;
      offset -= info.strides[axis] * info.shape[axis];
      index[axis] = 0;
    }
  }
}

// One of the plan's lists, and where its tensors are.
struct AllocatedList {
  const std::vector<TensorInfo>* infos = nullptr;
  std::vector<AlignedMemory> memory;
  std::vector<void*> pointers;
  std::vector<const void*> readable;

  explicit AllocatedList(const std::vector<TensorInfo>& tensors) : infos(&tensors), pointers(tensors.size(), nullptr) {
    for (size_t first = 0; first < tensors.size(); ++first) {
      if (tensors[first].follows < 0 && tensors[first].bytes > 0) allocate_chain(first);
    }
    readable.assign(pointers.begin(), pointers.end());
  }

  // One block for a tensor and those that must directly follow it.
  void allocate_chain(size_t first) {
    int64_t bytes = 0;
    for (size_t k = first; k < infos->size(); k = follower(*infos, k)) bytes += (*infos)[k].bytes;
    char* at = memory.emplace_back(zeros(bytes)).get();
    for (size_t k = first; k < infos->size(); k = follower(*infos, k)) {
      pointers[k] = at;
      at += (*infos)[k].bytes;
    }
  }
};

struct Found {
  const TensorInfo* info = nullptr;
  char* data = nullptr;
};

}  // namespace

struct PlanTensors::Implementation {
  explicit Implementation(const Plan& plan)
      : lists{{AllocatedList(plan.arguments()), AllocatedList(plan.results()), AllocatedList(plan.result_gradients()),
               AllocatedList(plan.argument_gradients())}} {}

  Found find(std::string_view name) const {
    for (const AllocatedList& list : lists) {
      for (size_t k = 0; k < list.infos->size(); ++k) {
        if ((*list.infos)[k].name == name && list.pointers[k] != nullptr)
          return {&(*list.infos)[k], static_cast<char*>(list.pointers[k])};
      }
    }
    return {};
  }

  Error unknown(std::string_view name) const {
    std::vector<std::string> names;
    for (const AllocatedList& list : lists) {
      for (size_t k = 0; k < list.infos->size(); ++k) {
        if (list.pointers[k] != nullptr) names.push_back((*list.infos)[k].name);
      }
    }
    const std::string near = nearest(name, names);
    return Error::make(ErrorKind::bad_input, concat("the plan has no tensor '", name, "'"),
                       near.empty() ? concat("it has ", join(names, ", ")) : concat("did you mean '", near, "'?"));
  }

  std::array<AllocatedList, 4> lists;
};

PlanTensors::PlanTensors(std::unique_ptr<Implementation> implementation) : implementation_(std::move(implementation)) {}
PlanTensors::PlanTensors(PlanTensors&&) noexcept = default;
PlanTensors& PlanTensors::operator=(PlanTensors&&) noexcept = default;
PlanTensors::~PlanTensors() = default;

Result<PlanTensors> PlanTensors::allocate(const Plan& plan) {
  if (const auto backend = backend_named(plan.device()); !backend || (*backend)->target.own_memory)
    return Error::make(ErrorKind::unavailable,
                       concat("the plan's tensors are in the memory of --device ", plan.device()),
                       "allocate them there, as plan.arguments() and the other lists say");
  return PlanTensors(std::make_unique<Implementation>(plan));
}

Tensors PlanTensors::view() const {
  const auto& [arguments, results, result_gradients, argument_gradients] = implementation_->lists;
  Tensors tensors;
  tensors.arguments = arguments.readable;
  tensors.results = results.pointers;
  tensors.result_gradients = result_gradients.readable;
  tensors.argument_gradients = argument_gradients.pointers;
  return tensors;
}

Result<Done> PlanTensors::set(std::string_view name, std::span<const double> values) {
  const Found found = implementation_->find(name);
  if (found.info == nullptr) return implementation_->unknown(name);
  if (static_cast<int64_t>(values.size()) != elements_of(*found.info))
    return Error::make(ErrorKind::bad_input, concat(values.size(), " values for '", name, "'"),
                       concat("it has ", elements_of(*found.info), " elements"));
  const ElementType& type = type_named(found.info->dtype);
  size_t next = 0;
  for_each_offset(*found.info, [&](int64_t offset) { type.store(values[next++], found.data + offset * type.bytes); });
  return Done{};
}

Result<std::vector<double>> PlanTensors::get(std::string_view name) const {
  const Found found = implementation_->find(name);
  if (found.info == nullptr) return implementation_->unknown(name);
  const ElementType& type = type_named(found.info->dtype);
  std::vector<double> values;
  for_each_offset(*found.info, [&](int64_t offset) { values.push_back(type.load(found.data + offset * type.bytes)); });
  return values;
}

void* PlanTensors::data(std::string_view name) const { return implementation_->find(name).data; }

}  // namespace millrace
