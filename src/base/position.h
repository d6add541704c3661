// The position of an element in a list. Test: tests/base/position_test.cpp
#pragma once

#include <algorithm>
#include <cstddef>

namespace millrace {

// The number of elements before the first that equals `element`; the size of the list if none does.
template <class List, class Element>
size_t position_in(const List& list, const Element& element) {
  return static_cast<size_t>(std::find(list.begin(), list.end(), element) - list.begin());
}

}  // namespace millrace
