"""The parts of the build that pyproject.toml cannot express: an object file for each instruction set, and OpenMP flags."""

import hashlib
import os
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.modified import newer_group

CORE = Path("src/posenc/_core")
KERNEL = CORE / "c"
# {instruction set: (flags for GCC and clang, flags for MSVC)}; dispatch.c tests whether the processor has the
# same features
X86_FLAGS = {
    "avx2": (["-mavx2", "-mfma", "-mf16c"], ["/arch:AVX2"]),
    "avx512": (["-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma", "-mf16c"], ["/arch:AVX512"]),
}
# no unwind tables: they take 20 kB, and only native debuggers and profilers read them
GCC_FLAGS = ["-O3", "-std=gnu11", "-fvisibility=hidden", "-fno-asynchronous-unwind-tables"]
# They follow the user's CFLAGS; -fno-fast-math does not undo options such as -ffinite-math-only that were
# given one by one
GCC_ARITHMETIC = ["-fno-fast-math", "-fno-unsafe-math-optimizations", "-fno-associative-math", "-fno-reciprocal-math",
                  "-fno-finite-math-only", "-fsigned-zeros", "-ffp-contract=off"]
# unroll fewer loops: the default, 200, makes the code larger, but not faster; clang has no such parameter
GCC_LOOPS = ["--param", "max-completely-peeled-insns=120", "-fno-split-loops", "-fno-unswitch-loops"]
# small code, for the calls and for the baseline; a wheel compresses instructions better in their first order
GCC_SMALL = ["-Os", "-fno-schedule-insns2", "-fno-plt"]
MSVC_FLAGS = ["/O2", "/std:c11", "/fp:precise"]
GCC_LINK = ["-pthread", "-O2"]
# Python's own CFLAGS include -g, which takes a third of the build time; CFLAGS that the user sets are kept, and
# the symbols with them
if "CFLAGS" not in os.environ:
    GCC_FLAGS.append("-g0")
    GCC_LINK += ["-s"] if sys.platform == "linux" else []
GCC_WARNINGS, MSVC_WARNINGS = ["-Wall", "-Wextra", "-Wconversion"], ["/W3"]     # not for the C code that Cython generates
# (compiler flags, linker flags); the second pair is for Apple's clang, which finds LLVM's runtime through CFLAGS and LDFLAGS
GCC_OPENMP = [(["-fopenmp"], ["-fopenmp"]), (["-Xpreprocessor", "-fopenmp"], ["-lomp"])]
MSVC_OPENMP = [(["/openmp"], [])]
OPENMP_PROGRAM = "#include <omp.h>\nint threads(void) { return omp_get_max_threads(); }\n"
ABI3 = not sysconfig.get_config_var("Py_GIL_DISABLED")
LIMITED_API = [("Py_LIMITED_API", "0x030B0000")] if ABI3 else []


class BuildKernels(build_ext):
    """Compile the kernels for each instruction set, and link them into the extension."""

    def initialize_options(self):
        super().initialize_options()
        self.cython_c_in_temp = True

    def build_extension(self, ext):
        msvc = self.compiler.compiler_type == "msvc"
        arithmetic = [] if msvc else list(GCC_ARITHMETIC)
        warnings = MSVC_WARNINGS if msvc else GCC_WARNINGS
        small = ["/O1"] if msvc else GCC_SMALL if self.can_link("int i;", GCC_SMALL) else ["-Os"]
        sources = {"isa/dispatch": [], "isa/kernel_neon": [], "isa/kernel_baseline": []}
        macros = []
        processor = self.plat_name.rsplit("-", 1)[-1].lower()
        if processor in ("x86_64", "amd64"):
            macros.append(("POSENC_X86", "1"))
            # smaller; few processors run it
            sources["isa/kernel_baseline"] = small if msvc else [*small, "-Wno-maybe-uninitialized"]
            sources |= {f"isa/kernel_{isa}": choice[msvc] for isa, choice in X86_FLAGS.items()}
            arithmetic += [] if msvc else ["-mfpmath=sse"]
        elif processor in ("i386", "i586", "i686"):
            arithmetic += ["-msse2", "-mfpmath=sse"]
        flags = [*(MSVC_FLAGS if msvc else GCC_FLAGS), *arithmetic]
        loops = GCC_LOOPS if not msvc and self.can_link("int i;", GCC_LOOPS) else []
        ext.extra_compile_args += [*flags, *small]          # only the kernels have long loops
        if not msvc:
            # setuptools also links with CFLAGS; GCC's -Ofast and -ffast-math would link code that lets the
            # whole program flush subnormal numbers to zero
            ext.extra_link_args += [*GCC_LINK, *arithmetic]
        self.add_openmp(ext, msvc)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            kernels = [
                pool.submit(self.compile_kernel, KERNEL / f"{name}.c", macros, flags + loops + warnings + isa_flags)
                for name, isa_flags in sources.items()
            ]
            link = self.compiler.link_shared_object
            self.compiler.link_shared_object = lambda objects, *args, **options: link(
                [*objects, *(kernel.result() for kernel in kernels)], *args, **options
            )
            super().build_extension(ext)        # runs Cython, compiles and links, while the pool compiles the kernels

    def compile_kernel(self, source, macros, flags):
        """Compile a source file if it or a header is newer than the object file of the same compiler and flags."""
        command = [*getattr(self.compiler, "compiler_so", []), *flags]
        folder = Path(self.build_temp) / hashlib.sha256(" ".join(command).encode()).hexdigest()[:16]
        [built] = self.compiler.object_filenames([str(source)], output_dir=str(folder))
        if self.force or newer_group([str(source), *map(str, KERNEL.rglob("*.h"))], built):
            self.compiler.compile(
                [str(source)], output_dir=str(folder), macros=macros, include_dirs=[str(KERNEL)], extra_postargs=flags
            )
        return built

    def add_openmp(self, ext, msvc):
        """Use OpenMP if the compiler supports it, unless POSENC_NO_OPENMP is set; `show_runtime` reports the result."""
        if os.environ.get("POSENC_NO_OPENMP"):
            return
        for compile_args, link_args in MSVC_OPENMP if msvc else GCC_OPENMP:
            if self.can_link(OPENMP_PROGRAM, compile_args, link_args):
                ext.extra_compile_args += compile_args
                ext.extra_link_args += link_args
                return

    def can_link(self, program, compile_args, link_args=()):
        folder = Path(self.build_temp)
        folder.mkdir(parents=True, exist_ok=True)
        source = folder / "probe.c"
        source.write_text(program)
        try:
            objects = self.compiler.compile([str(source)], output_dir=str(folder), extra_postargs=compile_args)
            self.compiler.link_shared_object(objects, str(folder / "probe"), extra_postargs=list(link_args))
        except Exception:       # noqa: BLE001  each compiler class raises different errors
            return False
        return True


setup(
    ext_modules=[
        Extension(
            "posenc._core.kernel",
            ["src/posenc/_core/kernel.pyx"],
            include_dirs=[str(KERNEL)],
            depends=["setup.py", *(str(p) for pattern in ("*.px[di]", "c/**/*.[ch]") for p in sorted(CORE.glob(pattern)))],
            define_macros=LIMITED_API,
            py_limited_api=ABI3,
        )
    ],
    cmdclass={"build_ext": BuildKernels},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if ABI3 else {},
)
