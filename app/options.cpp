#include "app/options.h"

#include <charconv>
#include <cstdlib>
#include <utility>

#include "app/command_line/parser.h"
#include "app/files.h"
#include "base/error.h"
#include "base/split.h"
#include "core/config/schema.h"
#include "core/models/shapes.h"
#include "kernels/quant_type.h"

namespace foresay::app {

namespace {

constexpr const char* kDefaultQuant = "q4_0";

std::string quoted(const std::string& text) { return core::to_toml(core::ConfigValue(text)); }

std::vector<std::string> quant_names() {
    std::vector<std::string> names;
    for (int i = 0; i < kernels::kQuantTypes; ++i) {
        names.emplace_back(kernels::info(static_cast<kernels::QuantType>(i)).name);
    }
    return names;
}

// Options that stand for configuration keys.
void text_key(OptionParser& parser, Options& options, const std::string& name, const std::string& key,
              OptionText text) {
    const auto take = [&options, name, key](const std::string& value) {
        override_key(options, name, key, quoted(value));
    };
    parser.option(name, take, std::move(text));
}
void integer_key(OptionParser& parser, Options& options, const std::string& name, const std::string& key,
                 OptionText text) {
    const auto take = [&options, name, key](const std::string& value) { override_key(options, name, key, value); };
    parser.integer_option(name, take, std::move(text));
}

void take_speculation(Options& options, const std::string& value) {
    if (value == "auto" || value == "off") return override_key(options, "--speculation", "speculation.mode", value);
    int count = -1;
    const char* end = value.data() + value.size();
    const auto [stop, error] = std::from_chars(value.data(), end, count);
    if (error != std::errc() || stop != end || count < 0 || count > core::kMaxDraft) {
        throw UsageError("--speculation must be auto, off or an integer from 0 to " + std::to_string(core::kMaxDraft) +
                         ", not '" + value + "'");
    }
    if (count == 0) return override_key(options, "--speculation", "speculation.mode", "off");
    override_key(options, "--speculation", "speculation.length", std::to_string(count));
    options.overrides.back().text += "\nspeculation.mode = \"fixed\"";
}

// Models come in pairs: --model replaces the configured draft by one that is to be found, and --shape removes it.
// --draft is declared after them, so that it is applied on top.
void add_model_options(OptionParser& parser, Options& options) {
    const auto take_model = [&options](const std::string& path) {
        options.model = path;
        override_key(options, "--model", "target.model", quoted(path));
        options.overrides.back().text += "\ndraft.model = \"auto\"";
    };
    parser.option("--model", take_model,
                  {.value = "PATH",
                   .doc = "run this model instead of the configured one: a path or hf:ORG/NAME:QUANT",
                   .hint = ValueHint::file});
    const auto take_shape = [&options](const std::string& name) {
        options.shape = name;
        override_key(options, "--shape", "target.model", quoted(""));
        options.overrides.back().text += "\ndraft.model = \"\"";
    };
    parser.option("--shape", take_shape,
                  {.value = "NAME",
                   .doc = "random weights in a published model's shape, for bench, inspect and logits",
                   .words = core::published_shape_names()});
    text_key(parser, options, "--draft", "draft.model",
             {.value = "PATH|auto|none",
              .doc = "use this draft model; auto, the default with --model: one of this machine that fits; none: none",
              .hint = ValueHint::file});
}

// A model of the hub in place of CONFIG is --model, before all other options.
void take_hub_model(Options& options) {
    if (!core::names_hub_model(options.config)) return;
    if (!options.model.empty()) {
        throw UsageError("the model is named twice, as " + options.config + " and with --model " + options.model);
    }
    options.model = std::exchange(options.config, "");
    core::ConfigLayer layer =
        core::override_layer("target.model=" + quoted(std::as_const(options.model)), options.model);
    layer.text += "\ndraft.model = \"auto\"";
    options.overrides.insert(options.overrides.begin(), std::move(layer));
}

void check_models(Options& options) {
    if (!options.shape.empty() && (!options.model.empty() || !options.config.empty())) {
        throw UsageError("--shape replaces the model; it cannot be used with --model or a configuration");
    }
    if (!options.shape.empty() && !options.inflate.empty()) {
        throw UsageError("--shape has random weights and --inflate those of a model; use one or the other");
    }
    if (options.shape.empty() && options.inflate.empty() && !options.quant_type.empty()) {
        throw UsageError("--quant needs --shape or --inflate; the quantisation type of a model file is fixed");
    }
    if (options.inflate_draft.empty() && !options.draft_quant_type.empty()) {
        throw UsageError("--draft-quant needs --inflate-draft");
    }
    if (options.quant_type.empty()) options.quant_type = kDefaultQuant;
    if (options.draft_quant_type.empty()) options.draft_quant_type = kDefaultQuant;
}

}  // namespace

void override_key(Options& options, const std::string& name, const std::string& key, const std::string& value) {
    options.overrides.push_back(core::override_layer(key + "=" + value, name));
}

// --device is in place of both keys, whatever a configuration says.
void override_device(Options& options, const std::string& devices) {
    const std::vector<std::string_view> parts = split(devices, ',');
    if (parts.size() > 1) {
        const std::vector<std::string> list(parts.begin(), parts.end());
        override_key(options, "--device", "runtime.devices", core::to_toml(core::ConfigValue(list)));
        return;
    }
    override_key(options, "--device", "runtime.device", quoted(devices));
    options.overrides.back().text += "\nruntime.devices = []";
}

void refuse_shape(OptionParser& parser, const Options& options) {
    parser.after_parsing([&options] {
        if (!options.shape.empty()) throw UsageError("a shape has no tokenizer; name a model with --model PATH");
    });
}

void add_common_options(OptionParser& parser, Options& options) {
    parser.common(true);
    const auto take_sets = [&options](const std::vector<std::string>& assignments) {
        for (std::size_t i = 0; i < assignments.size(); ++i) {
            options.overrides.push_back(core::override_layer(assignments[i], "--set #" + std::to_string(i + 1)));
        }
    };
    parser.option_list(
        "--set", take_sets,
        {.value = "KEY=VALUE", .doc = "set a configuration key (repeatable)", .hint = ValueHint::config_setting});
    add_model_options(parser, options);
    parser.option("--quant", options.quant_type,
                  {.value = "TYPE",
                   .doc = "quantisation type of the weights of --shape and --inflate [default: q4_0]",
                   .words = quant_names(),
                   .old_name = "--encoding"});
    const auto take_context = [&options](const std::string& value) {
        override_key(options, "--context", "target.context", value);
        std::int64_t positions = 0;
        std::from_chars(value.data(), value.data() + value.size(), positions);  // already checked to be an integer
        options.context = positions;
    };
    parser.integer_option("--context", take_context,
                          {.value = "N", .doc = "context length, in tokens", .least = kAnyInteger});
    integer_key(parser, options, "--threads", "runtime.threads",
                {.value = "N", .doc = "number of compute threads", .least = kAnyInteger});
    const auto take_device = [&options](const std::string& value) { override_device(options, value); };
    parser.option("--device", take_device,
                  {.value = "DEVICE",
                   .doc = "where to run: auto, cpu or cuda[:N]; or several, with some layers each: cuda:0,cpu",
                   .words = {"auto", "cpu", "cuda"}});
    text_key(parser, options, "--split-mode", "runtime.split_mode",
             {.value = "MODE",
              .doc = "several devices have some layers each (layer), or some outputs of every layer (row)",
              .words = core::find_key("runtime.split_mode")->choices});
    text_key(parser, options, "--kv-cache", "runtime.kv_cache",
             {.value = "TYPE",
              .doc = "store the KV cache as f16, q8, q6 or q4; keys and values apart: k=q8,v=q4",
              .words = core::find_key("runtime.kv_cache")->choices});
    parser.common(false);
    parser.after_parsing([&options] { check_models(options); });
}

void add_inflation_options(OptionParser& parser, Options& options) {
    const std::vector<std::string> shapes = core::inflatable_shape_names();
    parser.option("--inflate", options.inflate,
                  {.value = "NAME",
                   .doc = "inflate the target to a published model's shape: it runs at the cost of that shape and "
                          "generates the same tokens; results are labelled as inflated",
                   .words = shapes});
    parser.option("--inflate-draft", options.inflate_draft,
                  {.value = "NAME", .doc = "the same for the draft", .words = shapes});
    parser.option("--draft-quant", options.draft_quant_type,
                  {.value = "TYPE",
                   .doc = "quantisation type of the weights of --inflate-draft [default: q4_0]",
                   .words = quant_names(),
                   .old_name = "--draft-encoding"});
}

void add_config_argument(OptionParser& parser, Options& options) {
    parser.argument(options.config, {.value = "CONFIG",
                                     .doc = "configuration file; or a model of the hub: hf:ORG/NAME:QUANT",
                                     .hint = ValueHint::config_file});
    parser.after_parsing([&options] { take_hub_model(options); });
}

void add_sampling_options(OptionParser& parser, Options& options) {
    integer_key(parser, options, "--seed", "sampling.seed", {.value = "SEED", .doc = "seed of the sampler's noise"});
    integer_key(parser, options, "--branch", "sampling.branch",
                {.value = "BRANCH", .doc = "branch of the seed: another text from the same seed"});
    parser.option("--speculation", [&options](const std::string& value) { take_speculation(options, value); },
                  {.value = "auto|off|N",
                   .doc = "drafted tokens per step: as many as pay off, none, or always N",
                   .words = {"auto", "off"}});
}

void add_temperature_option(OptionParser& parser, Options& options) {
    const auto take = [&options](const std::string& value) {
        const double temperature = std::strtod(value.c_str(), nullptr);  // "1." is not a number in TOML
        override_key(options, "--temperature", "sampling.temperature.value",
                     core::to_toml(core::ConfigValue(temperature)));
        options.append_temperature = true;
    };
    parser.number_option("--temperature", take,
                         {.value = "T", .doc = "sampling temperature; 0 always takes the likeliest token"});
}

void add_grammar_options(OptionParser& parser, Options& options) {
    const auto declare = [&](const std::string& name, const std::string& language, const std::string& what,
                             const std::string& doc) {
        const auto take = [&options, name, language, what](const std::string& file) {
            const std::string text = read_file(file, what, core::kMaxConfigBytes);
            const std::string place = name + " " + file;
            override_key(options, place, "sampling.grammar.language", quoted(language));
            override_key(options, place, "sampling.grammar.text", quoted(text));
            override_key(options, place, "sampling.grammar.file", quoted(""));
            options.prepend_grammar = true;
        };
        parser.option(name, take, {.value = "FILE", .doc = doc, .hint = ValueHint::file});
    };
    declare("--json-schema", "json_schema", "the schema", "the answer is JSON that is valid under this JSON Schema");
    declare("--grammar", "gbnf", "the grammar", "the answer is a text of this grammar (GBNF)");
    parser.exclude("--json-schema", "--grammar");
}

void add_max_tokens_option(OptionParser& parser, std::optional<std::int64_t>& value, const std::string& doc) {
    parser.option("-n", value, {.value = "N", .doc = doc});
}

void add_text_file_option(OptionParser& parser, std::string& file, const std::string& what) {
    parser.option("-f", file,
                  {.value = "FILE",
                   .doc = "read " + what + " from FILE; - is standard input, which is also the default",
                   .hint = ValueHint::file,
                   .once = true});
}

void add_json_flag(OptionParser& parser, bool& json) {
    parser.flag("--json", json, "print one JSON object instead of text");
}

}  // namespace foresay::app
