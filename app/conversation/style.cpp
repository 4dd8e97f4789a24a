#include "app/conversation/style.h"

#include <algorithm>

#include "base/error.h"

namespace foresay::app {

namespace {

core::ChatFormat format_of(const core::Config& config, const core::Tokenizer& tokenizer,
                           const core::OpenedTemplate& chat) {
    if (config.chat_style == "auto") {
        if (chat.chat) return core::ChatFormat::own;
        const auto detected = core::detect_chat_format(tokenizer.chat_template());
        const bool able = detected && tokenizer.find(core::end_of_answer(*detected));
        return able ? *detected : core::ChatFormat::complete;
    }
    const auto format = core::parse_chat_format(config.chat_style);
    check(format.has_value(), "every style of the schema is a format");
    const std::string end(core::end_of_answer(*format));
    if (!end.empty() && !tokenizer.find(end)) {
        throw Error(config.setting("chat.style").origin.text() + ": the style '" + config.chat_style +
                    "' needs the token " + end + ", which the model lacks; use chat.style = \"complete\" or \"auto\"");
    }
    return *format;
}

// What people write in a configuration is no markup.
struct ToValue {
    jinja::Value operator()(bool held) const { return held; }
    jinja::Value operator()(std::int64_t held) const { return held; }
    jinja::Value operator()(double held) const { return held; }
    jinja::Value operator()(const std::string& held) const { return jinja::Text(held, true); }
    template <typename Item>
    jinja::Value operator()(const std::vector<Item>& held) const {
        jinja::List list;
        for (const Item& item : held) list.items.push_back((*this)(item));
        return list;
    }
};

jinja::Value to_value(const core::ConfigValue& value) { return std::visit(ToValue(), value); }

core::Reasoning reasoning_of(const std::string& name) {
    constexpr const char* kNames[] = {"auto", "off", "on", "low", "medium", "high"};
    const auto* found = std::find(std::begin(kNames), std::end(kNames), name);
    check(found != std::end(kNames), "every choice of chat.reasoning is known");
    return static_cast<core::Reasoning>(found - std::begin(kNames));
}

core::ChatOptions options_of(const core::Config& config, const core::ChatTemplate& chat) {
    core::ChatOptions options;
    options.reasoning = reasoning_of(config.chat_reasoning);
    if (const std::string problem = chat.why_not(options.reasoning); !problem.empty()) {
        throw Error(config.setting("chat.reasoning").origin.text() + ": chat.reasoning is '" + config.chat_reasoning +
                    "', but " + problem);
    }
    try {
        options.date = core::chat_date(config.chat_date);
    } catch (const Error& problem) {
        throw Error(config.setting("chat.date").origin.text() + ": chat.date " + problem.what());
    }
    for (const auto& [name, setting] : config.template_args()) {
        if (name == "tools") {
            options.tools = to_value(setting.value);
        } else if (name == "documents") {
            options.documents = to_value(setting.value);
        } else {
            options.arguments.emplace_back(name, to_value(setting.value));
        }
    }
    return options;
}

}  // namespace

FimOrder fim_order(const core::Config& config) {
    return config.chat_fim_order == "spm" ? FimOrder::spm : FimOrder::psm;
}

ChatStyle chat_style(const core::Config& config, const core::Tokenizer& tokenizer, const core::OpenedTemplate& chat) {
    const core::ChatFormat format = format_of(config, tokenizer, chat);
    if (format != core::ChatFormat::own && !config.chat_template.empty()) {
        throw Error(config.setting("chat.template").origin.text() +
                    ": chat.template names a template, but chat.style (" + config.setting("chat.style").origin.text() +
                    ") is '" + config.chat_style + "'; set chat.style = \"auto\" to use it");
    }
    ChatStyle style{format, config.chat_system, config.chat_newline, fim_order(config)};
    if (format == core::ChatFormat::own) {
        style.chat = chat.chat;
        style.options = options_of(config, *chat.chat);
        style.markup = chat.chat->markup();
        // What a file with another template does not say, the model's own does.
        if (style.markup.none()) style.markup = core::detect_answer_markup(tokenizer.chat_template(), tokenizer);
        if (!chat.chat->why_no_system().empty()) style.system.clear();
    } else if (format != core::ChatFormat::complete) {
        style.markup = core::detect_answer_markup(tokenizer.chat_template(), tokenizer);
    }
    return style;
}

std::string why_no_system(const ChatStyle& style) {
    if (style.format == core::ChatFormat::complete) {
        return "the style complete has no place for a system prompt: what you write is the document";
    }
    if (style.chat && !style.chat->why_no_system().empty()) {
        return "the model's chat template has no place for a system prompt (" + style.chat->why_no_system() + ")";
    }
    return {};
}

std::string unused_system_notice(const core::Config& config, const core::Tokenizer& tokenizer,
                                 const core::OpenedTemplate& chat) {
    if (config.chat_system.empty()) return {};
    const std::string why = why_no_system(chat_style(config, tokenizer, chat));
    if (why.empty()) return {};
    const std::string place = config.setting("chat.system").origin.text() + ": the system prompt is not used, because ";
    if (format_of(config, tokenizer, chat) == core::ChatFormat::own) return place + why;
    return place + "the style complete has no place for one; what you write is the document";
}

std::string unusable_template_notice(const core::Config& config, const core::Tokenizer& tokenizer,
                                     const core::OpenedTemplate& chat) {
    if (config.chat_style != "auto" || chat.problem.empty()) return {};
    const core::ChatFormat format = format_of(config, tokenizer, chat);
    return "the model's chat template cannot be used (" + chat.problem + "), so " +
           (format == core::ChatFormat::complete ? "the model continues what you write as a document"
                                                 : "the format " + std::string(core::name(format)) + " is used") +
           "; chat.template names another, chat.style a format";
}

}  // namespace foresay::app
