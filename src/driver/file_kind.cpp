#include "driver/file_kind.h"

#include "base/file.h"
#include "base/quote.h"
#include "base/text.h"
#include "driver/plan_folder.h"
#include "frontend/frontend.h"

namespace millrace {
namespace {

constexpr int64_t kPrefixBytes = int64_t{1} << 28;

const char* name_of(FileKind kind) {
  switch (kind) {
    case FileKind::program: return "a program";
    case FileKind::plan: return "a plan";
    case FileKind::measurements: return "measurements";
  }
  return "";
}

std::string remedy_for(const std::string& path, FileKind kind) {
  const std::string word = shell_word(path);
  switch (kind) {
    case FileKind::program: return concat("make a plan of it: millrace optimize ", word);
    case FileKind::plan: return concat("give the program, or use the plan: millrace run, bench or report ", word);
    case FileKind::measurements: return concat("give the program, or select from them: millrace select ", word);
  }
  return "";
}

Error wrong_kind(const std::string& path, FileKind found, FileKind wanted) {
  return Error::make(ErrorKind::bad_input,
                     concat("'", path, "' is ", name_of(found), ", and ", name_of(wanted),
                            wanted == FileKind::measurements ? " are" : " is", " needed here"),
                     remedy_for(path, found));
}

}  // namespace

FileKind kind_of(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '{') return FileKind::program;
  return text.find("\"choice_points\"") != std::string_view::npos ? FileKind::measurements : FileKind::plan;
}

Result<Done> check_kind(const std::string& path, std::string_view text, FileKind wanted) {
  const FileKind found = kind_of(text);
  if (found == wanted) return Done{};
  // A file of no known kind goes to the reader of the wanted kind, which says where it is wrong.
  const bool sure = found == FileKind::program ? path.ends_with(".py") : true;
  return sure ? Result<Done>(wrong_kind(path, found, wanted)) : Done{};
}

Result<std::string> read_program(const std::string& path) {
  const bool json = path.ends_with(".json");
  if (is_plan(path) && !json) return wrong_kind(path, FileKind::plan, FileKind::program);
  Result<std::string> text = read_file_or_pipe(path, json ? kPrefixBytes : kProgramBytes);
  if (!text) return text;
  if (Result<Done> right = check_kind(path, *text, FileKind::program); !right) return right.error();
  return text;
}

}  // namespace millrace
