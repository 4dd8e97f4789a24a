#include "core/config/schema.h"

#include <algorithm>

namespace foresay::core {

namespace {

using Strings = std::vector<std::string>;

std::vector<KeySpec> make_schema() {
    const Strings default_chain = {"penalties", "top_k", "top_p", "temperature"};
    const std::int64_t none = 0;
    return {
        {"target.model",
         ValueType::path,
         std::string(),
         {},
         {},
         {},
         "the large model: a GGUF file or a safetensors directory"},
        {"target.context",
         ValueType::integer,
         none,
         0,
         1 << 20,
         {},
         "positions of the context; 0: all that the model allows"},
        {"draft.model", ValueType::path, std::string(), {}, {}, {}, "the small model that proposes; empty: none"},
        {"draft.head",
         ValueType::choice,
         std::string("q4_0"),
         {},
         {},
         {"q4_0", "file"},
         "the draft's last matrix: in 4 bits when that is smaller, which is faster and changes no text; or as in the "
         "file"},
        {"speculation.mode",
         ValueType::choice,
         std::string("auto"),
         {},
         {},
         {"auto", "off", "fixed"},
         "auto: as far as it pays; off; fixed: always `length` tokens"},
        {"speculation.max_draft",
         ValueType::integer,
         std::int64_t{16},
         1,
         kMaxDraft,
         {},
         "longest run that auto drafts"},
        {"speculation.length", ValueType::integer, std::int64_t{4}, 1, kMaxDraft, {}, "tokens per run in mode fixed"},
        {"speculation.sources",
         ValueType::text_list,
         Strings{"draft", "suffix"},
         {},
         {},
         {"draft", "suffix"},
         "who proposes: the draft model; suffix: how the text went on before"},
        {"sampling.seed", ValueType::integer, none, 0, {}, {}, "seed of the noise: same prompt, same seed, same bytes"},
        {"sampling.branch", ValueType::integer, none, 0, {}, {}, "another text from the same seed"},
        {"sampling.chain",
         ValueType::text_list,
         default_chain,
         {},
         {},
         {},
         "the stages that shape each choice, in order"},
        {"chat.style",
         ValueType::choice,
         std::string("auto"),
         {},
         {},
         {"auto", "complete", "llama3", "chatml", "mistral"},
         "complete: one growing document; auto: what the model's template asks for"},
        {"chat.max_tokens",
         ValueType::integer,
         std::int64_t{256},
         0,
         {},
         {},
         "longest answer; 0: to the end of the context"},
        {"chat.system", ValueType::text, std::string(), {}, {}, {}, "system prompt: what a conversation begins with"},
        {"chat.read_ahead",
         ValueType::boolean,
         true,
         {},
         {},
         {},
         "evaluate what is being typed at a terminal while the person pauses; answers are the same"},
        {"chat.save",
         ValueType::boolean,
         true,
         {},
         {},
         {},
         "save the conversation after every turn, where there is a terminal"},
        {"chat.keep_sessions",
         ValueType::integer,
         std::int64_t{1000},
         0,
         {},
         {},
         "saved conversations without a name of their own to keep, the newest ones; 0: all"},
        {"runtime.device",
         ValueType::text,
         std::string("auto"),
         {},
         {},
         {},
         "auto, cpu, cuda:N, or reference: the slow specification"},
        {"runtime.threads", ValueType::integer, none, 0, 1024, {}, "threads that compute; 0: one per core"},
        {"runtime.kv_cache",
         ValueType::choice,
         std::string("f16"),
         {},
         {},
         {"f16", "q8"},
         "how keys and values are kept; q8: in 8 bits, which is half the memory and traffic, on cuda"},
        {"runtime.isa",
         ValueType::choice,
         std::string("auto"),
         {},
         {},
         {"auto", "avx512", "avx2", "portable"},
         "instruction set of the processor; auto: the best it has"},
    };
}

}  // namespace

std::span<const KeySpec> core_schema() {
    static const std::vector<KeySpec> schema = make_schema();
    return schema;
}

const KeySpec& on_error_key() {
    static const KeySpec key = {"on_error",
                                ValueType::choice,
                                std::string("stop"),
                                {},
                                {},
                                {"stop", "skip"},
                                "when the stage fails on a token: end the answer, or go on without the stage for that "
                                "token, which changes the text"};
    return key;
}

const KeySpec* find_key(std::string_view key) {
    const auto schema = core_schema();
    const auto found = std::find_if(schema.begin(), schema.end(), [&](const KeySpec& spec) { return spec.key == key; });
    return found == schema.end() ? nullptr : &*found;
}

}  // namespace foresay::core
