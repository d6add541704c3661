#!/usr/bin/env bash
# check_packages.sh [BUILD] wheel|deb ...: builds packages, installs them where nothing else is, tries them, removes them.
# wheel: takes minutes the first time, and needs pip. deb: packs BUILD, by default build/release, which must be built; it
# needs dpkg, and leaves the packages in build/packages.
set -euo pipefail
root=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../..
build=$root/build/release
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export MILLRACE_CACHE_DIR=$folder/cache MILLRACE_DATA_DIR=$folder/data

fail() { echo "check_packages.sh: $*" >&2 && exit 1; }
logged() { "$@" >"$folder/log" 2>&1 || { cat "$folder/log" && fail "failed: $*"; }; }

# Runs a command as on a machine that has no compiler. Its folder comes first in PATH, as in an active environment.
without_compiler() { env -u CXX -u MILLRACE_CXX -u PYTHONPATH -u MILLRACE_LIBRARY PATH="$(dirname "$1")" "$@"; }

# doctor must answer, and say how to get the compiler.
check_doctor() {
  without_compiler "$@" doctor >"$folder/doctor"
  grep -q '^compiler  *missing: .*apt-get install g++' "$folder/doctor" ||
    { cat "$folder/doctor" && fail "doctor does not say that the compiler is missing, or how to get it: $*"; }
}

# --- wheel ---

pip_wheel() {
  logged python3 -m pip wheel "$root" --no-deps --verbose --wheel-dir "$1"
  cp "$folder/log" "$1/log"
}

check_wheel() {
  pip_wheel "$folder/first"
  pip_wheel "$folder/second"
  if grep -qE '\] Building CXX' "$folder/second/log"; then fail "a second pip wheel compiled again what had not changed"; fi
  logged python3 "$root/tests/scripts/check_wheel.py" "$folder"/second/*.whl && cat "$folder/log"
  logged python3 -m venv "$folder/venv"
  SECONDS=0
  logged "$folder/venv/bin/pip" install "$folder"/second/*.whl
  echo "pip install took $SECONDS s"
  check_doctor "$folder/venv/bin/millrace"
  check_doctor "$folder/venv/bin/python" -m millrace
  cat "$folder/doctor"
  # Programs and the library work without a compiler until a kernel for the CPU is generated.
  without_compiler "$folder/venv/bin/millrace" analyze "$root/models/mha.py" >/dev/null
  without_compiler "$folder/venv/bin/python" -c 'import millrace; millrace.analyze' || fail "import millrace failed"
  (cd "$folder" && "$folder/venv/bin/millrace" optimize "$root/models/mha.py" --size tiny --budget 5s --out plan)
  logged "$folder/venv/bin/pip" uninstall --yes millrace
  [[ -z $(find "$folder/venv" -iname '*millrace*') ]] || fail "pip uninstall leaves files: $(find "$folder/venv" -iname '*millrace*')"
}

# --- deb ---

# A root folder of its own for dpkg, so that nobody has to be root. Dependencies are this machine's; its ldconfig must not
# see the folder.
in_root() {
  PATH=$folder/programs:$PATH logged dpkg --root="$folder/root" --force-not-root --force-depends \
    --force-script-chrootless --log=/dev/null "$@"
}

check_deb() {
  local package packages=$root/build/packages
  rm -rf "$packages"
  logged cpack --config "$build/CPackConfig.cmake" -B "$packages"
  rm -rf "$packages/_CPack_Packages"
  local runtime=("$packages"/millrace_*.deb) development=("$packages"/libmillrace-dev_*.deb)
  for package in libc6 libgomp1 libstdc++6 libsqlite3-0; do
    dpkg-deb -f "${runtime[0]}" Depends | grep -qF "$package" || fail "the package does not depend on $package"
  done
  mkdir -p "$folder/programs" "$folder"/root/var/lib/dpkg/{info,updates,triggers}
  touch "$folder"/root/var/lib/dpkg/{status,available}
  ln -s /bin/true "$folder/programs/ldconfig"
  in_root -i "${runtime[0]}" "${development[0]}"
  check_doctor "$folder/root/usr/bin/millrace"
  (cd "$folder" && "$folder/root/usr/bin/millrace" optimize "$root/models/mha.py" --size tiny --budget 5s --out plan)
  in_root -P millrace libmillrace-dev
  [[ -z $(find "$folder/root" -not -path '*/var/lib/*' -not -type d) ]] || fail "dpkg leaves files in $folder/root"
  [[ -z $(find "$folder/root" -iname '*millrace*') ]] || fail "dpkg leaves $(find "$folder/root" -iname '*millrace*')"
  ls -l "$packages"
}

[[ ! -d ${1:-} ]] || { build=$1 && shift; }
[[ $# -gt 0 ]] || fail "say what to check: wheel, deb or both"
for package in "$@"; do
  case $package in
    wheel | deb)
      "check_$package"  # no `&&` after it: bash would go on in it after a command that fails
      echo "$package: fine"
      ;;
    *) fail "unknown package '$package' (packages: wheel, deb)" ;;
  esac
done
