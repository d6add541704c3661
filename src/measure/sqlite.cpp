#include "measure/sqlite.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <utility>

#include "base/dynamic_function.h"
#include "base/quote.h"
#include "base/text.h"

namespace millrace {

// Declared as in sqlite3.h, which promises a stable ABI.
struct SqliteLibrary {
  int (*libversion_number)();
  int (*open_v2)(const char* path, void** connection, int flags, const char* vfs);
  int (*close_v2)(void* connection);
  int (*busy_timeout)(void* connection, int milliseconds);
  const char* (*errmsg)(void* connection);
  int (*errcode)(void* connection);
  int (*extended_result_codes)(void* connection, int on);
  int (*prepare_v2)(void* connection, const char* sql, int bytes, void** statement, const char** tail);
  int (*step)(void* statement);
  int (*reset)(void* statement);
  int (*finalize)(void* statement);
  int (*bind_text)(void* statement, int parameter, const char* text, int bytes, void (*destroy)(void*));
  int (*bind_int64)(void* statement, int parameter, int64_t value);
  int (*bind_double)(void* statement, int parameter, double value);
  int (*column_type)(void* statement, int column);
  int64_t (*column_int64)(void* statement, int column);
  double (*column_double)(void* statement, int column);
  const unsigned char* (*column_text)(void* statement, int column);
  int (*column_bytes)(void* statement, int column);
};

struct SqliteHandle {
  const SqliteLibrary* library = nullptr;
  void* connection = nullptr;
  std::string path;
  struct stat opened {};  // the file

