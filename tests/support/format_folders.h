// tests/support/format_folders.h: the folders of quantised safetensors below FORESAY_GOLDENS that hold matrices of
// several tensors.
#pragma once

#include <string>

namespace foresay::test {

inline const std::string kFormatFolders[] = {
    "awq-g128",
    "awq-g32-bias",
    "ct-fp8-channel",
    "ct-fp8-tensor",
    "ct-int4-asym-column",
    "ct-int4-asym-g32",
    "ct-int4-sym-g128",
    "ct-int8-sym-column",
    "ct-nvfp4",
    "ct-w8a8-int8",
    "exl2-draft-4.0",
    "exl2-llama-3.0",
    "exl2-llama320-3.0",
    "exl2-qwen2-8.0",
    "fp8-block",
    "fp8-modelopt",
    "gptq-2bit-v2-asym-g64",
    "gptq-3bit-sym-g128",
    "gptq-4bit-asym-g32",
    "gptq-4bit-sym-g128-actorder",
    "gptq-4bit-v2-asym-column",
    "gptq-8bit-asym-g64-bf16",
    "gptq-dynamic-head",
    "nvfp4-modelopt",
};

}  // namespace foresay::test
