// Memory for all tensors of a plan on the CPU, with access by name: an embedder needs to know neither layouts nor the
// bits of half types. Test: tests/driver/plan_tensors_test.cpp
//
//   millrace::Result<millrace::PlanTensors> tensors = millrace::PlanTensors::allocate(*plan);
//   tensors->set("x", values);  // in the program's order of axes
//   plan->step(tensors->view(), seed, step);
//   millrace::Result<std::vector<double>> result = tensors->get("out");
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "millrace/plan.h"

namespace millrace {

class PlanTensors {
 public:
  // Every argument, result and gradient, all zero, in the plan's layouts. An error if the plan is for a GPU.
  static Result<PlanTensors> allocate(const Plan& plan);

  PlanTensors(PlanTensors&&) noexcept;
  PlanTensors& operator=(PlanTensors&&) noexcept;
  ~PlanTensors();

  // For Plan's passes; valid as long as this.
  Tensors view() const;

  // The elements in the program's order of axes, for any layout and type of the tensor. An argument or result, or
  // d_NAME for its gradient.
  Result<Done> set(std::string_view name, std::span<const double> values);
  Result<std::vector<double>> get(std::string_view name) const;

  // The tensor's memory, laid out as its TensorInfo says; null if there is none of this name.
  void* data(std::string_view name) const;

 private:
  struct Implementation;
  explicit PlanTensors(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace millrace
