// foresay tokenize: prints the token ids of a text. Reads no weights.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "app/command_line/command.h"
#include "app/command_line/parser.h"
#include "app/configuration.h"
#include "app/conversation/prompt.h"
#include "app/files.h"
#include "app/options.h"
#include "app/output.h"
#include "base/error.h"
#include "core/chat/style.h"
#include "core/text/tokenizer.h"

namespace foresay::app {

namespace {

class Tokenize : public Command {
public:
    void declare(OptionParser& parser) override {
        add_common_options(parser, options_);
        refuse_shape(parser, options_);
        add_config_argument(parser, options_);
        add_text_file_option(parser, file_, "the text");
        parser.flag("--no-special", no_special_, "add no BOS token, and read the text of special tokens as plain text");
        parser.flag("--chat", chat_,
                    "the text is a message: print the prompt that the model's chat format makes of it");
        parser.exclude("--chat", "--no-special");
        add_json_flag(parser, json_);
        parser.after_parsing([this] {
            std::error_code ignored;
            if (options_.config.empty() || std::filesystem::exists(options_.config, ignored)) return;
            throw UsageError("there is no configuration file '" + options_.config +
                             "'; a text comes from -f FILE or standard input");
        });
    }

    int run() override {
        const Configuration configuration(options_);
        const core::Tokenizer tokenizer = core::Tokenizer::open(configuration.config().target_model);
        const std::string text = read_text(file_, "the text");
        const std::vector<std::int32_t> ids = chat_ ? of_message(configuration.config(), tokenizer, text)
                                                    : tokenizer.encode(text, {!no_special_, !no_special_});
        if (json_) {
            print(nlohmann::json({{"token_ids", ids}}).dump() + "\n");
            return 0;
        }
        std::string out;
        for (const std::int32_t id : ids) {
            if (!out.empty()) out += ' ';
            out += std::to_string(id);
        }
        print(out + "\n");
        return 0;
    }

private:
    static std::vector<std::int32_t> of_message(const core::Config& config, const core::Tokenizer& tokenizer,
                                                const std::string& text) {
        const core::OpenedTemplate chat = core::open_chat_template(tokenizer, config.chat_template);
        const std::string unusable = unusable_template_notice(config, tokenizer, chat);
        if (!unusable.empty()) complain("foresay: " + unusable);
        const core::ChatStyle style = chat_style(config, tokenizer, chat);
        if (style.format == core::ChatFormat::complete) {
            throw Error("--chat: the model has no chat format here; without --chat, the text is tokenised as it is");
        }
        return encode_message(tokenizer, style, text);
    }

    Options options_;
    std::string file_;
    bool chat_ = false, no_special_ = false, json_ = false;
};

const RegisterCommand<Tokenize> kTokenize("tokenize", "print the token ids of a text", CommandGroup::models);

}  // namespace

}  // namespace foresay::app
