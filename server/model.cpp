#include "server/model.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <set>
#include <utility>

#include "core/config/value.h"
#include "core/weights/checksums.h"
#include "core/weights/mapped_file.h"
#include "server/error.h"
#include "server/output/answer_grammar.h"

namespace foresay::server {

namespace {

// To be raised when a kernel changes the bits of any text.
constexpr int kNumbers = 1;

// The stages that the configuration describes and does not put into its chain, in the order of their names.
samplers::ChainSpec further_stages(const engine::Engine& engine) {
    const core::Config& config = engine.config();
    std::set<std::string> names;
    for (const core::PluginSpec& plugin : config.plugins) names.insert(plugin.name);
    for (const core::StageSchema& stage : engine::stage_schemas()) {
        if (!config.stage(stage.name).empty()) names.insert(stage.name);
    }
    for (const std::string& name : config.chain) names.erase(name);
    samplers::ChainSpec stages;
    for (const std::string& name : names) {
        if (auto stage = engine.stage_spec(name)) stages.push_back(std::move(*stage));
    }
    return stages;
}

// What a request that says nothing about them gets: the chain with its parameters and files, how conversations are
// written, and the length of the context, which ends long answers and cuts what stands around a hole.
std::string defaults_of(const engine::Engine& engine, const core::ChatStyle& style) {
    const core::Config& config = engine.config();
    std::string all = std::to_string(engine.context_length()) + '\n' + style.system + '\n' + config.chat_date + '\n' +
                      (style.newline ? "lines " : "") + std::to_string(static_cast<int>(style.fim_order)) + ' ' +
                      std::to_string(static_cast<int>(style.options.reasoning)) + '\n';
    const auto contents = [&](const std::filesystem::path& file) {
        all += file.empty() ? "" : core::xxh128(core::MappedFile(file).bytes());
    };
    // And what requests may put into the chain, as the configuration describes it.
    samplers::ChainSpec stages = engine.chain_spec();
    std::ranges::move(further_stages(engine), std::back_inserter(stages));
    for (const samplers::StageSpec& stage : stages) {
        const bool plugin = stage.factory != nullptr;
        const auto factory = plugin ? stage.factory : samplers::find_builtin(stage.name);
        all += stage.name + ' ' + std::to_string(static_cast<int>(stage.on_error)) + '\n';
        if (plugin) {
            for (const core::PluginSpec& each : config.plugins) {
                if (each.name == stage.name) contents(each.path);
            }
        }
        const std::vector<samplers::ParameterSchema>& parameters = factory->description().parameters;
        for (const auto& [name, value] : stage.parameters) {
            const auto schema = std::ranges::find(parameters, name, &samplers::ParameterSchema::name);
            all += name + '=' + core::to_toml(value) + '\n';
            if (schema != parameters.end() && schema->type == samplers::ParameterType::file)
                contents(std::get<std::string>(value));
        }
    }
    return all;
}

std::string name_of_file(const std::filesystem::path& path) {
    std::filesystem::path clean = path;
    if (!clean.has_filename()) clean = clean.parent_path();
    std::string name = clean.filename().string();
    if (name.ends_with(".gguf")) name.resize(name.size() - 5);
    return name;
}

bool shows(const jinja::Text& text, std::string_view part) { return text.bytes().find(part) != std::string::npos; }

}  // namespace

ServedModel::ServedModel(const engine::Engine& engine, std::string name, const std::vector<std::string>& aliases)
    : engine_(engine),
      grammars_(engine),
      style_(core::chat_style(engine.config(), engine.tokenizer(), engine.chat_template())),
      name_(name.empty() ? name_of_file(engine.config().target_model) : std::move(name)),
      aliases_(aliases),
      created_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                   .count()) {
    if (name_.empty()) name_ = "foresay";
    const std::string source = style_.chat ? style_.chat->source() : std::string(tokenizer().chat_template());
    format_ = detect_output_format(source, tokenizer());
    find_fingerprint();
    if (!style_.chat) return;
    takes_tools_ = style_.chat->takes_tools();
    native_developer_ = source.find("developer") != std::string::npos;
    const core::ChatMessage probe{"user", "x", {}, {}};
    const jinja::Value messages = style_.chat->messages_value({&probe, 1});
    const jinja::Value* content = messages.list().items[0].dict().find_text("content");
    typed_content_ = content != nullptr && content->is(jinja::Kind::list);
    if (!takes_tools_) return;
    // Whether arguments are written as an object, or as the text that they are.
    Conversation call;
    call.messages.push_back({.role = "user", .content = "x"});
    call.messages.push_back(
        {.role = "assistant", .calls = {{"call12345", "probe_tool", R"({"probe_key":"probe_value"})"}}});
    call.messages.push_back({.role = "tool", .content = "y", .call_id = "call12345", .tool_name = "probe_tool"});
    call.tools.push_back({"probe_tool", "A tool.", Json::object({{"type", "object"}, {"properties", Json::object()}})});
    for (const bool object : {true, false}) {
        object_arguments_ = object;
        try {
            const jinja::Text text = render_template(call);
            if (shows(text, "probe_value") && !shows(text, "'probe_key'")) return;
        } catch (const Error&) {
        }
    }
    object_arguments_ = true;
}

