# To be sourced, in the repository root: which files are ours, and which version of a clang tool judges them.
# shellcheck shell=bash

# clang-format and clang-tidy change their minds between versions; this one's word counts.
judging_version=14

# Prints our C++ files whose name matches one of the patterns, in the given folders.
our_files() {
  local patterns=$1 folder
  shift
  for folder in "$@"; do
    [[ -d $folder ]] && find "$folder" -type f -regextype posix-extended -regex "$patterns"
  done | sort
}

# Prints the command for a clang tool of the judging version. Exits 77, which ctest shows as skipped, when the machine
# has another version only.
judging_tool() {
  local name=$1 candidate
  for candidate in "$name-$judging_version" "$name"; do
    if "$candidate" --version 2>/dev/null | grep -q "version $judging_version\."; then
      echo "$candidate"
      return
    fi
  done
  echo "skipped: $name $judging_version is not here (found: $("$name" --version 2>&1 | grep version || echo none))" >&2
  exit 77
}
