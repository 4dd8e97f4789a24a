// core/models/gemma2.cpp: Gemma 2: norms before and after each branch, soft caps, and a window in every second layer.

#include "core/models/gemma.h"
#include "core/models/read_config.h"
#include "core/models/stages.h"

namespace foresay::core {
namespace {

constexpr std::string_view kGgufNames[] = {"gemma2"};
constexpr std::string_view kHfNames[] = {"Gemma2ForCausalLM"};

void read(Keys& keys, ModelConfig& config) {
    read_gemma(keys, config);
    read_gemma_scale(keys, config, 46);
    set_sliding(config, sliding_layers(keys, config, 2));
}

void layer(StageMaker& stages, std::int32_t i) { add_gemma_layer(stages, i); }

}  // namespace

const Architecture& gemma2_architecture() {
    static const Architecture architecture{.name = "gemma2",
                                           .gguf_names = kGgufNames,
                                           .hf_names = kHfNames,
                                           .hf_context_length = 8192,
                                           .hf_tied = true,
                                           .hf_tensors = kGemmaHfTensors,
                                           .read = read,
                                           .layer = layer};
    return architecture;
}

}  // namespace foresay::core
