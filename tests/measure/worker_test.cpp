#include "measure/worker.h"

#include <gtest/gtest.h>

#include <csignal>
#include <limits>

#include "measure/pretended_worker.h"

namespace millrace {
namespace {

TEST(WorkerProtocol, RequestsRoundTrip) {
  TrialRequest request{
      "partition \"one\"\n", true, "0213 012; rows", "k_1", "/a b/ü.so", "abc", {{true, 1 << 20, 1 << 21}, 2e-5, 0.25}};
  const std::string line = to_line(request);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const std::optional<TrialRequest> read = parse_request(line);
  ASSERT_TRUE(read);
  EXPECT_EQ(to_line(*read), line);
  EXPECT_EQ(read->partition, request.partition);
  EXPECT_EQ(read->conversion, true);
  EXPECT_EQ(read->settings.caches.cache_bytes, 1 << 20);
  EXPECT_EQ(read->settings.caches.turn_bytes, 1 << 21);
  EXPECT_EQ(read->settings.best_seconds, 2e-5);
  // A folder's name need not be UTF-8.
  request.path = "/cache/\xff\xfe.so";
  EXPECT_TRUE(parse_request(to_line(request)));
}

TEST(WorkerProtocol, RepliesRoundTrip) {
  MeasurementRow row;
  row.outcome = Outcome::measured;
  row.seconds = 1.25e-5;
  row.low = 1e-5;
  row.high = 2e-5;
  row.samples = 12;
  EXPECT_EQ(parse_reply(to_line(row)), row);
  MeasurementRow wrong;
  wrong.outcome = Outcome::wrong;
  wrong.detail = "y[3] is nan\xff , expected 1";
  const std::optional<MeasurementRow> read = parse_reply(to_line(wrong));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->outcome, Outcome::wrong);
  EXPECT_EQ(read->detail, "y[3] is nan? , expected 1");
}

TEST(WorkerProtocol, GarbageIsRefused) {
  for (const char* const line : {"", "ready", "{", "[]", "null", "{}", "\xff\xfe", R"({"outcome":"measured"})",
                                 R"({"outcome":"superb","seconds":1,"low":1,"high":1,"samples":6,"detail":""})",
                                 R"({"outcome":"measured","seconds":-1,"low":1,"high":1,"samples":6,"detail":""})",
                                 R"({"outcome":"measured","seconds":0,"low":0,"high":0,"samples":6,"detail":""})",
                                 R"({"outcome":"measured","seconds":1e999,"low":1,"high":1,"samples":6,"detail":""})",
                                 R"({"outcome":"measured","seconds":"1","low":1,"high":1,"samples":6,"detail":""})",
                                 R"({"outcome":"measured","seconds":null,"low":1,"high":1,"samples":6,"detail":""})",
                                 R"({"outcome":"measured","seconds":1,"low":2,"high":3,"samples":6,"detail":""})",
                                 R"({"outcome":"measured","seconds":1,"low":1,"high":1,"samples":0,"detail":""})",
                                 R"({"outcome":"measured","seconds":1,"low":1,"high":1,"samples":1e300,"detail":""})",
                                 R"({"outcome":"measured","seconds":1,"low":1,"high":1,"samples":6,"detail":7})",
                                 R"({"outcome":7,"seconds":1,"low":1,"high":1,"samples":6,"detail":""})"}) {
    EXPECT_FALSE(parse_reply(line)) << line;
    EXPECT_FALSE(parse_request(line)) << line;
  }
  const std::string request = to_line(TrialRequest{});
  for (size_t cut = 0; cut < request.size(); ++cut) EXPECT_FALSE(parse_request(request.substr(0, cut)));
}

TEST_F(WorkerTest, AnswersOneRequestAfterTheOther) {
  Worker worker(pretended_worker());
  for (int k = 0; k < 3; ++k) {
    const Result<MeasurementRow> row = worker.run(request_of(concat("candidate ", k)), 60);
    ASSERT_TRUE(row) << to_string(row.error());
    EXPECT_EQ(row->outcome, Outcome::measured) << row->detail;
  }
  EXPECT_EQ(calls().size(), 3U);
}

TEST_F(WorkerTest, ALostWorkerCostsOnlyItsCandidate) {
  Worker worker(pretended_worker(R"(
  *crashes*) kill -SEGV $$ ;;
  *leaves*) exit 3 ;;
  *killed*) kill -KILL $$ ;;
  *hangs*) sleep 1000 ;;
  *nonsense*) echo 'Segmentation fault, they said' ;;
  *negative*) echo '{"outcome":"measured","seconds":-1,"low":1,"high":1,"samples":6,"detail":""}' ;;
  *silent*) echo ;;
  *long*) head -c 100000000 /dev/zero | tr '\0' x ;;
)"));
  const std::vector<std::pair<std::string, Outcome>> cases = {
      {"crashes", Outcome::crashed}, {"leaves", Outcome::crashed},     {"killed", Outcome::out_of_memory},
      {"hangs", Outcome::hung},      {"nonsense", Outcome::crashed},   {"negative", Outcome::crashed},
      {"silent", Outcome::crashed},  {"long", Outcome::out_of_memory},  // it never stops writing
  };
  for (const auto& [how, expected] : cases) {
    const Result<MeasurementRow> lost = worker.run(request_of(how), how == "hangs" ? 0.3 : 60);
    ASSERT_TRUE(lost) << how << ": " << to_string(lost.error());
    EXPECT_EQ(kOutcomeNames.at(static_cast<size_t>(lost->outcome)), kOutcomeNames.at(static_cast<size_t>(expected)))
        << how;
    EXPECT_FALSE(lost->detail.empty()) << how;
    EXPECT_EQ(lost->seconds, 0) << how;
    const Result<MeasurementRow> next = worker.run(request_of("the next"), 60);
    ASSERT_TRUE(next) << how << ": " << to_string(next.error());
    EXPECT_EQ(next->outcome, Outcome::measured) << how << ": " << next->detail;
  }
}

