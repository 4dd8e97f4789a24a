#include "core/config/schema.h"

#include <algorithm>

#include "core/config/parts.h"
#include "kernels/kv_names.h"

namespace foresay::core {

namespace {

using Strings = std::vector<std::string>;

Strings kv_choices() {
    Strings names;
    for (const kernels::KvFormat format : kernels::all_kv_formats()) names.push_back(kernels::name(format));
    return names;
}

Strings kv_types() {
    Strings names = kv_choices();
    std::erase_if(names, [](const std::string& name) { return name.find('=') != std::string::npos; });
    return names;
}

// Keys and values that are named apart and alike.
std::vector<std::pair<std::string, std::string>> other_kv_spellings() {
    std::vector<std::pair<std::string, std::string>> spellings;
    for (const kernels::KvFormat format : kernels::all_kv_formats()) {
        const std::string k = kernels::name(kernels::kv_format(key_type(format), key_type(format)));
        const std::string v = kernels::name(kernels::kv_format(value_type(format), value_type(format)));
        if (k == v) spellings.emplace_back("k=" + k + ",v=" + v, k);
    }
    return spellings;
}

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
         "the large model: a GGUF file, a safetensors directory, or hf:ORG/NAME:QUANT of the hub"},
        {"target.context",
         ValueType::integer,
         none,
         0,
         1 << 20,
         {},
         "positions of the context; 0: all that the model allows"},
        {"draft.model",
         ValueType::path,
         std::string("auto"),
         {},
         {},
         {},
         "the small model that proposes, as target.model; auto: one that fits the target and is expected to gain, of "
         "those on this machine; none, or empty: none",
         {},
         {"auto", "none"}},
        {"draft.folders",
         ValueType::text_list,
         Strings{"~/models"},
         {},
         {},
         {},
         "where draft.model = \"auto\" looks, besides the target's own folder and the cache of the Hugging Face hub",
         {},
         {},
         true},
        {"draft.head",
         ValueType::choice,
         std::string("q4_0"),
         {},
         {},
         {"q4_0", "file"},
         "quantisation of the draft's LM head: q4_0 where that is smaller, which is faster and changes no text; or as "
         "in the file"},
        {"draft.device",
         ValueType::text,
         std::string(),
         {},
         {},
         {},
         "one of runtime.devices for the draft; empty: the first GPU of them, or else the first",
         {},
         {},
         false,
         true},
        {"speculation.mode",
         ValueType::choice,
         std::string("auto"),
         {},
         {},
         {"auto", "off", "fixed"},
         "how many tokens to draft per step; auto: as many as pay off; fixed: always `length`"},
        {"speculation.max_draft",
         ValueType::integer,
         std::int64_t{16},
         1,
         kMaxDraft,
         {},
         "most tokens that auto drafts in one step"},
        {"speculation.length",
         ValueType::integer,
         std::int64_t{4},
         1,
         kMaxDraft,
         {},
         "tokens drafted per step in mode fixed"},
        {"speculation.sources", ValueType::text_list, Strings{"draft", "ngram"}, {}, {}, {}, "what proposes tokens"},
        {"sampling.seed",
         ValueType::integer,
         none,
         0,
         {},
         {},
         "seed of the sampler's noise: same prompt, same seed, same bytes"},
        {"sampling.branch", ValueType::integer, none, 0, {}, {}, "branch of the seed: another text from the same one"},
        {"sampling.preset",
         ValueType::text,
         std::string(),
         {},
         {},
         {},
         "named settings below those of the same file: code, exact, prose, or a file of your own in "
         "~/.config/foresay/presets"},
        {"sampling.chain", ValueType::text_list, default_chain, {}, {}, {}, "the sampler stages, in order"},
        {"chat.style",
         ValueType::choice,
         std::string("auto"),
         {},
         {},
         {"auto", "complete", "llama3", "chatml", "mistral"},
         "chat format; auto: the model's own chat template, or complete if it has none; complete: one growing "
         "document"},
        {"chat.template",
         ValueType::path,
         std::string(),
         {},
         {},
         {},
         "a file with a chat template (Jinja) that is used in place of the model's own"},
        {"chat.reasoning",
         ValueType::choice,
         std::string("auto"),
         {},
         {},
         {"auto", "off", "on", "low", "medium", "high"},
         "whether the model reasons before it answers, and how much, as far as its chat template can tell it; auto: "
         "as the template has it"},
        {"chat.date",
         ValueType::text,
         std::string("today"),
         {},
         {},
         {},
         "the date that some chat templates tell the model, as 2026-01-31; today: the day's date, so that such a "
         "model's prompts and answers may differ from day to day"},
        {"chat.language",
         ValueType::text,
         std::string("auto"),
         {},
         {},
         {},
         "language as which answers are coloured: its name as in a Markdown block (python), or none; auto: what each "
         "Markdown block names"},
        {"chat.about",
         ValueType::text,
         std::string(),
         {},
         {},
         {},
         "what the model can do; a conversation at a terminal shows it once, the first time"},
        {"chat.max_tokens",
         ValueType::integer,
         std::int64_t{256},
         0,
         {},
         {},
         "longest answer, in tokens; 0: to the end of the context"},
        {"chat.system",
         ValueType::text,
         std::string(),
         {},
         {},
         {},
         "system prompt of new conversations; the style complete has no place for one"},
        {"chat.newline",
         ValueType::boolean,
         true,
         {},
         {},
         {},
         "in the style complete: an entry begins on a line of its own and ends with a newline; false: entries are "
         "added "
         "to the document as they are"},
        {"chat.fim_order",
         ValueType::choice,
         std::string("psm"),
         {},
         {},
         {"psm", "spm"},
         "how a model with fill-in-the-middle tokens gets the text around a hole; psm: prefix, suffix, middle; spm: "
         "suffix first, then the prefix, which the middle continues"},
        {"chat.read_ahead",
         ValueType::boolean,
         true,
         {},
         {},
         {},
         "evaluate a prompt while it is still being typed at a terminal; answers stay the same"},
        {"chat.save", ValueType::boolean, true, {}, {}, {}, "save a conversation at a terminal after every turn"},
        {"chat.keep_sessions",
         ValueType::integer,
         std::int64_t{1000},
         0,
         {},
         {},
         "how many unnamed sessions to keep, the most recent ones; 0: all"},
        {"runtime.device",
         ValueType::text,
         std::string("auto"),
         {},
         {},
         {},
         "where to run: auto, cpu, cuda:N, or reference (slow; for comparisons)"},
        {"runtime.devices",
         ValueType::text_list,
         Strings{},
         {},
         {},
         {},
         "several devices, which have consecutive layers each, as [\"cuda:0\", \"cpu\"]; in place of runtime.device"},
        {"runtime.device_layers",
         ValueType::integer_list,
         std::vector<std::int64_t>{},
         0,
         1 << 20,
         {},
         "how many layers each of runtime.devices has; empty: as many as fit, on the fastest first"},
        {"runtime.host_layers",
         ValueType::integer_list,
         std::vector<std::int64_t>{},
         0,
         1 << 20,
         {},
         "with a process on each of several hosts, how many layers each host has; empty: as many as fit, on the "
         "fastest first"},
        {"runtime.split_mode",
         ValueType::choice,
         std::string("layer"),
         {},
         {},
         {"layer", "row"},
         "how runtime.devices share a model: layer: each has some layers; row: each has some outputs of every layer "
         "(GPUs of one kind)"},
        {"runtime.device_shares",
         ValueType::integer_list,
         std::vector<std::int64_t>{},
         0,
         1 << 20,
         {},
         "with split_mode row, the share of each of runtime.devices relative to the others, as [1, 2]; empty: equal "
         "ones, or by free memory where those have no room"},
        {"runtime.row_handover",
         ValueType::choice,
         std::string("auto"),
         {},
         {},
         {"auto", "link", "copy"},
         "with split_mode row, how GPUs hand values to each other in forwards of up to 16 decode rows: link: within "
         "one kernel for each GPU, by peer access or through host memory; copy: between launches; auto: link where "
         "they can be, else copy"},
        {"runtime.device_mib",
         ValueType::integer_list,
         std::vector<std::int64_t>{},
         0,
         1 << 24,
         {},
         "most MiB of each of runtime.devices; 0: all that is free; empty: all of each"},
        {"runtime.threads", ValueType::integer, none, 0, 1024, {}, "number of compute threads; 0: one per core"},
        {"runtime.kv_cache",
         ValueType::choice,
         std::string("f16"),
         {},
         {},
         kv_choices(),
         "type of the KV cache; q8: 8 bits, half the memory and traffic; q6, q4: fewer bits for longer contexts, at "
         "some loss; k=q8,v=q4: keys and values apart",
         other_kv_spellings()},
        {"runtime.isa",
         ValueType::choice,
         std::string("auto"),
         {},
         {},
         {"auto", "avx512", "avx2", "portable"},
         "instruction set of the CPU; auto: the best one it has"},
        {"runtime.check_files",
         ValueType::boolean,
         true,
         {},
         {},
         {},
         "refuse a model that differs from the XXH128SUMS file beside it; models without such a file are not checked"},
        {"cache.host_mib",
         ValueType::integer,
         std::int64_t{512},
         0,
         1 << 24,
         {},
         "most MiB of host memory for pages of texts that have left the KV cache of foresay serve; 0: none"},
        {"cache.folder",
         ValueType::path,
         std::string(),
         {},
         {},
         {},
         "where pages go that leave that memory, so that they outlast the server; empty: to no disk"},
        {"cache.disk_mib",
         ValueType::integer,
         std::int64_t{8192},
         1,
         1 << 24,
         {},
         "most MiB of files in cache.folder; the ones used longest ago are deleted"},
    };
}

}  // namespace

