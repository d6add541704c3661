#include "measure/trial_log.h"

#include <cstdlib>
#include <fstream>

namespace millrace {

void log_trial(double seconds, const std::string& phase, const std::string& partition) {
  const char* const file = std::getenv("MILLRACE_TRIAL_LOG");
  if (file == nullptr || *file == '\0') return;
  std::ofstream(file, std::ios::app) << seconds << '\t' << phase << '\t' << partition << '\n';
}

}  // namespace millrace
