#include "random/row_member.h"

#include <limits>
#include <utility>

#include "base/text.h"
#include "reference/bounded.h"
#include "reference/philox.h"

namespace millrace::random_programs {
namespace {

template <class Scalar>
class RowMemberBuilder {
 public:
  RowMemberBuilder(const Graph& graph, const Operator& whole, const std::vector<bool>& outer,
                   const std::vector<bool>& passed, const RandomState& random)
      : graph_(graph), whole_(whole), passed_(passed), random_(random), op_(whole) {
    member_.graph.name = whole.name;
    member_.graph.dims = graph.dims;
    member_.graph.dims.push_back({"row", 1});
    for (size_t k = 0; k < op_.space.size(); ++k) {
      if (outer[k]) op_.space[k] = DimId(graph.dims.size());
    }
  }

  RowMember<Scalar> build() {
    const bool gathers = op_.kind == OperatorKind::gather;  // its positions depend on data
    for (size_t k = 0; k < whole_.inputs.size() && !gathers; ++k) op_.inputs[k] = input(whole_.inputs[k]);
    for (size_t k = 0; k < whole_.outputs.size(); ++k) op_.outputs[k] = output(whole_.outputs[k]);
    switch (op_.kind) {
      case OperatorKind::join: add_join(); break;
      case OperatorKind::dropout: add_dropout(); break;
      case OperatorKind::index: add_positions(); break;
      case OperatorKind::gather: add_gather(); break;
      case OperatorKind::scatter_add: add_scatter(); break;
      case OperatorKind::causal_mask: add_choice(-std::numeric_limits<double>::infinity()); break;
      case OperatorKind::causal_mask_dx:
      case OperatorKind::embed_diagonal: add_choice(0); break;
      default: member_.graph.operators.push_back(op_);
    }
    return std::move(member_);
  }

 private:
  std::vector<size_t> indices_along(const Access& access) const {
    std::vector<size_t> along;
    for (size_t k = 0; k < whole_.space.size(); ++k) {
      if (runs_along(access, k)) along.push_back(k);
    }
    return along;
  }

  std::vector<size_t> all_indices() const {
    std::vector<size_t> along(whole_.space.size());
    for (size_t k = 0; k < along.size(); ++k) along[k] = k;
    return along;
  }

  RowTensor add_tensor(const std::string& name, DType dtype, TensorRole role, std::vector<size_t> along) {
    Tensor tensor{concat(name, "#", member_.graph.tensors.size()), dtype, {}, role};
    for (const size_t k : along) tensor.dims.push_back(op_.space[k]);
    member_.graph.tensors.push_back(std::move(tensor));
    return {TensorId(member_.graph.tensors.size() - 1), std::move(along)};
  }

  static Access access_to(const RowTensor& tensor) {
    Access access{tensor.id, {}};
    for (const size_t k : tensor.along) access.axes.emplace_back(static_cast<int>(k));
    return access;
  }

  Access constant(double value) {
    const RowTensor added = add_tensor("constant", DType::float64, TensorRole::constant, {});
    member_.graph.tensors.back().value = value;
    return access_to(added);
  }

  Access input(const Access& from) {
    const Tensor& tensor = graph_.tensor(from.tensor);
    if (tensor.role == TensorRole::constant) return constant(tensor.value);
    const bool everywhere = passed_[from.tensor.at()] || whole_.kind == OperatorKind::join;  // its region says where
    RowTensor to =
        add_tensor(tensor.name, tensor.dtype, TensorRole::argument, everywhere ? all_indices() : indices_along(from));
    member_.loads.push_back({to, &from, false, {}});
    return access_to(to);
  }

  Access output(const Access& to) {
    const Tensor& tensor = graph_.tensor(to.tensor);
    RowTensor from = add_tensor(tensor.name, tensor.dtype, TensorRole::computed, indices_along(to));
    member_.stores.push_back({from, &to});
    return access_to(from);
  }

  template <class Formula>
  Access generated(DType dtype, std::vector<size_t> along, const Formula& formula) {
    RowTensor to = add_tensor("position", dtype, TensorRole::argument, std::move(along));
    member_.loads.push_back({to, nullptr, false, formula});
    return access_to(to);
  }

  // y = the first input whose region has the point, or the operator's value if none has.
  void add_join() {
    Access rest = constant(op_.value);
    for (size_t k = op_.inputs.size(); k-- > 0;) {
      Operator choice = op_;
      choice.name = concat(op_.name, " ", k);
      choice.kind = OperatorKind::where;
      const Region& region = whole_.regions[k];
      const Access inside = generated(DType::boolean, all_indices(),
                                      [&region](const Point& p) { return Scalar(is_in(region, p) ? 1 : 0); });
      choice.inputs = {inside, op_.inputs[k], rest};
      if (k > 0)
        choice.outputs = {access_to(add_tensor("joined", DType::float64, TensorRole::computed, all_indices()))};
      rest = choice.outputs[0];
      member_.graph.operators.push_back(std::move(choice));
    }
  }

