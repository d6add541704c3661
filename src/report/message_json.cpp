#include "report/message_json.h"

namespace millrace {

nlohmann::ordered_json message_json(const Diagnostic& diagnostic) {
  nlohmann::ordered_json made = {{"message", diagnostic.message}, {"remedy", diagnostic.remedy}};
  if (!diagnostic.file.empty()) made["file"] = diagnostic.file;
  if (diagnostic.line > 0) {
    made["line"] = diagnostic.line;
    made["column"] = diagnostic.column;
  }
  return made;
}

}  // namespace millrace
