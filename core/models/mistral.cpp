// core/models/mistral.cpp: Mistral 7B to Small 3 and Ministral 3: Llama's layout, with a window in the first ones, and
// with yarn and a temperature of queries in the last. GGUF files of the older ones say llama.

#include "core/models/read_config.h"
#include "core/models/stages.h"

namespace foresay::core {
namespace {

constexpr std::string_view kGgufNames[] = {"mistral3"};
constexpr std::string_view kHfNames[] = {"MistralForCausalLM", "Mistral3ForConditionalGeneration",
                                         "Ministral3ForCausalLM"};

void read(Keys& keys, ModelConfig& config) {
    config.window = keys.count_or("attention.sliding_window", "sliding_window", 0);
    const bool now = keys.is_object("rope_parameters");
    const std::string table = now ? "rope_parameters." : "rope_scaling.";
    config.temperature.beta = keys.number_or("attention.temperature_scale", table + "llama_4_scaling_beta", 0.0f);
    config.temperature.length = config.rope.original_context;
    keys.ignore({"attention.temperature_length"});
}

void layer(StageMaker& stages, std::int32_t i) { stages.add_plain_layer(i); }

}  // namespace

const Architecture& mistral_architecture() {
    static const Architecture architecture{.name = "mistral",
                                           .gguf_names = kGgufNames,
                                           .hf_names = kHfNames,
                                           .gguf_rope = kernels::RopePairs::adjacent,
                                           .hf_context_length = 32768,
                                           .read = read,
                                           .layer = layer};
    return architecture;
}

}  // namespace foresay::core