std::vector<std::pair<std::string, Strings>> parts_of(std::string_view key) {
    if (key != "runtime.kv_cache") return {};
    return {{"k", kv_types()}, {"v", kv_types()}};
}

KeySpec sources_key(std::span<const SourceSchema> sources) {
    KeySpec key = *find_key("speculation.sources");
    std::string doc;
    for (const SourceSchema& source : sources) {
        doc += (doc.empty() ? ": " : "; ") + source.name + ": " + source.doc;
        key.choices.push_back(source.name);
        for (const std::string& alias : source.aliases) key.aliases.emplace_back(alias, source.name);
    }
    key.doc += doc;
    return key;
}

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

std::span<const KeySpec> plugin_keys() {
    static const KeySpec keys[] = {
        on_error_key(),
        {"isolated",
         ValueType::boolean,
         false,
         {},
         {},
         {},
         "run the sampler in a process of its own, without files and network: a crash, an endless loop or a leak costs "
         "that process, and on_error decides"},
        {"deadline_ms",
         ValueType::integer,
         std::int64_t{1000},
         1,
         600000,
         {},
         "how long a call of an isolated sampler may take; then its process is ended"},
    };
    return keys;
}

const KeySpec* find_key(std::string_view key) {
    const auto schema = core_schema();
    const auto found = std::find_if(schema.begin(), schema.end(), [&](const KeySpec& spec) { return spec.key == key; });
    return found == schema.end() ? nullptr : &*found;
}

}  // namespace foresay::core