// Somebody who kills the worker does not make its candidate a bad one.
TEST_F(WorkerTest, AWorkerKilledFromOutsideIsStartedAgainForItsCandidate) {
  for (const std::string signal : {"KILL", "TERM", "INT", "HUP"}) {
    Worker worker(pretended_worker(concat(
        "  *once*) if [ ! -e '", path(signal), "' ]; then touch '", path(signal), "'; kill -", signal, " $$; fi\n",
        R"(    echo '{"outcome":"measured","seconds":1,"low":1,"high":1,"samples":6,)", R"("detail":""}' ;;)", "\n")));
    const Result<MeasurementRow> row = worker.run(request_of("once"), 60);
    ASSERT_TRUE(row) << to_string(row.error());
    EXPECT_EQ(row->outcome, Outcome::measured) << signal << ": " << row->detail;
  }
}

// A worker that an earlier candidate damaged does not make the next candidate a bad one.
TEST_F(WorkerTest, AWorkerThatSendsAnInvalidAnswerIsStartedAgainForItsCandidate) {
  for (const std::string answer : {"nonsense", R"({"outcome":"measured","seconds":-1})", ""}) {
    const std::string once = path(concat("answered ", answer.size()));
    Worker worker(pretended_worker(
        concat("  *once*) if [ ! -e '", once, "' ]; then touch '", once, "'; echo '", answer, "'; else\n",
               R"(    echo '{"outcome":"measured","seconds":1,"low":1,"high":1,"samples":6,)",
               R"("detail":""}'; fi ;;)", "\n")));
    const Result<MeasurementRow> row = worker.run(request_of("once"), 60);
    ASSERT_TRUE(row) << to_string(row.error());
    EXPECT_EQ(row->outcome, Outcome::measured) << answer << ": " << row->detail;
  }
}

TEST_F(WorkerTest, AWorkerThatEndsForLackOfMemoryIsNotCalledACrash) {
  Worker worker(pretended_worker("  *eats*) echo \"  what():  std::bad_alloc\" >&2; kill -ABRT $$ ;;\n"));
  const Result<MeasurementRow> row = worker.run(request_of("eats"), 60);
  ASSERT_TRUE(row) << to_string(row.error());
  EXPECT_EQ(row->outcome, Outcome::out_of_memory) << row->detail;
}

TEST_F(WorkerTest, TheMemoryLimitEndsAWorker) {
  WorkerCommand command = pretended_worker(R"(
  *eats*) x=xxxxxxxxxxxxxxxx; while :; do x=$x$x$x$x; done ;;
)");
  command.memory_limit = uint64_t{256} << 20;
  Worker worker(command);
  const Result<MeasurementRow> lost = worker.run(request_of("eats"), 60);
  ASSERT_TRUE(lost) << to_string(lost.error());
  EXPECT_TRUE(lost->outcome == Outcome::crashed || lost->outcome == Outcome::out_of_memory) << lost->detail;
  const Result<MeasurementRow> next = worker.run(request_of("the next"), 60);
  ASSERT_TRUE(next) << to_string(next.error());
  EXPECT_EQ(next->outcome, Outcome::measured);
}

TEST_F(WorkerTest, AWorkerThatCannotStartIsAnError) {
  Worker missing({{path("no such worker")}, "{}", 0});
  const Result<MeasurementRow> none = missing.run(request_of("any"), 60);
  ASSERT_FALSE(none);
  EXPECT_NE(to_string(none.error()).find("no such worker"), std::string::npos) << to_string(none.error());
  ASSERT_TRUE(write_file(path("unready.sh"), "#!/bin/sh\nread -r greeting\necho 'x.py:3: no such function'\n"));
  Worker unready({{"/bin/sh", path("unready.sh")}, "{}", 0});
  const Result<MeasurementRow> refused = unready.run(request_of("any"), 60);
  ASSERT_FALSE(refused);
  EXPECT_NE(to_string(refused.error()).find("x.py:3: no such function"), std::string::npos);
  ASSERT_TRUE(write_file(path("gone.sh"), "#!/bin/sh\nexit 5\n"));
  Worker gone({{"/bin/sh", path("gone.sh")}, "{}", 0});
  EXPECT_FALSE(gone.run(request_of("any"), 60));
}

}  // namespace
}  // namespace millrace
