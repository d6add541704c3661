// Shell scripts as workers: they answer according to the request, or not at all.
#pragma once

#include <sys/stat.h>

#include <string>

#include "base/file.h"
#include "base/scratch.h"
#include "measure/worker.h"

namespace millrace {

class WorkerTest : public ScratchTest {
 protected:
  // `answers`: branches of a case over $line, the request. Any other request is measured, with a time that depends only
  // on the candidate's text. The script appends every request to the file calls.
  WorkerCommand pretended_worker(const std::string& answers = "", const std::string& name = "worker.sh") {
    const std::string file = path(name);
    const std::string script = concat(R"(#!/bin/sh
read -r greeting
echo ready
while read -r line; do
  candidate=${line#*\"candidate\":\"}
  candidate=${candidate%%\"*}
  printf '%s\n' "$line" >>')",
                                      path("calls"), R"('
  case "$line" in
)",
                                      answers, R"(
  *)
    sum=$(printf '%s' "$candidate" | cksum)
    time=$(( ${sum%% *} % 900 + 100 ))e-6
    echo "{\"outcome\":\"measured\",\"seconds\":$time,\"low\":$time,\"high\":$time,\"samples\":6,\"detail\":\"\"}"
    ;;
  esac
done
)");
    EXPECT_TRUE(write_file(file, script));
    EXPECT_EQ(chmod(file.c_str(), 0755), 0);
    return {{"/bin/sh", file}, "{}", 0};
  }

  std::vector<std::string> calls() const {
    const Result<std::string> text = read_file(path("calls"), int64_t{1} << 30);
    std::vector<std::string> lines = text ? split(*text, '\n') : std::vector<std::string>();
    if (!lines.empty()) lines.pop_back();
    return lines;
  }

  static TrialRequest request_of(const std::string& candidate) {
    TrialRequest request;
    request.partition = "partition";
    request.candidate = candidate;
    return request;
  }
};

}  // namespace millrace
