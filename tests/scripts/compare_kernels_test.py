"""compare_kernels.py sees machine code that differs, and no names."""

import contextlib
import io
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import compare_kernels  # noqa: E402

CPU_PRELUDE = """// Functions.
namespace mr {
template <class T> inline T twice(T x) { return x + x; }
__attribute__((noinline)) float half(float x) { return x * 0.5f; }
}
"""
CPU_KERNEL = 'extern "C" void MILLRACE_KERNEL(float* x) { x[0] = mr::half(mr::twice(x[1])); }'
CUDA_PRELUDE = """namespace mr {
__device__ __noinline__ float half(float x) { return x * 0.5f; }
}
"""
CUDA_KERNEL = """extern "C" __global__ void MILLRACE_KERNEL(float* x) {
  __shared__ float shared[32];
  shared[threadIdx.x] = mr::half(x[threadIdx.x]);
  __syncthreads();
  x[threadIdx.x] = shared[31 - threadIdx.x];
}
"""
PTX = """
// Compiler's version
.version 9.0
.visible .entry kernel(
  .param .b64 kernel_param_0
)
{
  .reg .b32 %r<3>;
  .shared .align 4 .b8 _ZZ6kernelE6shared[128];
  .loc 1 3 5
  ld.param.b64 %rd1, [kernel_param_0];
  { .reg .pred done; WAIT: @done bra LEAVE; LEAVE: }
LATER:
  st.shared.b32 [_ZZ6kernelE6shared+4], %r1;
}
"""


def dump(folder, cpu_prelude=CPU_PRELUDE, cuda_prelude=CUDA_PRELUDE, kernels=None, launch="1 0"):
    """A folder as dump_kernels writes it, read."""
    folder = pathlib.Path(folder)
    (folder / "cpu_prelude").write_text(cpu_prelude, encoding="utf-8")
    (folder / "cuda_prelude").write_text(cuda_prelude, encoding="utf-8")
    (folder / "compiler").write_text("g++\nsome version\n-O2\n-fPIC\n-shared\n", encoding="utf-8")
    for name, source in (kernels or {"cpu/p0_c0": CPU_KERNEL}).items():
        path = folder / "kernels" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
        with open(path.parent / "launches", "a", encoding="utf-8") as file:
            file.write(f"{path.name} {launch}\n")
    return compare_kernels.Dump(folder, ["--std=c++17"])


def compare(old, new):
    """Runs it on dumps with these arguments: the exit code, and what was printed."""
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
            code = compare_kernels.compare(dump(first, **old), dump(second, **new), 1, None)
        return code, printed.getvalue()


class Sources(unittest.TestCase):
    def test_comments_and_white_space(self):
        normal = compare_kernels.without_comments
        self.assertEqual(normal("int a;  // one\nint /* two */ b;\n"), normal("int a;\n\n  int b;"))
        self.assertNotEqual(normal("int a;"), normal("int b;"))
        self.assertNotEqual(normal('f("// a")'), normal('f("// b")'))
        self.assertNotEqual(normal("#define A\nint b;"), normal("#define A int b;"))
        self.assertEqual(normal("#define A \\\n  1\nB"), normal("#define A 1\nB"))


class Ptx(unittest.TestCase):
    def test_names(self):
        normal = compare_kernels.normal_ptx(PTX)
        for old, new in (
            ("kernel", "other"),
            ("6shared", "5tiles"),
            ("done", "ready"),
            ("WAIT", "AGAIN"),
            ("LATER", "SOON"),
            ("version\n", "other version\n"),
            (".loc 1 3", ".loc 1 4"),
        ):
            self.assertEqual(compare_kernels.normal_ptx(PTX.replace(old, new)), normal, old)

    def test_instructions(self):
        normal = compare_kernels.normal_ptx(PTX)
        for change in ("+4 +8", "%r1 %r2", "st.shared.b32 st.shared.b64", "[128] [64]", "9.0 8.0"):
            old, new = change.split()
            self.assertNotEqual(compare_kernels.normal_ptx(PTX.replace(old, new)), normal, change)

    def test_names_that_are_swapped(self):
        text = ".global .align 4 .b32 a;\n.global .align 4 .b32 b;\nld.global.b32 %r1, [a];\nst.global.b32 [b], 0;\n"
        self.assertNotEqual(compare_kernels.normal_ptx(text), compare_kernels.normal_ptx(text.replace("[a]", "[b]")))

    def test_globals_that_no_instruction_uses(self):
        text = ".global .align 4 .u32 used = 3;\nld.global.u32 %r1, [used];\n"
        normal = compare_kernels.normal_ptx(text)
        self.assertEqual(compare_kernels.normal_ptx(".global .align 4 .u32 unused = 4;\n" + text), normal)
        self.assertEqual(compare_kernels.normal_ptx(".weak .global .align 1 .u8 unused;\n" + text), normal)
        self.assertNotEqual(compare_kernels.normal_ptx(text.replace("3", "4")), normal)
        self.assertNotEqual(compare_kernels.normal_ptx(text.replace("[used]", "[used+4]")), normal)


