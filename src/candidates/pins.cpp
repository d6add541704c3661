#include "candidates/pins.h"

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "ir/layout.h"

namespace millrace {
namespace {

constexpr const char* kStacked = "stacked";

constexpr std::ptrdiff_t kManyReaders = 3;  // a weight has two, in forward and in backward

bool is_number(const Tensor& tensor) {
  return tensor.role == TensorRole::scalar || tensor.role == TensorRole::constant;
}

std::vector<TensorDomain> domains_of(const TrainingGraph& training) {
  const Graph& graph = training.graph;
  std::vector<TensorDomain> domains(graph.tensors.size());
  for (size_t k = 0; k < graph.tensors.size(); ++k) {
    if (is_number(graph.tensors[k])) continue;
    domains[k].layouts = layouts_of(graph, TensorId(k), true);
    const TensorRole role = graph.tensors[k].role;
    if (role == TensorRole::argument || role == TensorRole::result_gradient) domains[k].pinned = 0;
  }
  for (const Output& result : graph.results) domains[result.tensor.at()].pinned = 0;
  for (const TensorId gradient : training.argument_gradients) {
    if (gradient.valid()) domains[gradient.at()].pinned = 0;
  }
  return domains;
}

enum class CallersList { arguments, argument_gradients, results, result_gradients };

// A tensor of the caller, under the caller's name.
struct Named {
  std::string name;
  TensorId tensor;
  CallersList list = CallersList::arguments;
};

std::vector<Named> named_tensors_of_caller(const TrainingGraph& training) {
  const Graph& graph = training.graph;
  std::vector<Named> named;
  for (size_t k = 0; k < graph.arguments.size(); ++k) {
    const std::string& name = graph.tensor(graph.arguments[k]).name;
    named.push_back({name, graph.arguments[k], CallersList::arguments});
    if (training.argument_gradients[k].valid())
      named.push_back({concat("d_", name), training.argument_gradients[k], CallersList::argument_gradients});
  }
  for (size_t k = 0; k < graph.results.size(); ++k) {
    named.push_back({graph.results[k].name, graph.results[k].tensor, CallersList::results});
    named.push_back({concat("d_", graph.results[k].name), training.result_gradients[k], CallersList::result_gradients});
  }
  return named;
}

class Pinning {
 public:
  explicit Pinning(const TrainingGraph& training)
      : graph_(training.graph), named_(named_tensors_of_caller(training)), pinned_{domains_of(training), {}, {}} {}

  Result<Pinned> run(const std::vector<std::pair<std::string, std::string>>& layouts) {
    // Stacks last, because they are checked against the layouts of their tensors.
    for (const bool stacks : {false, true}) {
      for (const auto& [name, layout] : layouts) {
        if (is_stack(name, layout) != stacks) continue;
        if (Result<Done> done = stacks ? stack(name, layout) : pin(name, layout); !done) return done.error();
      }
    }
    for (const TensorId argument : graph_.arguments) allow_conversion(argument);
    return std::move(pinned_);
  }

 private:
  // An argument with many readers may be worth one conversion, to a layout with the same innermost axis, which is as
  // fast as a copy.
  void allow_conversion(TensorId argument) {
    TensorDomain& domain = pinned_.domains[argument.at()];
    const bool stacked = std::find(stacked_.begin(), stacked_.end(), argument) != stacked_.end();
    if (domain.pinned < 0 || stacked || readers_of(argument) < kManyReaders) return;
    const auto last = [&](int layout) { return domain.layouts[as_index(layout)].order.back(); };
    for (int layout = 0; layout < static_cast<int>(domain.layouts.size()); ++layout) {
      if (layout != domain.pinned && last(layout) == last(domain.pinned)) domain.otherwise.push_back(layout);
    }
  }

  std::ptrdiff_t readers_of(TensorId tensor) const {
    return std::count_if(graph_.operators.begin(), graph_.operators.end(), [&](const Operator& op) {
      return std::any_of(op.inputs.begin(), op.inputs.end(), [&](const Access& in) { return in.tensor == tensor; });
    });
  }

  static bool is_stack(const std::string& name, const std::string& layout) {
    return layout == kStacked || name.find('+') != std::string::npos;
  }

  static Error wrong(const std::string& pin, const std::string& what, const std::string& remedy) {
    return Error::make(ErrorKind::bad_input, concat("--layout ", pin, ": ", what), remedy);
  }

  // `pin`: what the user wrote, for the message.
  Result<Named> find(const std::string& name, const std::string& pin) const {
    std::vector<std::string> names;
    for (const Named& known : named_) {
      if (known.name == name) {
        if (!pinned_.domains[known.tensor.at()].layouts.empty()) return known;
        return wrong(pin, concat(pin == name ? "it" : name, " is a scalar"), "scalars have no layout");
      }
      names.push_back(known.name);
    }
    const std::string near = nearest(name, names);
    return wrong(pin, pin == name ? "no argument or result of that name" : concat("no argument or result '", name, "'"),
                 near.empty() ? concat("there are ", join(names, ", ")) : concat("did you mean ", near, "?"));
  }

