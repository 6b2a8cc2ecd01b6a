# SPDX-License-Identifier: Apache-2.0
"""Builds the tree's fused GDN MTP decode op alone: about half a minute with nvcc.

    python build.py TREE OUT.so

Runs in the interpreter whose torch will load it; needs CUDA 13's nvcc and a GPU.
"""

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
KERNEL = "csrc/gdn/fused_gdn_decode_kernel.cu"


def target(capability: tuple[int, int]) -> str:
    """nvcc's -gencode for a compute capability; 9.0 takes its own feature set."""
    number = f"{capability[0]}{capability[1]}"
    feature = {"90": "a", "100": "f", "110": "f", "120": "f"}.get(number, "")
    name = number + feature
    return f"-gencode=arch=compute_{name},code=sm_{name}"


def command(nvcc: str, tree: Path, out: Path) -> list[str]:
    """The compiler's words, for the torch and the GPU of this process."""
    import torch
    from torch.utils.cpp_extension import include_paths

    library = Path(torch.__file__).parent / "lib"
    return [
        nvcc,
        "-std=c++20",
        "-O3",
        # As upstream builds it: its figures and its rounding come with this flag.
        "--use_fast_math",
        target(torch.cuda.get_device_capability()),
        "-shared",
        "-Xcompiler=-fPIC",
        "--expt-relaxed-constexpr",
        "--expt-extended-lambda",
        "-DUSE_CUDA",
        "-DVLLM_ENABLE_FUSED_GDN_DECODE",
        *(f"-I{path}" for path in [*include_paths("cuda"), tree / "csrc"]),
        str(tree / KERNEL),
        str(HERE / "binding.cpp"),
        f"-L{library}",
        *(
            f"-l{name}"
            for name in ("torch", "torch_cpu", "torch_cuda", "c10", "cudart")
        ),
        "-o",
        str(out),
    ]


def main(tree: Path, out: Path) -> int:
    """Builds; returns the compiler's exit code, or 1 where there is none."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        print("nvcc is not on the PATH: the CUDA op cannot be built.", file=sys.stderr)
        return 1
    return subprocess.run(command(nvcc, tree, out)).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
