// Finds outcomes of earlier runs in the database, of this program or of another one with equal partitions. Test:
// tests/measure/explore_test.cpp
#pragma once

#include <functional>
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

// The name of a trial's candidate in the database. It includes a hash of the kernel's source: if the generator changes,
// so does the name.
std::string stored_name(const KernelMaker* kernels, const Trial& trial, const Launch& launch);

class Recall {
 public:
  struct Devices {
    std::string own;
    std::vector<std::string> similar;  // may include our own
  };
  // The configs of a partition under given layouts.
  using ConfigsUnder = std::function<std::vector<Candidate>(const Partition&, const std::vector<int>& layouts)>;

  // All references must outlive this. `kernels` is null without a compiler, and `configs_under` if all candidates are
  // listed.
  Recall(const Database& database, Devices devices, const KernelMaker* kernels, ConfigsUnder configs_under = nullptr)
      : database_(database),
        devices_(std::move(devices)),
        kernels_(kernels),
        configs_under_(std::move(configs_under)) {}

  // Learns from the latest measurements of any program on this device, and about config families that it has not
  // measured from those of similar devices.
  Result<Done> lessons(PartitionClasses& into) const;
  // Adds the conversions that earlier runs tried.
  Result<Done> conversions(const std::vector<TensorDomain>& domains, ConversionTrials& into) const;
  // Notes the outcomes of classes that it has not looked up before, and of their refinements.
  Result<Done> outcomes(const std::vector<TensorDomain>& domains, Refinements& refinements, PartitionClasses& into);
  // The number of outcomes found.
  double known() const { return known_; }

 private:
  using RowsByText = std::map<std::string, const MeasurementRow*>;

  bool add_unlisted(size_t partition_class, const RowsByText& rows, const std::vector<TensorDomain>& domains,
                    PartitionClasses& into) const;
  void recall_class(size_t partition_class, const RowsByText& rows, PartitionClasses& into);

  const Database& database_;
  Devices devices_;
  const KernelMaker* kernels_;
  ConfigsUnder configs_under_;
  std::set<std::string> looked_up_;  // texts of classes
  double known_ = 0;
};

}  // namespace millrace