  Result<Done> pin(const std::string& name, const std::string& text) {
    const Result<Named> found = find(name, name);
    if (!found) return found.error();
    TensorDomain& domain = pinned_.domains[found->tensor.at()];
    if (text == "any") {
      domain.pinned = -1;
      return Done{};
    }
    const std::optional<Layout> layout = parse_layout(graph_, found->tensor, text);
    const auto known = layout ? std::find(domain.layouts.begin(), domain.layouts.end(), *layout) : domain.layouts.end();
    if (known == domain.layouts.end()) {
      return wrong(concat(name, "=", text), "not an order of its axes",
                   concat("write its axes outermost first, as in ",
                          print_layout(graph_, found->tensor, domain.layouts.front()), ", or any"));
    }
    domain.pinned = static_cast<int>(known - domain.layouts.begin());
    return Done{};
  }

  // Tensors adjacent in memory.
  Result<Done> stack(const std::string& name, const std::string& text) {
    const std::string pin = concat(name, "=", text);
    const std::vector<std::string> names = split(name, '+');
    if (text != kStacked)
      return wrong(pin, "several tensors have no layout in common",
                   concat("write ", name, "=", kStacked, " if they are adjacent in memory, and a --layout for each"));
    if (names.size() < 2)
      return wrong(pin, "one tensor is not a stack",
                   concat("name the tensors that follow it too, as in ", name, "+k=", kStacked));
    std::vector<Named> stack;
    for (const std::string& one : names) {
      Result<Named> found = find(one, pin);
      if (!found) return found.error();
      if (Result<Done> fits = check_next(pin, stack, *found); !fits) return fits;
      stack.push_back(std::move(*found));
    }
    std::vector<TensorId> group;
    for (const Named& one : stack) group.push_back(one.tensor);
    stacked_.insert(stacked_.end(), group.begin(), group.end());
    if (const std::optional<std::string> reason = why_unusable(stack)) {
      pinned_.rejected.push_back({concat(join(names, " + "), " stacked by the caller: ", *reason), 1});
    } else {
      pinned_.contiguous_groups.push_back(std::move(group));
    }
    return Done{};
  }

  // Whether it can follow the others, or be first.
  Result<Done> check_next(const std::string& pin, const std::vector<Named>& stack, const Named& next) const {
    const bool again = std::any_of(stack.begin(), stack.end(), [&](const Named& n) { return n.tensor == next.tensor; });
    if (again)
      return wrong(pin, concat(next.name, " is named twice"), "name each tensor once, in their order in memory");
    if (std::find(stacked_.begin(), stacked_.end(), next.tensor) != stacked_.end())
      return wrong(pin, concat(next.name, " is in another stack"), "write both as one, in their order in memory");
    if (pinned_.domains[next.tensor.at()].pinned < 0)
      return wrong(pin, concat(next.name, "=any leaves the layout open"), concat("leave out ", next.name, "=any"));
    if (stack.empty()) return Done{};
    const Named& first = stack.front();
    if (first.list != next.list)
      return wrong(pin, concat(first.name, " and ", next.name, " are not of one kind"),
                   "stack arguments with arguments, gradients with gradients, results with results");
    const DType one = graph_.tensor(first.tensor).dtype;
    const DType other = graph_.tensor(next.tensor).dtype;
    if (one != other)
      return wrong(pin, concat(first.name, " is ", name_of(one), " and ", next.name, " is ", name_of(other)),
                   "stacked tensors must have one type");
    return Done{};
  }

  // Every tensor of a contiguous group must be aligned like a tensor by itself.
  std::optional<std::string> why_unusable(const std::vector<Named>& stack) const {
    for (size_t k = 0; k + 1 < stack.size(); ++k) {
      const TensorId tensor = stack[k].tensor;
      const int64_t bytes = elements_of(graph_, tensor) * bytes_of(graph_.tensor(tensor).dtype);
      if (bytes % kCallersAlignment != 0)
        return concat(stack[k].name, " takes ", bytes, " bytes, and ", stack[k + 1].name,
                      " after it is not aligned to ", kCallersAlignment);
    }
    return std::nullopt;
  }

  const Graph& graph_;
  std::vector<Named> named_;
  Pinned pinned_;
  std::vector<TensorId> stacked_;  // all tensors in stacks
};

}  // namespace

Result<Pinned> pin_layouts(const TrainingGraph& training,
                           const std::vector<std::pair<std::string, std::string>>& layouts) {
  return Pinning(training).run(layouts);
}

}  // namespace millrace
