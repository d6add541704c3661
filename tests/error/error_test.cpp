// Invalid programs, each a `.py` next to a `.txt` with the front end's error messages. A program's first line may be a
// comment with options: `# --size tiny --entry f`. tests/python/frontend_messages_test.py checks that every message
// occurs.
#include <gtest/gtest.h>

#include <filesystem>

#include "frontend/frontend.h"
#include "golden/golden.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> programs() {
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(concat(MILLRACE_SOURCE_DIR, "/tests/error"))) {
    if (entry.path().extension() == ".py") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

ProgramOptions options_for(const fs::path& path, const std::string& text) {
  ProgramOptions options;
  options.file = path.filename().string();
  const std::string first = text.substr(0, text.find('\n'));
  if (!first.starts_with("# --")) return options;
  const std::vector<std::string> words = split(first, ' ');
  for (size_t k = 1; k + 1 < words.size(); k += 2) {
    if (words[k] == "--size") options.sizes.push_back(words[k + 1]);
    if (words[k] == "--entry") options.entry = words[k + 1];
  }
  return options;
}

// The characters of a line, each as its bytes.
std::vector<std::string> characters(const std::string& line) {
  std::vector<std::string> result;
  for (const char c : line) {
    if ((static_cast<unsigned char>(c) & 0xC0) != 0x80 || result.empty()) result.emplace_back();
    result.back() += c;
  }
  return result;
}

TEST(ErrorPrograms, MessagesEqualTheirFiles) {
  ASSERT_GE(programs().size(), 50U);
  for (const fs::path& path : programs()) {
    const std::string text = text_of_file(path.string());
    const Result<Graph> graph = parse_program(text, options_for(path, text));
    if (graph) {
      ADD_FAILURE() << path << " is accepted";
      continue;
    }
    EXPECT_EQ(graph.error().kind, ErrorKind::bad_input) << path;
    EXPECT_TRUE(
        matches_file(to_string(graph.error()), concat("error/", path.stem().string(), ".txt"), "ErrorPrograms"));
  }
}

// Computes line, column, excerpt and caret independently, from the text alone.
TEST(ErrorPrograms, MessagesHaveTheRightLocation) {
  for (const fs::path& path : programs()) {
    const std::string text = text_of_file(path.string());
    const std::vector<std::string> lines = split(text, '\n');
    const Result<Graph> graph = parse_program(text, options_for(path, text));
    if (graph) continue;  // reported above
    for (const Diagnostic& diagnostic : graph.error().diagnostics) {
      SCOPED_TRACE(concat(diagnostic.file, ":", diagnostic.line, ":", diagnostic.column));
      EXPECT_EQ(diagnostic.file, path.filename().string());
      if (diagnostic.line == 0) {  // about an option, which has no location in the text
        EXPECT_EQ(diagnostic.message.rfind("--", 0), 0U) << diagnostic.message;
        continue;
      }
      ASSERT_GE(diagnostic.line, 1);
      ASSERT_LE(static_cast<size_t>(diagnostic.line), lines.size());
      const std::vector<std::string> line = characters(lines[static_cast<size_t>(diagnostic.line) - 1]);
      const std::vector<std::string> excerpt = characters(diagnostic.excerpt);
      ASSERT_GE(diagnostic.column, 1);
      ASSERT_LE(static_cast<size_t>(diagnostic.column), line.size() + 1);
      ASSERT_LE(static_cast<size_t>(diagnostic.caret), excerpt.size());
      if (static_cast<size_t>(diagnostic.caret) == excerpt.size()) continue;  // at the line's end
      std::string pointed = line[static_cast<size_t>(diagnostic.column) - 1];
      if (static_cast<unsigned char>(pointed[0]) < 0x20) pointed = " ";
      EXPECT_EQ(excerpt[static_cast<size_t>(diagnostic.caret)], pointed);
    }
  }
}

TEST(ErrorPrograms, NoFileIsLeftOver) {
  for (const fs::directory_entry& entry : fs::directory_iterator(concat(MILLRACE_SOURCE_DIR, "/tests/error"))) {
    if (entry.path().extension() != ".txt") continue;
    fs::path program = entry.path();
    EXPECT_TRUE(fs::exists(program.replace_extension(".py"))) << entry.path() << " has no program";
  }
}

}  // namespace
}  // namespace millrace
