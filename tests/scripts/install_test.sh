#!/usr/bin/env bash
# install_test.sh BUILD MAKE_PLAN: installs a build into a new folder, builds the example against it as an
# embedder would, runs it on a plan, and uninstalls it.
set -euo pipefail
build=$1
make_plan=$2
root=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../..
folder=$(mktemp -d)
# A list of what somebody installed from this build before survives the test.
manifest=$build/install_manifest.txt
[[ ! -f $manifest ]] || cp "$manifest" "$folder/manifest"
clean_up() {
  [[ ! -f $folder/manifest ]] || cp "$folder/manifest" "$manifest"
  rm -rf "$folder"
}
trap clean_up EXIT
export MILLRACE_CACHE_DIR=$folder/cache

logged() { "$@" >"$folder/log" 2>&1 || { cat "$folder/log" && exit 1; }; }
logged cmake --install "$build" --prefix "$folder/prefix"
logged cmake -S "$root/examples/run_plan" -B "$folder/example" -DCMAKE_PREFIX_PATH="$folder/prefix" \
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS="-Wall -Wextra -Wpedantic -Werror"
logged cmake --build "$folder/example"

grep -q '^\.TH MILLRACE 1' "$folder/prefix/share/man/man1/millrace.1"
bash -n "$folder/prefix/share/bash-completion/completions/millrace"
grep -q '^#compdef millrace' "$folder/prefix/share/zsh/site-functions/_millrace"
grep -q '^complete -c millrace' "$folder/prefix/share/fish/vendor_completions.d/millrace.fish"

"$make_plan" "$root/models/mha.py" "$folder/plan" tiny
# The plan contains its kernels, which this user's cache recorded: nothing is compiled and no compiler is needed.
PATH=/nonexistent "$folder/example/run_plan" "$folder/plan" 2
# The same numbers in every type: the means differ by rounding only.
means=()
for type in float64 float32 float16 bfloat16; do
  "$make_plan" "$root/models/mha.py" "$folder/$type" tiny "$type"
  means+=("$("$folder/example/run_plan" "$folder/$type" 1 | sed 's/.*mean of [^ ]* \([-0-9.]*\),.*/\1/')")
done
echo "means in float64, float32, float16, bfloat16: ${means[*]}"
awk -v a="${means[0]}" -v b="${means[1]}" -v c="${means[2]}" -v d="${means[3]}" '
  function far(x, tolerance) { return x - a > tolerance * a || a - x > tolerance * a }
  BEGIN { exit !(a > 0) || far(b, 1e-4) || far(c, 1e-2) || far(d, 1e-1) }' || { echo "error: the means differ" && exit 1; }
# Kernels that the cache did not record are never executed.
if MILLRACE_CACHE_DIR=$folder/empty PATH=/nonexistent "$folder/example/run_plan" "$folder/plan" 2>/dev/null; then
  echo "error: kernels were executed that this user's cache did not record"
  exit 1
fi
"$folder/prefix/bin/millrace" bench "$folder/plan" --seconds 0.05 >/dev/null
if "$folder/example/run_plan" "$folder/nowhere" 2>/dev/null; then
  echo "error: a plan that does not exist was run"
  exit 1
fi

# The installed program finds its worker and its GPU backend in the new prefix. The path of the build is not in it.
"$folder/prefix/bin/millrace" explore "$root/models/mha.py" --size tiny --budget 1s >/dev/null
# A file of somebody else stays, and so does its folder.
touch "$folder/prefix/libexec/millrace/other"
logged cmake -P "$build/uninstall.cmake"
left=$(cd "$folder/prefix" && find . -not -type d -o -name millrace | sort | tr '\n' ' ')
[[ $left == "./libexec/millrace ./libexec/millrace/other " ]] || { echo "error: uninstall leaves $left" && exit 1; }
if cmake -P "$build/uninstall.cmake" 2>/dev/null; then
  echo "error: uninstall succeeded with nothing installed"
  exit 1
fi