@unittest.skipUnless(shutil.which("g++"), "no g++")
class CpuKernels(unittest.TestCase):
    def test_the_same_text(self):
        code, text = compare({}, {"cpu_prelude": CPU_PRELUDE.replace("// Functions", "// Other words")})
        self.assertEqual(code, 0, text)
        self.assertIn("to compile: 0", text)

    def test_other_names(self):
        new = {
            "cpu_prelude": CPU_PRELUDE.replace("half", "multiplied_by_half").replace("twice", "doubled"),
            "kernels": {"cpu/p0_c0": CPU_KERNEL.replace("half", "multiplied_by_half").replace("twice", "doubled")},
        }
        code, text = compare({}, new)
        self.assertEqual(code, 0, text)
        self.assertIn("to compile: 1", text)

    def test_other_arithmetic(self):
        code, text = compare({}, {"cpu_prelude": CPU_PRELUDE.replace("x + x", "x * x")})
        self.assertEqual(code, 1, text)
        self.assertIn("cpu/p0_c0: machine code differs", text)

    def test_another_constant(self):
        code, text = compare({}, {"cpu_prelude": CPU_PRELUDE.replace("0.5f", "0.25f")})
        self.assertEqual(code, 1, text)

    def test_another_function_of_a_library(self):
        kernel = 'extern "C" float sinf(float);\nextern "C" void MILLRACE_KERNEL(float* x) { x[0] = sinf(x[1]); }'
        code, text = compare({"kernels": {"cpu/k": kernel}}, {"kernels": {"cpu/k": kernel.replace("sinf", "cosf")}})
        self.assertEqual(code, 1, text)

    def test_only_the_kernel_that_differs(self):
        kernels = {f"cpu/p{k}": CPU_KERNEL.replace("x[1]", f"x[{k}]") for k in range(3)}
        changed = {**kernels, "cpu/p1": kernels["cpu/p1"].replace("x[0]", "x[9]")}
        code, text = compare({"kernels": kernels}, {"kernels": changed})
        self.assertEqual(code, 1, text)
        self.assertIn("same: 2\ndiffering: 1\n  cpu/p1: machine code differs\n", text)

    def test_what_does_not_compile(self):
        code, text = compare({}, {"kernels": {"cpu/p0_c0": CPU_KERNEL.replace("half", "third")}})
        self.assertEqual(code, 1, text)
        self.assertIn("third", text)

    def test_missing_kernels(self):
        code, text = compare({}, {"kernels": {"cpu/p0_c0": CPU_KERNEL, "cpu/p1_c0": CPU_KERNEL}})
        self.assertEqual(code, 1, text)
        self.assertIn("missing: 1\n  cpu/p1_c0: only in NEW\n", text)

    def test_another_launch(self):
        code, text = compare({}, {"launch": "2 0"})
        self.assertEqual(code, 1, text)
        self.assertIn("launched with 2 0, was 1 0", text)


@unittest.skipUnless(compare_kernels.nvrtc_library(), "no NVRTC")
class CudaKernels(unittest.TestCase):
    def compare(self, prelude, kernel):
        old = {"kernels": {"sm_90/p0_c0": CUDA_KERNEL}}
        return compare(old, {"cuda_prelude": prelude, "kernels": {"sm_90/p0_c0": kernel}})

    def test_other_names(self):
        kernel = CUDA_KERNEL.replace("half", "multiplied_by_half").replace("shared[", "tile[")
        code, text = self.compare(CUDA_PRELUDE.replace("half", "multiplied_by_half"), kernel)
        self.assertEqual(code, 0, text)
        self.assertIn("to compile: 1", text)

    def test_other_arithmetic(self):
        code, text = self.compare(CUDA_PRELUDE.replace("x * 0.5f", "x + 0.5f"), CUDA_KERNEL)
        self.assertEqual(code, 1, text)
        self.assertIn("sm_90/p0_c0: machine code differs", text)


if __name__ == "__main__":
    unittest.main()