bool ServedModel::answers_to(std::string_view name) const {
    return name == name_ || std::find(aliases_.begin(), aliases_.end(), name) != aliases_.end();
}

bool ServedModel::fills() const { return core::has_fill_tokens(tokenizer()); }
bool ServedModel::converses() const { return style_.format != core::ChatFormat::complete; }
bool ServedModel::takes_tools() const { return takes_tools_; }
bool ServedModel::describes_tools(const Conversation& conversation) const {
    return !conversation.tools.empty() && !takes_tools_;
}

void ServedModel::find_fingerprint() {
    std::string all;
    const std::filesystem::path path = engine_.config().target_model;
    if (!path.empty()) {
        for (const std::filesystem::path& file : core::model_files(path)) {
            const core::MappedFile mapped(file);
            file_bytes_ += static_cast<std::int64_t>(mapped.bytes().size());
            // A listed digest was compared when the engine loaded the file.
            const auto known = engine_.config().check_files
                                   ? core::listed_digest(file, core::kXxh128List, core::kXxh128Digits)
                                   : std::nullopt;
            all += known ? known->digits : core::xxh128(mapped.bytes());
        }
    }
    const auto hash = [](const std::string& text) { return core::xxh128(std::as_bytes(std::span(text))); };
    digest_ = hash(all);
    const core::Config& config = engine_.config();
    all += '\n' + engine_.instruction_set() + '\n' + std::to_string(static_cast<int>(config.kv_format)) + '\n' +
           std::to_string(kNumbers) + '\n' + std::string(core::name(style_.format)) + '\n' + engine_.inflated();
    if (style_.chat) all += style_.chat->source();
    all += defaults_of(engine_, style_);
    fingerprint_ = "fp_" + hash(all).substr(0, 12);
    parameters_ = engine_.target().macs_per_row();
}

namespace {

// The temperature that is set becomes the middle of a range, as llama.cpp does it.
void use_dynamic_temperature(samplers::ChainSpec& spec, double range, const std::string& param) {
    constexpr double kLeast = 0.01;
    double middle = 1.0;
    if (const auto stage = std::ranges::find(spec, "temperature", &samplers::StageSpec::name); stage != spec.end()) {
        const auto& schema = samplers::find_builtin("temperature")->description().parameters[0];
        middle = std::get<double>(schema.fallback);
        for (const auto& [name, value] : stage->parameters) {
            if (name == "value" && std::holds_alternative<double>(value)) middle = std::get<double>(value);
        }
        if (middle == 0.0) return;  // no noise at all
        samplers::set_parameter(spec, "temperature", "value", 1.0);
    }
    const double most = samplers::find_builtin("dynatemp")->description().parameters[1].max.value_or(middle + range);
    if (middle + range > most)
        throw wrong_value(param, "'" + param + "' and the temperature are more than " + Json(most).dump() +
                                     " together; make one of them smaller");
    samplers::set_parameter(spec, "dynatemp", "min", std::max(middle - range, kLeast));
    samplers::set_parameter(spec, "dynatemp", "max", middle + range);
}

// As in llama.cpp: of the built-in stages only those stay that say what may come at all, and the temperature. Rules
// that plugins keep stay, too.
void use_mirostat(samplers::ChainSpec& spec, int version) {
    static constexpr std::string_view kStay[] = {"grammar", "logit_bias", "min_length", "temperature", "dynatemp"};
    std::erase_if(spec, [](const samplers::StageSpec& stage) {
        const auto builtin = samplers::find_builtin(stage.name);
        return builtin != nullptr && (stage.factory == nullptr || stage.factory == builtin) &&
               std::ranges::find(kStay, stage.name) == std::end(kStay);
    });
    spec.push_back({.name = version == 1 ? "mirostat_1" : "mirostat", .parameters = {}, .factory = nullptr});
}

// Only plugins that the chain has, which are of the server's configuration, and no option that is a file of the
// server's.
void check_plugin(const samplers::ChainSpec& spec, const SamplerSetting& setting) {
    const auto found = std::find_if(spec.begin(), spec.end(), [&](const samplers::StageSpec& stage) {
        return stage.name == setting.stage && stage.factory != nullptr;
    });
    if (found == spec.end())
        throw wrong_value(setting.param, "'" + setting.param + "': no plugin '" + setting.stage +
                                             "' is in the chain; the server's configuration says which may be");
    for (const samplers::ParameterSchema& parameter : found->factory->description().parameters) {
        if (parameter.name == setting.parameter && parameter.type == samplers::ParameterType::file)
            throw wrong_value(setting.param,
                              "'" + setting.param + "' is a file of the server's; its configuration alone names those");
    }
}

}  // namespace