  SqliteHandle(const SqliteLibrary* l, std::string p) : library(l), path(std::move(p)) {}
  SqliteHandle(const SqliteHandle&) = delete;
  SqliteHandle& operator=(const SqliteHandle&) = delete;
  ~SqliteHandle() { library->close_v2(connection); }
};

namespace {

constexpr const char* kLibrary = "libsqlite3.so.0";
constexpr int kOldestVersion = 3024000;  // the first with ON CONFLICT ... DO UPDATE

// Result codes, types and flags of sqlite3.h.
constexpr int kOk = 0;
constexpr int kBusy = 5;
constexpr int kLocked = 6;
constexpr int kReadOnly = 8;
constexpr int kIoError = 10;
constexpr int kCorrupt = 11;
constexpr int kFull = 13;
constexpr int kCannotOpen = 14;
constexpr int kNotADatabase = 26;
constexpr int kRow = 100;
constexpr int kDone = 101;
constexpr int kShortRead = kIoError | 2 << 8;
constexpr int kPrimaryCode = 0xFF;
constexpr int kInteger = 1;
constexpr int kReal = 2;
constexpr int kText = 3;
constexpr int kOpenReadOnly = 0x1;
constexpr int kOpenReadWrite = 0x2;
constexpr int kOpenUri = 0x40;
constexpr int kOpenNoMutex = 0x8000;

Error failure(const SqliteHandle& handle, int code) {
  const std::string& path = handle.path;
  const std::string said = handle.connection == nullptr ? "out of memory" : handle.library->errmsg(handle.connection);
  const auto failed = [&](const std::string& message, const std::string& remedy) {
    return Error::make(ErrorKind::failed, message, remedy);
  };
  const auto wrong = [&](const std::string& message, const std::string& remedy) {
    return Error::make(ErrorKind::bad_input, message, remedy);
  };
  switch (code & kPrimaryCode) {
    case kBusy:
    case kLocked:
      return failed(concat("another process has locked '", path, "'"),
                    "wait until it finishes, or stop it, then try again");
    case kReadOnly: return wrong(concat("'", path, "' is read-only"), "make it writable, or pass another with --db");
    case kCorrupt: return damaged_database(path, said);
    case kNotADatabase:
      return wrong(concat("'", path, "' is not a database, or its header is damaged"),
                   "pass the right file with --db, or move this one elsewhere: Millrace then creates a new one");
    case kFull:
      return failed(concat("no space left to write '", path, "'; rows written before are kept"),
                    "free space on its disk and try again");
    case kCannotOpen:
      return wrong(concat("cannot open '", path, "': ", said), "check the permissions of the file and its folder");
    case kIoError:
      if (code == kShortRead) return damaged_database(path, "it is truncated");
      return failed(concat("cannot read or write '", path, "': ", said), "check its disk and its permissions");
    default: return failed(concat("'", path, "': ", said), {});
  }
}

// Flags can be passed with a path only as a URI.
std::string immutable_address(const std::string& path) {
  std::string address = "file:";
  for (const char c : path) address += c == '?' ? "%3f" : c == '#' ? "%23" : c == '%' ? "%25" : std::string(1, c);
  return address + "?immutable=1";
}

bool find_all(void* library, SqliteLibrary& all) {
  return find_function(library, "sqlite3_libversion_number", all.libversion_number) &&
         find_function(library, "sqlite3_open_v2", all.open_v2) &&
         find_function(library, "sqlite3_close_v2", all.close_v2) &&
         find_function(library, "sqlite3_busy_timeout", all.busy_timeout) &&
         find_function(library, "sqlite3_errmsg", all.errmsg) &&
         find_function(library, "sqlite3_errcode", all.errcode) &&
         find_function(library, "sqlite3_extended_result_codes", all.extended_result_codes) &&
         find_function(library, "sqlite3_prepare_v2", all.prepare_v2) &&
         find_function(library, "sqlite3_step", all.step) && find_function(library, "sqlite3_reset", all.reset) &&
         find_function(library, "sqlite3_finalize", all.finalize) &&
         find_function(library, "sqlite3_bind_text", all.bind_text) &&
         find_function(library, "sqlite3_bind_int64", all.bind_int64) &&
         find_function(library, "sqlite3_bind_double", all.bind_double) &&
         find_function(library, "sqlite3_column_type", all.column_type) &&
         find_function(library, "sqlite3_column_int64", all.column_int64) &&
         find_function(library, "sqlite3_column_double", all.column_double) &&
         find_function(library, "sqlite3_column_text", all.column_text) &&
         find_function(library, "sqlite3_column_bytes", all.column_bytes);
}

}  // namespace

Error displaced_database(const std::string& path) {
  return Error::make(ErrorKind::failed, concat("the database '", path, "' was removed or replaced while it was in use"),
                     "its rows are lost, unless you have a copy of it; the same command begins again");
}

Error damaged_database(const std::string& path, const std::string& how) {
  return Error::make(ErrorKind::failed, concat("the database '", path, "' is damaged: ", how),
                     concat("save the rows that can be read: millrace db export rows.jsonl --db ", shell_word(path),
                            "; then move the file elsewhere (Millrace creates a new one) and import rows.jsonl"));
}

Result<const SqliteLibrary*> load_sqlite(const char* name) {
  const auto unavailable = [&](const std::string& why) {
    return Error::make(ErrorKind::unavailable, concat("the measurement database needs SQLite, but ", why),
                       "install it: apt-get install libsqlite3-0");
  };
  void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();  // NOLINT(concurrency-mt-unsafe): glibc's is per thread
    return unavailable(concat("it cannot be loaded: ", why == nullptr ? name : why));
  }
  auto functions = std::make_unique<SqliteLibrary>();
  if (!find_all(library, *functions)) return unavailable(concat(name, " lacks some of its functions"));
  if (functions->libversion_number() < kOldestVersion) return unavailable(concat(name, " is older than 3.24"));
  return functions.release();  // for the lifetime of the process, like the library itself
}

namespace {

const Result<const SqliteLibrary*>& loaded_sqlite() {
  static const Result<const SqliteLibrary*> kLoaded = load_sqlite(kLibrary);
  return kLoaded;
}

}  // namespace

Result<std::string> sqlite_version() {
  const Result<const SqliteLibrary*>& library = loaded_sqlite();
  if (!library) return library.error();
  const int version = (*library)->libversion_number();
  return concat(version / 1000000, ".", version / 1000 % 1000, ".", version % 1000);
}

SqliteStatement::SqliteStatement(SqliteStatement&& other) noexcept
    : handle_(other.handle_), statement_(std::exchange(other.statement_, nullptr)), bind_code_(other.bind_code_) {}

SqliteStatement::~SqliteStatement() { handle_->library->finalize(statement_); }

void SqliteStatement::bound(int code) {
  if (code != kOk) bind_code_ = code;
}

void SqliteStatement::bind_text(int parameter, std::string_view text) {
  // SQLITE_TRANSIENT: SQLite copies the text.
  const auto copied = reinterpret_cast<void (*)(void*)>(intptr_t{-1});  // NOLINT(performance-no-int-to-ptr)
  const char* const begin = text.data() == nullptr ? "" : text.data();  // null would bind NULL
  bound(handle_->library->bind_text(statement_, parameter, begin, static_cast<int>(text.size()), copied));
}

void SqliteStatement::bind_integer(int parameter, int64_t value) {
  bound(handle_->library->bind_int64(statement_, parameter, value));
}

