// What the database has of the trials: outcomes of earlier runs, of this program or another one with equal partitions.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "measure/conversion_trials.h"
#include "measure/database.h"
#include "measure/kernel_maker.h"
#include "measure/partition_classes.h"
#include "measure/refinements.h"

namespace millrace {

// What a trial's candidate is called in the database. What is stored stands for exactly this source text: another
// generator makes another name.
std::string stored_name(const KernelMaker* kernels, const Trial& trial, const Launch& launch);

class Recall {
 public:
  // What is referred to lives longer. No kernels: there is no compiler.
  Recall(const Database& database, std::string device, const KernelMaker* kernels)
      : database_(database), device_(std::move(device)), kernels_(kernels) {}

  // Makes trials of the conversions that were tried.
  Result<Done> conversions(const std::vector<TensorDomain>& domains, ConversionTrials& into) const;
  // The outcomes of trials of which it was not asked before, and of their refinements.
  Result<Done> outcomes(Refinements& refinements, PartitionClasses& into);
  // How many outcomes.
  double known() const { return known_; }

 private:
  using RowsByText = std::map<std::string, const MeasurementRow*>;

  void recall_class(size_t partition_class, const RowsByText& rows, PartitionClasses& into);

  const Database& database_;
  std::string device_;
  const KernelMaker* kernels_;
  std::set<std::string> asked_;  // texts of classes
  double known_ = 0;
};

}  // namespace millrace