samplers::ChainSpec ServedModel::chain_spec(const GenerationRequest& request) const {
    samplers::ChainSpec spec = engine_.chain_spec();
    if (request.chain) {
        samplers::ChainSpec chosen;
        for (const std::string& name : *request.chain) {
            std::optional<samplers::StageSpec> stage = engine_.stage_spec(name);
            if (!stage)
                throw wrong_value("foresay.chain",
                                  "'foresay.chain' names the sampler '" + name +
                                      "', which is neither built in nor in the server's configuration");
            chosen.push_back(std::move(*stage));
        }
        spec = std::move(chosen);
    }
    const auto has = [&](const std::string& stage) {
        return std::ranges::find(spec, stage, &samplers::StageSpec::name) != spec.end();
    };
    const auto apply = [&](const SamplerSetting& setting) {
        if (setting.of_plugin) check_plugin(spec, setting);
        if (setting.parameter.empty()) return;
        try {
            samplers::set_parameter(spec, setting.stage, setting.parameter, setting.value);
        } catch (const Error& problem) {
            throw wrong_value(setting.param, "'" + setting.param + "': " + problem.what());
        }
    };
    for (const SamplerSetting& setting : request.samplers) {
        if (setting.adds_stage) apply(setting);
    }
    if (request.dynatemp_range > 0.0) use_dynamic_temperature(spec, request.dynatemp_range, request.dynatemp_param);
    if (request.mirostat > 0) use_mirostat(spec, request.mirostat);
    for (SamplerSetting setting : request.samplers) {
        if (setting.stage == "mirostat" && request.mirostat == 1) setting.stage = "mirostat_1";
        if (!setting.adds_stage && has(setting.stage)) apply(setting);
    }
    return spec;
}

void ServedModel::check_grammar(const std::string& language, const std::string& text, const std::string& param) const {
    const std::string refusal = grammars_.refusal(language, text);
    if (!refusal.empty()) throw wrong_value(param, "'" + param + "': " + refusal);
}

// What is not strict promises nothing: a schema that no grammar can keep then means any object.
Json ServedModel::schema_of(const Tool& tool) const {
    const Json any = Json::object({{"type", "object"}});
    const Json& schema = tool.parameters.is_object() ? tool.parameters : any;
    if (tool.strict) {
        check_grammar("json_schema", schema.dump(), tool.param);
    } else if (!grammars_.refusal("json_schema", schema.dump()).empty()) {
        return any;
    }
    return schema;
}

void ServedModel::set_grammar(const GenerationRequest& request, const Prompt& prompt,
                              std::span<const std::int32_t> tokens, samplers::ChainSpec& spec) const {
    const AnswerForm* form = request.form ? &*request.form : nullptr;
    std::string language, text, param = form != nullptr ? form->param : "";
    if (form != nullptr) {
        language = form->is_schema ? "json_schema" : "gbnf";
        text = form->is_schema ? form->schema.dump() : form->gbnf;
        check_grammar(language, text, param);
    }
    if (prompt.conversation && AnswerGrammar::needed(*prompt.conversation, form)) {
        const core::AnswerParser parser(style_.markup, tokenizer(), tokens);
        const AnswerGrammar grammar{format_, style_.markup, parser.in_reasoning(),
                                    [this](const Tool& tool) { return schema_of(tool); }};
        language = "structural_tag";
        text = grammar.text(*prompt.conversation, form);
        if (param.empty()) param = prompt.conversation->call_param.empty() ? "tools" : prompt.conversation->call_param;
        check_grammar(language, text, param);
    }
    if (!language.empty()) Grammars::set(spec, language, text);
}

std::unique_ptr<samplers::Chain> ServedModel::chain(const GenerationRequest& request, const Prompt& prompt,
                                                    std::span<const std::int32_t> tokens) const {
    try {
        samplers::ChainSpec spec = chain_spec(request);
        set_grammar(request, prompt, tokens, spec);
        return engine_.make_chain(spec);
    } catch (const ApiError&) {
        throw;
    } catch (const Error& problem) {
        throw ApiError(Problem::invalid, std::string("the samplers cannot be set up: ") + problem.what(),
                       "invalid_value");
    }
}

}  // namespace foresay::server
