// What Millrace stores between runs: db, the measurements; cache, the compiled kernels.
#include <memory>

#include "base/text.h"
#include "tools/command_line.h"

namespace {

using millrace::CacheOptions;
using millrace::DatabaseOptions;
using millrace::ExploreOptions;
using millrace::Format;
using millrace::Result;

using Options = std::shared_ptr<DatabaseOptions>;

// A command of `db`: a function of the API.
CLI::App& add_action(CommandLine& line, CLI::App& db, const char* name, const char* help, const Options& options,
                     Result<std::string> (*function)(const DatabaseOptions&)) {
  CLI::App& command = line.add(db, name, help);
  command.add_option("--db", options->path, "the database (default: measurements.db in the user's data folder)")
      ->type_name("FILE");
  line.set_action(command, "reading the rows", [&line, options, function] {
    options->notice = line.notice;
    return function(*options);
  });
  return command;
}

void add_show(CommandLine& line, CLI::App& db) {
  CLI::App& command = line.add(db, "show", "show what was measured for one program on this machine, by partition");
  const auto options = std::make_shared<ExploreOptions>();
  add_search(command, *options);
  add_json(command, options->format);
  command.footer(
      "Examples:\n"
      "  millrace db show models/bert_encoder.py --size tiny");
  line.set_action(command, "reading the rows", [&line, options] {
    line.listen(*options);
    return millrace::show_measurements(*options);
  });
}

void add_prune(CommandLine& line, CLI::App& db, const Options& options) {
  CLI::App& command =
      add_action(line, db, "prune", "delete rows that are no longer needed", options, millrace::prune_database);
  command.add_option("--before", options->before, "rows measured before this day")->type_name("YYYY-MM-DD");
  command
      .add_option("--other-than", options->other_than,
                  "rows of every device whose text, as db list prints it, does not contain this")
      ->type_name("TEXT");
  command.add_flag("--refused", options->refused, "rows of candidates that were wrong, crashed or failed");
  command.add_flag("--dry-run", options->dry_run, "count the rows, but delete nothing");
  add_json(command, options->format);
  command.footer(
      "Deletes the rows that all given conditions select. Without a condition it deletes nothing.\n\n"
      "Examples:\n"
      "  millrace db prune --before 2026-01-01 --dry-run\n"
      "  millrace db prune --other-than H200\n"
      "  millrace db prune --refused");
}

void add_db(CommandLine& line) {
  CLI::App& db = *line.app.add_subcommand("db", "list, show, prune, merge, export or import measurements");
  db.require_subcommand(0, 1);
  const auto options = std::make_shared<DatabaseOptions>();
  CLI::App& list = add_action(line, db, "list", "list devices and programs, with their numbers of rows", options,
                              millrace::list_database);
  add_json(list, options->format);
  list.footer(
      "Examples:\n"
      "  millrace db list\n"
      "  millrace db list --db shard3.db --json");
  add_show(line, db);
  add_prune(line, db, options);
  CLI::App& merge =
      add_action(line, db, "merge", "add other databases' rows; later rows win", options, millrace::merge_database);
  merge.add_option("OTHER", options->others, "other databases of measurements")->required();
  add_json(merge, options->format);
  merge.footer(
      "Examples:\n"
      "  millrace db merge shard1.db shard2.db shard3.db\n"
      "  millrace db merge shard1.db --db all.db");
  CLI::App& write = add_action(line, db, "export", "write all rows as JSON lines, also from a damaged file", options,
                               millrace::export_database);
  write.add_option("FILE", options->file, "output file (default: standard output)");
  write.footer(
      "Examples:\n"
      "  millrace db export rows.jsonl\n"
      "  millrace db export | gzip > rows.jsonl.gz");
  CLI::App& read = add_action(line, db, "import", "add exported rows, all or none", options, millrace::import_database);
  read.add_option("FILE", options->file, "JSON lines, as export writes them")->required();
  add_json(read, options->format);
  read.footer(
      "Examples:\n"
      "  millrace db import rows.jsonl\n"
      "  millrace db import rows.jsonl --db new.db");
  db.footer(
      "Examples:\n"
      "  millrace db list\n"
      "  millrace db show models/bert_encoder.py --size tiny\n"
      "  millrace db export rows.jsonl\n"
      "  millrace db import rows.jsonl --db new.db\n"
      "  millrace db merge new.db\n"
      "  millrace db prune --refused --dry-run");
}

void add_cache(CommandLine& line) {
  CLI::App& cache = *line.app.add_subcommand("cache", "show or delete compiled kernels");
  cache.require_subcommand(0, 1);
  const auto options = std::make_shared<CacheOptions>();
  const auto add = [&](const char* name, const char* help, Result<std::string> (*function)(const CacheOptions&)) {
    CLI::App& command = line.add(cache, name, help);
    add_json(command, options->format);
    command.footer(millrace::concat("Examples:\n  millrace cache ", name));
    line.set_action(command, "looking", [options, function] { return function(*options); });
  };
  add("show", "show where the cache is, and its size", millrace::show_cache);
  add("clean", "delete the cache; plans compile their kernels again when they are next loaded", millrace::clean_cache);
  cache.footer(
      "Examples:\n"
      "  millrace cache show\n"
      "  millrace cache clean");
}

}  // namespace

void add_stored_commands(CommandLine& line) {
  add_db(line);
  add_cache(line);
}
