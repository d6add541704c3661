#include "base/text.h"
#include "frontend/lowerer.h"

namespace millrace {

Value Lowerer::lower_index(const Expression& expression, Scope& scope) {
  const Value base = lower(expression.children[0], scope);
  if (base.kind == ValueKind::broken) return base;
  if (base.kind == ValueKind::tuple) return index_sequence(base, expression, scope);
  if (base.kind != ValueKind::view)
    return report(expression.location, "only tensors, tuples and lists can be indexed", "write x[:, None, ...]");
  std::vector<IndexItem> items;
  std::optional<Value> ids;  // a tensor among the items
  size_t place = 0;          // its item
  for (size_t k = 1; k < expression.children.size(); ++k) {
    const Expression& written = expression.children[k];
    const bool plain = written.kind == ExpressionKind::slice || written.kind == ExpressionKind::ellipsis;
    const Value value = plain ? Value::nothing() : lower(written, scope);
    // x[(1, 2)] is x[1, 2]
    const bool several = value.kind == ValueKind::tuple && !value.list && expression.children.size() == 2;
    for (const Value& part : several ? *value.items : std::vector<Value>{value}) {
      const bool tensor = part.kind == ValueKind::view && !is_boolean(part);
      if (tensor && (!part.view.axes.empty() || builder_.holds_integers(part.view))) {
        if (ids)
          return report(written.location, "an index has at most one tensor",
                        "write x[ids][:, other], or np.take_along_axis(x, ids, axis)");
        ids = part;
        place = items.size();
        items.emplace_back().location = written.location;
        continue;
      }
      const std::optional<IndexItem> item = index_item(written, part, scope);
      if (!item) return Value::broken();
      items.push_back(*item);
    }
  }
  const Value indexed = index_view(base.view, items, expression.location, builder_, diagnostics_);
  return ids && indexed.kind == ValueKind::view ? gather_at(base.view, indexed.view, items, place, *ids) : indexed;
}

// `indexed` is the base with a slice of everything in place of the tensor.
Value Lowerer::gather_at(const View& base, const View& indexed, const std::vector<IndexItem>& items, size_t place,
                         const Value& ids) {
  size_t axis = 0;
  size_t taken = 0;
  for (const IndexItem& item : items) {
    if (item.kind == IndexItem::Kind::integer)
      return report(item.location, "an index has an integer and a tensor", "write x[0][ids]");
    if (item.kind == IndexItem::Kind::slice) ++taken;
  }
  for (size_t k = 0; k < place; ++k) axis += items[k].kind == IndexItem::Kind::ellipsis ? base.axes.size() - taken : 1;
  return builder_.gather_along(indexed, axis, ids.view, items[place].location);
}

// One item of an index; `value` is its value unless it is a slice or `...`.
std::optional<IndexItem> Lowerer::index_item(const Expression& written, const Value& value, Scope& scope) {
  IndexItem item;
  item.location = written.location;
  if (written.kind == ExpressionKind::slice) {
    const std::optional<SliceBounds> bounds = slice_bounds(written, scope);
    if (!bounds) return std::nullopt;
    item.start = bounds->start;
    item.stop = bounds->stop;
    item.step = bounds->step;
  } else if (written.kind == ExpressionKind::ellipsis) {
    item.kind = IndexItem::Kind::ellipsis;
  } else if (value.kind == ValueKind::nothing) {
    item.kind = IndexItem::Kind::none;
  } else if (value.integer && written.kind != ExpressionKind::boolean) {
    item.kind = IndexItem::Kind::integer;
    item.integer = *value.integer;
  } else if (is_boolean(value) || written.kind == ExpressionKind::boolean) {
    report(written.location, "the shape of x[condition] would depend on the data",
           "keep all elements: np.where(condition, x, 0)");
    return std::nullopt;
  } else if (value.kind == ValueKind::broken) {
    return std::nullopt;
  } else {
    report(written.location, "an index must be an integer that is known before the program runs",
           "write x[1:-1, ::2, 3, ..., None] with numbers and sizes");
    return std::nullopt;
  }
  return item;
}

std::optional<int64_t> Lowerer::static_integer(const Expression& expression, Scope& scope) {
  const Value value = lower(expression, scope);
  if (value.integer) return value.integer;
  if (value.kind == ValueKind::view) {
    report(expression.location, "the bounds of a slice must be known before the program runs",
           "mask the elements instead: np.where(np.arange(N) < n, x, 0)");
  } else if (value.kind != ValueKind::broken) {
    report(expression.location, "the bounds of a slice must be integers", "write x[N // 2:]");
  }
  return std::nullopt;
}

std::optional<SliceBounds> Lowerer::slice_bounds(const Expression& slice, Scope& scope) {
  SliceBounds bounds;
  const auto bound = [&](size_t k, std::optional<int64_t>& result) {
    if (slice.children.empty() || slice.children[k].kind == ExpressionKind::none) return true;
    result = static_integer(slice.children[k], scope);
    return result.has_value();
  };
  const bool known = bound(0, bounds.start) && bound(1, bounds.stop) && bound(2, bounds.step);
  return known ? std::optional(bounds) : std::nullopt;
}

Value Lowerer::index_sequence(const Value& base, const Expression& expression, Scope& scope) {
  if (expression.children.size() != 2)
    return report(expression.location, "a tuple or list takes one index", "write xs[0] or xs[1:]");
  const Expression& written = expression.children[1];
  if (written.kind == ExpressionKind::slice) {
    const std::optional<SliceBounds> bounds = slice_bounds(written, scope);
    if (!bounds || !spend(base.items->size() / 8, expression.location)) return Value::broken();
    return slice_of(base, *bounds, expression.location, diagnostics_);
  }
  const Value item = lower(written, scope);
  if (item.kind == ValueKind::broken) return item;
  if (item.integer) return item_of(base, *item.integer, written.location, diagnostics_);
  return report(written.location,
                "an index of a tuple or list must be an integer that is known before the program runs",
                "write xs[0] or xs[1:]");
}

}  // namespace millrace
