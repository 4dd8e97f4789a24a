#include "core/config/reference.h"

#include "core/config/layers.h"

namespace foresay::core {

namespace {

std::string bound(double value) {
    const auto whole = static_cast<std::int64_t>(value);
    return static_cast<double>(whole) == value ? std::to_string(whole) : to_toml(ConfigValue(value));
}

// The values of a key: "integer, 0 to 1048576", "one of `auto`, `off`".
std::string takes(const KeySpec& spec) {
    std::string out = describe(spec.type);
    for (const std::string_view article : {"an ", "a "}) {
        if (out.starts_with(article)) out.erase(0, article.size());
    }
    if (spec.type == ValueType::path) out = "path";
    for (const std::string& word : spec.words) {
        out += (&word == &spec.words.back() ? " or `" : ", `") + word + "`";
    }
    if (!spec.choices.empty()) {
        out = spec.type == ValueType::choice ? "one of" : out + " out of";
        for (const std::string& choice : spec.choices) {
            out.append(&choice == spec.choices.data() ? " `" : ", `").append(choice).append("`");
        }
    }
    if (spec.min && spec.max) return out + ", " + bound(*spec.min) + " to " + bound(*spec.max);
    if (spec.min) return out + ", " + bound(*spec.min) + " or more";
    return spec.max ? out + ", " + bound(*spec.max) + " or less" : out;
}

std::string cell(std::string text) {
    for (auto bar = text.find('|'); bar != std::string::npos; bar = text.find('|', bar + 2)) text.insert(bar, "\\");
    return text;
}

std::string row(const KeySpec& spec) {
    const std::string name = spec.key.substr(spec.key.rfind('.') + 1);
    return "| `" + name + "` | " + cell(takes(spec)) + " | `" + cell(to_toml(spec.fallback)) + "` | " + cell(spec.doc) +
           " |\n";
}

constexpr const char* kHead = "\n| key | takes | default | means |\n|---|---|---|---|\n";

}  // namespace

std::string to_markdown(std::span<const StageSchema> stages, std::span<const SourceSchema> sources) {
    std::string out =
        "# Configuration reference\n\n"
        "Every key of a configuration, made from the program's own table (`foresay config reference`).\n"
        "How files, variables, flags and `/set` go together: [configuration.md](configuration.md).\n\n"
        "A key is written in its table (`[speculation]`, then `max_draft = 8`), on the command line as\n"
        "`--set speculation.max_draft=8`, in the environment as `" +
        variable_of("speculation.max_draft") + "=8`,\nand in the REPL as `/set speculation.max_draft 8`.\n\n" +
        "At the top of a file, outside all tables, `extends = \"FILE\"` or a list of files names what it builds on.\n";
    const KeySpec known_sources = sources_key(sources);
    std::string table;
    for (const KeySpec& spec : core_schema()) {
        const std::string own = spec.key.substr(0, spec.key.rfind('.'));
        if (own != table && table == "chat") {
            out +=
                "| `template_args` | table | | `[chat.template_args]`: further variables for the model's chat "
                "template, by name |\n";
        }
        if (own != table) out += "\n## [" + own + "]\n" + kHead;
        table = own;
        out += row(spec.key == known_sources.key ? known_sources : spec);
    }
    std::string plugin_rows;
    for (const KeySpec& key : plugin_keys()) plugin_rows += row(key);
    out +=
        "\n## [[plugin]]\n\nOne entry for each sampler plugin that `sampling.chain` names.\n`foresay serve` "
        "also loads others, which requests may name.\n" +
        std::string(kHead) +
        "| `name` | string | | the stage's name in `sampling.chain`; keys its random numbers |\n"
        "| `sampler` | string | the name | the sampler that it is, found on the plugin path by this name; or a "
        "built-in one, to have it twice |\n"
        "| `path` | path | | its file, when it is not on the plugin path |\n" +
        plugin_rows +
        "| `options` | table | | `[plugin.options]`: what the plugin declares, see `foresay plugin show NAME` |\n";
    out += "\n## Built-in stages\n\nA stage acts when `sampling.chain` names it.\n";
    for (const StageSchema& stage : stages) {
        out += "\n### [sampling." + stage.name + "]\n\n" + stage.doc + "\n";
        if (!stage.parameters.empty()) out += kHead;
        for (const KeySpec& spec : stage.parameters) out += row(spec);
    }
    return out;
}

}  // namespace foresay::core