  // y = a · mask, and a copy of the mask. The output's element decides what is kept.
  void add_dropout() {
    const Access mask =
        generated(DType::float64, all_indices(), [whole = &whole_, graph = &graph_, random = random_](const Point& p) {
          const size_t element = element_at(*graph, whole->outputs[0], p).value();
          const bool keeps = dropout_keeps(random.seed, random.step, whole->subsequence, element, whole->value);
          return keeps ? Scalar(1) / (Scalar(1) - Scalar(whole->value)) : Scalar(0);
        });
    Operator copy = op_;
    copy.name += " mask";
    copy.kind = OperatorKind::copy;
    copy.inputs = {mask};
    copy.outputs = {op_.outputs[1]};
    op_.kind = OperatorKind::multiply;
    op_.inputs.push_back(mask);
    op_.outputs.pop_back();
    member_.graph.operators.push_back(op_);
    member_.graph.operators.push_back(std::move(copy));
  }

  // A copy of what the ids select; the row reads the ids itself.
  void add_gather() {
    const RowTensor table = add_tensor("gathered", DType::float64, TensorRole::argument, all_indices());
    member_.loads.push_back({table, &whole_.inputs[0], true, {}});
    op_.kind = OperatorKind::copy;
    op_.inputs = {access_to(table)};
    member_.graph.operators.push_back(op_);
  }

  // Σ where(ids == position, g, 0)
  void add_scatter() {
    const size_t selected = as_index(whole_.gathered);
    const Access position = generated(DType::float64, {selected},
                                      [selected](const Point& p) { return Scalar(static_cast<double>(p[selected])); });
    const auto over_space = [&](OperatorKind kind, DType dtype, std::vector<Access> inputs) {
      Operator made = op_;
      made.name = concat(op_.name, " ", info_of(kind).name);
      made.kind = kind;
      made.reduced.assign(made.space.size(), false);
      made.inputs = std::move(inputs);
      made.outputs = {access_to(add_tensor("selected", dtype, TensorRole::computed, all_indices()))};
      member_.graph.operators.push_back(made);
      return made.outputs[0];
    };
    const Access same = over_space(OperatorKind::equal, DType::boolean, {op_.inputs[1], position});
    const Access taken = over_space(OperatorKind::where, DType::float64, {same, op_.inputs[0], constant(0)});
    op_.kind = OperatorKind::sum;
    op_.inputs = {taken};
    member_.graph.operators.push_back(op_);
  }

  // A copy of the positions.
  void add_positions() {
    op_.kind = OperatorKind::copy;
    op_.inputs = {generated(DType::float64, all_indices(),
                            [](const Point& p) { return Scalar(static_cast<double>(p.front())); })};
    member_.graph.operators.push_back(op_);
  }

  // y = a where the operator passes it, else `other`.
  void add_choice(double other) {
    const Access passes = generated(DType::boolean, all_indices(), [whole = &whole_](const Point& p) {
      if (whole->kind != OperatorKind::embed_diagonal) return Scalar(p.back() > p[p.size() - 2] ? 0 : 1);
      for (size_t k = 0; k < p.size(); ++k) {
        if (p[k] != p[as_index(whole->diagonal[k])]) return Scalar(0);
      }
      return Scalar(1);
    });
    op_.kind = OperatorKind::where;
    op_.inputs = {passes, op_.inputs[0], constant(other)};
    member_.graph.operators.push_back(op_);
  }

  const Graph& graph_;
  const Operator& whole_;
  const std::vector<bool>& passed_;
  const RandomState& random_;
  Operator op_;  // in the row
  RowMember<Scalar> member_;
};

}  // namespace

template <class Scalar>
RowMember<Scalar> row_member(const Graph& graph, const Operator& op, const std::vector<bool>& outer,
                             const std::vector<bool>& passed, const RandomState& random) {
  return RowMemberBuilder<Scalar>(graph, op, outer, passed, random).build();
}

template RowMember<double> row_member(const Graph&, const Operator&, const std::vector<bool>&, const std::vector<bool>&,
                                      const RandomState&);
template RowMember<Bounded<53>> row_member(const Graph&, const Operator&, const std::vector<bool>&,
                                           const std::vector<bool>&, const RandomState&);

}  // namespace millrace::random_programs
