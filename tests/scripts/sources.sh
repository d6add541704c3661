# To be sourced in the repository root: lists our files, and finds the clang tools in the version we use.
# shellcheck shell=bash

# Results of clang-format and clang-tidy differ between versions, so one version is fixed.
judging_version=14

# Prints our C++ files whose name matches one of the patterns, in the given folders.
our_files() {
  local patterns=$1 folder
  shift
  for folder in "$@"; do
    [[ -d $folder ]] && find "$folder" -type f -regextype posix-extended -regex "$patterns"
  done | sort
}

# Prints the command for a clang tool of that version. If only other versions are installed, exits with 77, which ctest
# reports as skipped.
judging_tool() {
  local name=$1 candidate
  for candidate in "$name-$judging_version" "$name"; do
    if "$candidate" --version 2>/dev/null | grep -q "version $judging_version\."; then
      echo "$candidate"
      return
    fi
  done
  echo "skipped: $name $judging_version is not installed (found: $("$name" --version 2>&1 | grep version || echo none))" >&2
  exit 77
}
