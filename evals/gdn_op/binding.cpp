// SPDX-License-Identifier: Apache-2.0
// Makes the tree's fused GDN MTP decode op loadable by itself, under its own name, so
// that tests and benchmarks can compare with it on a machine that has no build of vLLM.
#include <string>

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include "ops.h"

namespace {

constexpr char kSchema[] =
    "fused_gdn_decode_post_conv_mtp("
    // Read only.
    "Tensor mixed_qkv, Tensor a, Tensor b, Tensor A_log, Tensor dt_bias, "
    "Tensor state_indices, Tensor cu_seqlens, Tensor num_accepted_tokens, "
    // Updated in place, and what the epilogue reads and writes.
    "Tensor! state, Tensor output_gate, Tensor norm_weight, Tensor! out, "
    "float scale, float norm_eps=1e-5, str output_gate_activation='silu') -> ()";

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(_C, library) { library.def(kSchema); }

STABLE_TORCH_LIBRARY_IMPL(_C, CUDA, library) {
  library.impl("fused_gdn_decode_post_conv_mtp",
               TORCH_BOX(&fused_gdn_decode_post_conv_mtp));
}
