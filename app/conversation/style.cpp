#include "app/conversation/style.h"

#include "base/error.h"

namespace foresay::app {

namespace {

core::ChatFormat format_of(const core::Config& config, const core::Tokenizer& tokenizer) {
    if (config.chat_style == "auto") {
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

}  // namespace

FimOrder fim_order(const core::Config& config) {
    return config.chat_fim_order == "spm" ? FimOrder::spm : FimOrder::psm;
}

ChatStyle chat_style(const core::Config& config, const core::Tokenizer& tokenizer) {
    return {format_of(config, tokenizer), config.chat_system, config.chat_newline, fim_order(config)};
}

std::string unused_system_notice(const core::Config& config, const core::Tokenizer& tokenizer) {
    if (config.chat_system.empty() || format_of(config, tokenizer) != core::ChatFormat::complete) return {};
    return config.setting("chat.system").origin.text() +
           ": the system prompt is not used, because the style complete has no place for one; what you write is the "
           "document";
}

std::string unknown_format_notice(const core::Config& config, const core::Tokenizer& tokenizer) {
    if (config.chat_style != "auto" || tokenizer.chat_template().empty()) return {};
    if (format_of(config, tokenizer) != core::ChatFormat::complete) return {};
    return "the model's chat template is not one of those that foresay knows (llama3, chatml and mistral), so the "
           "model continues what you write as a document; /set chat.style NAME chooses a format";
}

}  // namespace foresay::app
