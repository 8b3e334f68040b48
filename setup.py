"""Only what pyproject.toml cannot say: one object file per instruction set, and the OpenMP flags."""

import os
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

KERNEL = Path("src/posenc/kernel")
# instruction set: flags of GCC and clang, flags of MSVC; dispatch.c tests for what they name
X86_FLAGS = {
    "avx2": (["-mavx2", "-mfma", "-mf16c"], ["/arch:AVX2"]),
    "avx512": (["-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma", "-mf16c"], ["/arch:AVX512"]),
}
GCC_FLAGS = ["-O3", "-std=gnu11", "-ffp-contract=off", "-fvisibility=hidden"]
MSVC_FLAGS = ["/O2", "/std:c11", "/fp:precise"]
GCC_WARNINGS, MSVC_WARNINGS = ["-Wall", "-Wextra", "-Wconversion"], ["/W3"]          # not for the C that Cython writes
# flags to compile and to link with OpenMP; the second of GCC's for Apple's clang, with CFLAGS and LDFLAGS that name the folders
# of LLVM's runtime
GCC_OPENMP = [(["-fopenmp"], ["-fopenmp"]), (["-Xpreprocessor", "-fopenmp"], ["-lomp"])]
MSVC_OPENMP = [(["/openmp"], [])]
ABI3 = not sysconfig.get_config_var("Py_GIL_DISABLED")
LIMITED_API = [("Py_LIMITED_API", "0x030B0000")] if ABI3 else []


def machine(plat_name):
    return plat_name.rsplit("-", 1)[-1].lower()


class BuildKernels(build_ext):
    """Compiles the kernels once per instruction set, then the extension that links them."""

    def initialize_options(self):
        super().initialize_options()
        self.cython_c_in_temp = True

    def build_extension(self, ext):
        msvc = self.compiler.compiler_type == "msvc"
        flags = list(MSVC_FLAGS if msvc else GCC_FLAGS)
        warnings = MSVC_WARNINGS if msvc else GCC_WARNINGS
        sources = {"exact": [], "dispatch": [], "kernel_baseline": [], "kernel_neon": []}
        macros = []
        if machine(self.plat_name) in ("x86_64", "amd64"):
            macros.append(("POSENC_X86", "1"))
            sources |= {f"kernel_{isa}": choice[msvc] for isa, choice in X86_FLAGS.items()}
        elif machine(self.plat_name) in ("i386", "i586", "i686"):
            flags += ["-msse2", "-mfpmath=sse"]
        for name, more in sources.items():
            ext.extra_objects += self.compiler.compile(
                [str(KERNEL / f"{name}.c")],
                output_dir=self.build_temp,
                macros=macros,
                extra_postargs=flags + warnings + more,
                depends=ext.depends,
            )
        ext.extra_compile_args += [*flags, "/O1" if msvc else "-Os"]     # no loops that count: all of them are in the kernels
        if not msvc:
            ext.extra_link_args.append("-pthread")
        self.add_openmp(ext, msvc)
        super().build_extension(ext)

    def add_openmp(self, ext, msvc):
        """OpenMP where the compiler has it, unless POSENC_NO_OPENMP is set; show_runtime() tells which."""
        if os.environ.get("POSENC_NO_OPENMP"):
            return
        for compiling, linking in MSVC_OPENMP if msvc else GCC_OPENMP:
            if self.can_link(compiling, linking):
                ext.extra_compile_args += compiling
                ext.extra_link_args += linking
                return

    def can_link(self, compiling, linking):
        folder = Path(self.build_temp)
        folder.mkdir(parents=True, exist_ok=True)
        source = folder / "openmp_probe.c"
        source.write_text("#include <omp.h>\nint threads(void) { return omp_get_max_threads(); }\n")
        try:
            objects = self.compiler.compile([str(source)], output_dir=str(folder), extra_postargs=compiling)
            self.compiler.link_shared_object(objects, str(folder / "openmp_probe"), extra_postargs=linking)
        except Exception:       # noqa: BLE001  each kind of compiler has errors of its own
            return False
        return True


setup(
    ext_modules=[
        Extension(
            "posenc._kernel",
            ["src/posenc/_kernel.pyx"],
            include_dirs=[str(KERNEL)],
            depends=[str(p) for p in sorted(KERNEL.glob("*.[ch]"))],
            define_macros=LIMITED_API,
            py_limited_api=ABI3,
        )
    ],
    cmdclass={"build_ext": BuildKernels},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if ABI3 else {},
)
