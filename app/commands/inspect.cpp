// foresay inspect: shows what a model file contains; for two, whether the second can draft for the first.
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "app/command_line/command.h"
#include "app/command_line/parser.h"
#include "app/configuration.h"
#include "app/hub_models.h"
#include "app/interrupt.h"
#include "app/model_report.h"
#include "app/opened_engine.h"
#include "app/options.h"
#include "app/output.h"
#include "app/pager.h"
#include "app/progress.h"
#include "app/verify.h"
#include "base/error.h"
#include "core/chat/chat_template.h"
#include "core/models/shapes.h"
#include "core/weights/checksums.h"
#include "core/weights/gguf.h"
#include "core/weights/model_file.h"
#include "core/weights/safetensors.h"
#include "engine/backend.h"
#include "kernels/divided_ops.h"
#include "kernels/kv_names.h"
#include "kernels/split_ops.h"
#include "speculative/memory_estimate.h"
#include "speculative/pairing.h"

namespace foresay::app {

namespace {

std::string shape_text(const core::TensorInfo& tensor) {
    std::string out;
    for (const std::int64_t size : tensor.shape) out += (out.empty() ? "" : " x ") + std::to_string(size);
    return out;
}

std::string tensors_text(const core::TensorTable& table) {
    struct Sum {
        std::int64_t tensors = 0, elements = 0, bytes = 0;
    };
    std::map<std::string, Sum> by_type;
    Sum all;
    std::string out = "tensors\n";
    for (const core::TensorInfo& tensor : table.list()) {
        out += field(tensor.name, tensor.type + "  " + shape_text(tensor));
        for (Sum* sum : {&by_type[tensor.type], &all}) {
            sum->tensors += 1;
            sum->elements += tensor.elements();
            sum->bytes += tensor.bytes;
        }
    }
    out += "sizes\n";
    const auto line = [](const Sum& sum) {
        return std::to_string(sum.tensors) + " tensors, " + std::to_string(sum.elements) + " values, " +
               speculative::format_bytes(sum.bytes);
    };
    for (const auto& [type, sum] : by_type) out += field(type, line(sum));
    return out + field("all", line(all));
}

std::string gguf_text(const core::GgufFile& file) {
    std::string out = "metadata (GGUF version " + std::to_string(file.version()) + ")\n";
    for (const core::GgufEntry& entry : file.metadata()) out += field(std::string(entry.key), file.describe(entry));
    return out + tensors_text(file.tensors());
}

bool layers_differ(const core::ModelConfig& config) {
    const std::vector<kernels::KvLayer> layers = core::kv_shape(config).layers;
    return std::ranges::any_of(layers, [&](const kernels::KvLayer& layer) { return layer != layers.front(); });
}

// "4 layers see 1024 positions, 2 all"; empty when all layers see everything.
std::string windows_text(const core::ModelConfig& config) {
    std::map<std::int32_t, int> layers;  // by window
    for (std::int32_t i = 0; i < config.shape.layers; ++i) ++layers[core::layer_config(config, i).window];
    if (layers.size() == 1 && layers.contains(0)) return {};
    std::string text;
    for (const auto& [window, count] : layers) {
        text += (text.empty() ? "" : ", ") + std::to_string(count) + (count == 1 ? " layer sees " : " layers see ") +
                (window > 0 ? std::to_string(window) + " positions" : "all");
    }
    return text;
}

std::string model_text(const core::ModelConfig& config) {
    const kernels::ModelShape& shape = config.shape;
    std::string out = "model\n";
    out += field("architecture", config.architecture + (config.name.empty() ? "" : " (" + config.name + ")"));
    out += field("layers, width, feed-forward", std::to_string(shape.layers) + ", " + std::to_string(shape.d_model) +
                                                    ", " + std::to_string(shape.d_ff));
    out += field("heads", std::to_string(shape.heads) + " query, " + std::to_string(shape.kv_heads) + " key-value, " +
                              std::to_string(shape.head_dim) + " wide" + (layers_differ(config) ? " at most" : ""));
    if (const std::string windows = windows_text(config); !windows.empty()) out += field("attention", windows);
    if (const core::ExpertConfig& e = config.experts; e.count > 0) {
        out += field("experts", std::to_string(e.count) + ", of which " + std::to_string(e.used) + " a token, " +
                                    std::to_string(e.d_ff) + " wide" +
                                    (e.shared_ff > 0 ? ", and shared ones, " + std::to_string(e.shared_ff) : ""));
    }
    out += field("vocabulary", std::to_string(shape.vocab) + (config.tied_head ? ", tied head" : ""));
    out += field("context", std::to_string(config.context_length));
    out += field("weights", config.file_type);
    for (const std::string& note : config.notes) out += field("note", note);
    return out;
}

// What a chat template can do, or why it cannot be used.
std::string template_text(const core::Tokenizer& tokenizer, const std::string& source) {
    try {
        const core::ChatTemplate chat(source, tokenizer);
        std::string out = "compiles; " + std::string(chat.why_no_system().empty() ? "" : "no ") + "system prompt";
        if (chat.takes_tools()) out += ", tools";
        if (!chat.markup().none()) out += ", reasoning (" + chat.markup().describe() + ")";
        if (chat.switches_reasoning()) out += ", reasoning can be switched off";
        if (chat.takes_effort()) out += ", reasoning effort";
        if (chat.writes_date()) out += ", the date";
        for (const std::int32_t end : chat.ends()) out += "; answers end with " + std::string(tokenizer.text(end));
        return out;
    } catch (const Error& problem) {
        return std::string("cannot be used: ") + problem.what();
    }
}

std::string templates_text(const core::ModelSource& source) {
    const auto tokenizer = core::Tokenizer::of_optional(source);
    if (!tokenizer) return {};
    if (tokenizer->chat_templates().empty()) return field("chat template", "none: foresay chat continues a document");
    std::string out;
    for (const core::NamedTemplate& one : tokenizer->chat_templates()) {
        const std::string name = one.name == "default" ? "" : " " + one.name;
        out += field("chat template" + name, template_text(*tokenizer, one.source));
    }
    return out;
}

// The backend that `foresay chat` would use here.
std::unique_ptr<kernels::Ops> backend(const Options& options) {
    const core::Config config = Configuration(options).config();
    return engine::open_backend(config, engine::choose_backend(config));
}

// What `complete` would say of the model at `path`; empty when it can run here.
std::string why_not(const std::string& path, core::ModelSource& source, const Options& options, ModelReport& report) {
    Options alone = options;
    override_key(alone, "--model", "target.model", core::to_toml(core::ConfigValue(path)));
    alone.overrides.back().text += "\ndraft.model = \"\"";
    EngineNeeds needs;
    needs.draft = false;
    needs.weights = false;
    try {
        const OpenedEngine engine(alone, needs);
        report.backend = engine.backend();
        report.placement = engine.placement();
        expect_speed(engine.ops(), source, report);
    } catch (const Error& problem) {
        std::string text = problem.what();
        const std::string place = "--model: ";
        return text.starts_with(place) ? text.substr(place.size()) : text;
    }
    return "";
}

// ModelReport::cache_page on the backend that would be used here; empty where there is none.
std::vector<std::pair<std::string, std::int64_t>> cache_page(const core::ModelConfig& config, const Options& options) {
    std::vector<std::pair<std::string, std::int64_t>> pages;
    try {
        const auto ops = backend(options);
        for (const kernels::KvFormat format : kernels::all_kv_formats()) {
            if (key_type(format) != value_type(format)) continue;
            pages.emplace_back(kernels::name(format), ops->kv_bytes(core::kv_shape(config), 1, format));
        }
    } catch (const Error&) {
        // why_not() says it, or the heads are too odd for the formats that follow.
    }
    return pages;
}

// What the file says, for people; fills in `report`.
std::string inspect_one(const std::string& path, const Options& options, ModelReport& report) {
    report.path = path;
    std::string out = path + "\n";
    if (core::detect_model_format(path) == core::ModelFormat::gguf) {
        const core::GgufFile file = core::GgufFile::open(path);
        out += gguf_text(file);
        describe_tensors(file.tensors(), report);
    } else {
        const core::SafetensorsDir directory = core::SafetensorsDir::open(path);
        out += "config.json\n" + directory.config().text() + "\n" + tensors_text(directory.tensors());
        describe_tensors(directory.tensors(), report);
    }
    // A file with only a vocabulary, or of an unknown architecture, has been shown all the same.
    try {
        const auto source = core::ModelSource::open(path);
        describe_weights(*source, report);
        out += model_text(source->config());
        out += templates_text(*source);
        report.cache_page = cache_page(source->config(), options);
        report.problem = why_not(path, *source, options, report);
        out += weights_text(report);
    } catch (const Error& error) {
        out += "model\n";
        report.problem = error.what();
    }
    out += report.problem.empty() ? field("would run on", report.backend) : field("cannot run here", report.problem);
    return out + placement_text(report);
}

std::vector<VerifiedFile> verify_one(const std::string& path) {
    core::detect_model_format(path);  // refuses what is no model
    Progress shown("reading " + path);
    std::int64_t done = 0, all = 0;
    for (const auto& file : core::model_files(path)) {
        std::error_code problem;
        const auto size = std::filesystem::file_size(file, problem);
        if (!problem) all += static_cast<std::int64_t>(size);
    }
    return verify_model(path, [&](std::int64_t bytes) {
        if (interrupted()) throw Error("cancelled");
        shown.update(done += bytes, all);
    });
}

std::string verified_text(const VerifiedFile& one) {
    const auto list = [](const std::vector<std::string>& names) {
        std::string text;
        for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
        return text;
    };
    const std::string name = one.file.string() + ": ";
    if (!one.known()) return name + "no checksum is known; its SHA-256 is " + one.sha256;
    if (one.differing.empty()) return name + "ok (" + list(one.agreeing) + ")";
    return name + "DIFFERS from " + list(one.differing) + (one.sha256.empty() ? "" : "; its SHA-256 is " + one.sha256);
}

// Compares the files of each model with the digests that are known for them.
int verify(const std::vector<std::string>& paths) {
    std::size_t files = 0, differing = 0, unknown = 0;
    for (const std::string& path : paths) {
        for (const VerifiedFile& one : verify_one(path)) {
            ++files;
            differing += one.differing.empty() ? 0 : 1;
            unknown += one.known() ? 0 : 1;
            print(printable(verified_text(one)) + "\n");
        }
    }
    const std::string of = " of " + std::to_string(files) + (files == 1 ? " file" : " files");
    if (differing > 0) {
        throw Error(std::to_string(differing) + of + (differing == 1 ? " differs" : " differ") +
                    " from the checksum that is known; get the model again");
    }
    if (unknown > 0) {
        throw Error("no checksum is known for " + std::to_string(unknown) + of +
                    "; compare the SHA-256 with the one that the model's publisher gives");
    }
    return 0;
}

std::string memory_line(const speculative::MemoryEstimate& estimate) {
    return speculative::format_bytes(estimate.total()) + ": weights " + speculative::format_bytes(estimate.weights) +
           ", cache " + speculative::format_bytes(estimate.cache) + ", working memory " +
           speculative::format_bytes(estimate.activations);
}

speculative::MemoryEstimate memory(core::ModelSource& source, std::int32_t length, kernels::KvFormat format,
                                   const kernels::Ops& ops) {
    core::ContextOptions options;
    options.kv_format = format;
    options.length = std::min(length, source.config().context_length);
    options.decode_rows = EngineNeeds{}.decode_rows;
    options.prefill_rows = std::min(ops.prefill_rows(), options.length);
    return speculative::estimate_memory(source, options, ops);
}

// The context to assume, in positions: --context, or the program's default.
std::int32_t context_of(const core::ModelSource& target, std::optional<std::int64_t> context) {
    const std::int32_t longest = target.config().context_length;
    return static_cast<std::int32_t>(std::min<std::int64_t>(context.value_or(EngineNeeds{}.default_context), longest));
}

std::string memory_heading(std::int32_t length, const kernels::Ops& ops) {
    return "memory with a context of " + std::to_string(length) + " positions (--context N for another)\n" +
           field("on", engine::backend_text(ops));
}

std::string available_text(std::int64_t needed, const kernels::Ops& ops) {
    // Of several devices each has its own; inspecting the model alone shows them.
    if (dynamic_cast<const kernels::SplitOps*>(&ops) != nullptr ||
        dynamic_cast<const kernels::DividedOps*>(&ops) != nullptr) {
        return "";
    }
    const std::int64_t own = ops.free_memory();  // of a device
    const std::int64_t available = own >= 0 ? own : speculative::available_memory();
    return field("available now",
                 speculative::format_bytes(available) + (needed <= available ? "" : ": not enough; lower --context"));
}

// The memory that both models take together.
std::string memory_text(core::ModelSource& target, core::ModelSource& draft, const Options& options) {
    const auto ops = backend(options);
    const std::int32_t length = context_of(target, options.context);
    const kernels::KvFormat format = Configuration(options).config().kv_format;
    const speculative::MemoryEstimate large = memory(target, length, format, *ops);
    const speculative::MemoryEstimate small = memory(draft, length, format, *ops);
    speculative::MemoryEstimate both = large;
    both += small;
    std::string out = memory_heading(length, *ops);
    out += field("target", memory_line(large));
    out += field("draft", memory_line(small));
    out += field("both", memory_line(both));
    out += available_text(both.total(), *ops);
    const std::int64_t percent = large.weights > 0 ? small.weights * 100 / large.weights : 0;
    out += field("a drafted token reads", std::to_string(percent) + " % of the bytes that a target token reads");
    if (percent > 50)
        out += "  the draft model is too large to pay off; name the large model first, then a much smaller one\n";
    return out;
}

// The model at `path`, inflated to `shape` if one is named. Creates none of the large weights.
std::unique_ptr<core::ModelSource> open_inflated(const std::string& path, const std::string& shape,
                                                 const std::string& quant_type) {
    auto source = core::ModelSource::open(path);
    if (shape.empty()) return source;
    return core::ModelSource::inflate(std::move(source), shape, core::quant_type_by_name(quant_type));
}

int inspect_pair(const std::string& target_path, const std::string& draft_path, const Options& options) {
    const auto target = open_inflated(target_path, options.inflate, options.quant_type);
    const auto draft = open_inflated(draft_path, options.inflate_draft, options.draft_quant_type);
    const auto target_tokens = core::Tokenizer::of_optional(*target);
    const auto draft_tokens = core::Tokenizer::of_optional(*draft);
    for (const auto* source : {target.get(), draft.get()}) {
        print(printable(source->path() + "\n" + model_text(source->config())));
    }
    speculative::Pairing pairing;
    try {
        pairing = speculative::check_pairing({target->config(), target_tokens ? &*target_tokens : nullptr, target_path},
                                             {draft->config(), draft_tokens ? &*draft_tokens : nullptr, draft_path});
    } catch (const Error& problem) {
        print(printable(std::string("they cannot pair: ") + problem.what() + "\n"));
        return 1;
    }
    print("they can pair: the second can draft for the first\n");
    if (!pairing.explanation.empty()) print(printable(pairing.explanation + "\n"));
    print(memory_text(*target, *draft, options));
    return 0;
}

// The model and its memory after inflation.
int inspect_inflated(const std::string& path, const Options& options) {
    const auto source = open_inflated(path, options.inflate, options.quant_type);
    const std::int32_t length = context_of(*source, options.context);
    const auto ops = backend(options);
    const speculative::MemoryEstimate estimate =
        memory(*source, length, Configuration(options).config().kv_format, *ops);
    print(printable(source->path() + "\n" + model_text(source->config())));
    print(memory_heading(length, *ops) + field("model", memory_line(estimate)) +
          available_text(estimate.total(), *ops));
    return 0;
}

class Inspect : public Command {
public:
    void declare(OptionParser& parser) override {
        add_common_options(parser, options_);
        parser.over_hosts(options_);
        add_inflation_options(parser, options_);
        add_no_pager_flag(parser);
        parser.argument_list(
            paths_,
            {.value = "PATH", .doc = "model; with two, the draft second", .hint = ValueHint::file, .required = true});
        add_json_flag(parser, json_);
        parser.flag("--verify", verify_, "compare the files with their checksums instead of showing them");
        parser.details(
            "--verify knows checksums from SHA256SUMS and XXH128SUMS beside a file, and from\n"
            "the metadata and file names of the Hugging Face Hub and of ollama.\n");
        parser.after_parsing([this] {
            const bool inflated = !options_.inflate.empty() || !options_.inflate_draft.empty();
            const bool one = paths_.size() == 1 && options_.inflate_draft.empty();
            if (json_ && (verify_ || inflated || paths_.size() == 2)) {
                throw UsageError("inspect --json is for one model, or three and more, without --verify and --inflate");
            }
            if (inflated && !one && paths_.size() != 2) {
                throw UsageError("inspect takes one model with --inflate, or a pair with --inflate-draft as well");
            }
        });
    }

    int run() override {
        for (std::string& path : paths_) {
            if (core::names_hub_model(path)) path = find_or_pull_model(path).string();
        }
        if (verify_) return verify(paths_);
        if (paths_.size() == 2) return inspect_pair(paths_[0], paths_[1], options_);
        if (!options_.inflate.empty()) return inspect_inflated(paths_[0], options_);
        bool all_run = true;
        for (const std::string& path : paths_) {
            ModelReport report;
            const std::string text = inspect_one(path, options_, report);
            all_run = all_run && report.problem.empty();
            if (json_) {
                print(to_json(report));
            } else {
                page(printable(text));
            }
        }
        return all_run ? 0 : 1;
    }

private:
    Options options_;
    std::vector<std::string> paths_;
    bool verify_ = false, json_ = false;
};

const RegisterCommand<Inspect> kInspect("inspect", "show what a model file contains, or whether two models can pair",
                                        CommandGroup::models);

}  // namespace

}  // namespace foresay::app