void SqliteStatement::bind_real(int parameter, double value) {
  bound(handle_->library->bind_double(statement_, parameter, value));
}

Result<bool> SqliteStatement::step() {
  const int code = bind_code_ != kOk ? bind_code_ : handle_->library->step(statement_);
  if (code == kRow) return true;
  if (code == kDone) return false;
  return failure(*handle_, code);
}

void SqliteStatement::reset() {
  handle_->library->reset(statement_);  // returns the last step's error again
  bind_code_ = kOk;
}

std::optional<int64_t> SqliteStatement::integer(int column) const {
  if (handle_->library->column_type(statement_, column) != kInteger) return std::nullopt;
  return handle_->library->column_int64(statement_, column);
}

std::optional<double> SqliteStatement::real(int column) const {
  if (handle_->library->column_type(statement_, column) != kReal) return std::nullopt;
  return handle_->library->column_double(statement_, column);
}

std::optional<std::string> SqliteStatement::text(int column) const {
  if (handle_->library->column_type(statement_, column) != kText) return std::nullopt;
  const unsigned char* const begin = handle_->library->column_text(statement_, column);
  if (begin == nullptr) return std::nullopt;
  return std::string(reinterpret_cast<const char*>(begin),
                     static_cast<size_t>(handle_->library->column_bytes(statement_, column)));
}

SqliteConnection::SqliteConnection(std::unique_ptr<SqliteHandle> handle) : handle_(std::move(handle)) {}
SqliteConnection::SqliteConnection(SqliteConnection&&) noexcept = default;
SqliteConnection& SqliteConnection::operator=(SqliteConnection&&) noexcept = default;
SqliteConnection::~SqliteConnection() = default;

Result<SqliteConnection> SqliteConnection::open(const std::string& path, SqliteMode mode, int busy_milliseconds) {
  const Result<const SqliteLibrary*>& loaded = loaded_sqlite();
  if (!loaded) return loaded.error();
  const SqliteLibrary* const library = *loaded;
  const bool immutable = mode == SqliteMode::read_immutable;
  const int flags =
      kOpenNoMutex | (mode == SqliteMode::write ? kOpenReadWrite : kOpenReadOnly) | (immutable ? kOpenUri : 0);
  auto handle = std::make_unique<SqliteHandle>(library, path);
  const std::string address = immutable ? immutable_address(path) : path;
  const int code = library->open_v2(address.c_str(), &handle->connection, flags, nullptr);
  if (code != kOk) return failure(*handle, code);
  if (stat(path.c_str(), &handle->opened) != 0) return failure(*handle, kCannotOpen);
  library->extended_result_codes(handle->connection, 1);
  library->busy_timeout(handle->connection, busy_milliseconds);
  return SqliteConnection(std::move(handle));
}

Result<SqliteStatement> SqliteConnection::prepare(std::string_view sql) const {
  void* statement = nullptr;
  const int code =
      handle_->library->prepare_v2(handle_->connection, sql.data(), static_cast<int>(sql.size()), &statement, nullptr);
  if (code != kOk) return failure(*handle_, code);
  return SqliteStatement(handle_.get(), statement);
}

Result<Done> SqliteConnection::run(std::string_view sql) const {
  Result<SqliteStatement> statement = prepare(sql);
  if (!statement) return statement.error();
  Result<bool> stepped = statement->step();
  if (!stepped) return stepped.error();
  return Done{};
}

Result<int64_t> SqliteConnection::integer(std::string_view sql) const {
  Result<SqliteStatement> statement = prepare(sql);
  if (!statement) return statement.error();
  const Result<bool> row = statement->step();
  if (!row) return row.error();
  return *row ? statement->integer(0).value_or(0) : 0;
}

Result<std::string> SqliteConnection::text(std::string_view sql) const {
  Result<SqliteStatement> statement = prepare(sql);
  if (!statement) return statement.error();
  const Result<bool> row = statement->step();
  if (!row) return row.error();
  return *row ? statement->text(0).value_or("") : "";
}

const std::string& SqliteConnection::path() const { return handle_->path; }

bool SqliteConnection::is_in_place() const {
  struct stat now {};
  return stat(path().c_str(), &now) == 0 && now.st_dev == handle_->opened.st_dev &&
         now.st_ino == handle_->opened.st_ino;
}

bool SqliteConnection::was_busy() const {
  return (handle_->library->errcode(handle_->connection) & kPrimaryCode) == kBusy;
}

}  // namespace millrace
