#include "base/quote.h"

#include <gtest/gtest.h>

#include "base/process.h"
#include "millrace/result.h"

namespace millrace {
namespace {

TEST(Quote, ControlCharactersAreEscaped) {
  EXPECT_EQ(printable("a\x1b[31mb\nc\td"), "a\\x1b[31mb\nc\td");
  EXPECT_EQ(printable_line("a\x1b\n\t"), "a\\x1b\\n\\t");
  EXPECT_EQ(printable("\x7f\xc2\x9b"), "\\x7f\\x9b");
  EXPECT_EQ(printable("µ · →"), "µ · →");
  EXPECT_EQ(printable("\xc2"), "\xc2");
}

TEST(Quote, ControlCharactersBecomeOneCharacter) {
  EXPECT_EQ(without_controls("a\x1b[31mb\nc\td", '?'), "a?[31mb?c?d");
  EXPECT_EQ(without_controls("\x7f\xc2\x9b|\xc2\x80", ' '), "  | ");
  EXPECT_EQ(without_controls("µ · →\xc2", '?'), "µ · →\xc2");
}

TEST(Quote, WordsForTheShell) {
  EXPECT_EQ(shell_word("models/bert_encoder.py"), "models/bert_encoder.py");
  EXPECT_EQ(shell_word("my plan"), "'my plan'");
  EXPECT_EQ(shell_word("it's; rm -rf $HOME"), "'it'\\''s; rm -rf $HOME'");
  EXPECT_EQ(shell_word("a\x1b'b"), "$'a\\x1b\\'b'");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("-x.py"), "./-x.py");
}

// The word as bash reads it.
std::string read_back(const std::string& word) {
  const Result<Finished> finished = run_process({"bash", "-c", "printf %s " + word}, {});
  return finished ? finished->output : to_string(finished.error());
}

TEST(Quote, TheShellReadsAnyNameAsOneWord) {
  for (const std::string name : {"plain", "my plan", "it's", "a\\b", "$(id) `id` ;&|", "\x1b", "\x1b\\'; echo pwned #",
                                 "line\nend\\n", "\t\\\\x41", "\xc2\x9b 'x'", "µ", "\x7f\\"})
    EXPECT_EQ(read_back(shell_word(name)), name) << printable_line(name);
}

TEST(Quote, ALineEndInANameBeginsNoMessage) {
  const Error error = Error::make(ErrorKind::bad_input, "cannot open 'a\nerror: b'", "see 'c\nd'");
  EXPECT_EQ(to_string(error), "error: cannot open 'a\n    error: b'\n  see 'c\n    d'\n");
}

TEST(Quote, ErrorsPrintNoControlCharacters) {
  Error error = Error::make(ErrorKind::bad_input, "unknown name '\x1b[2J'", "see 'a\x07.py'");
  error.diagnostics.front().file = "evil\x1b.py";
  EXPECT_EQ(to_string(error), "evil\\x1b.py: error: unknown name '\\x1b[2J'\n  see 'a\\x07.py'\n");
}

}  // namespace
}  // namespace millrace
