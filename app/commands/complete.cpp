// foresay complete: one completion, streamed to standard output.
#include <algorithm>
#include <filesystem>
#include <system_error>

#include "app/command_line/command.h"
#include "app/command_line/parser.h"
#include "app/files.h"
#include "app/interrupt.h"
#include "app/opened_engine.h"
#include "app/options.h"
#include "app/output.h"
#include "app/statistics.h"
#include "base/error.h"
#include "core/text/bounded_encode.h"

namespace foresay::app {

namespace {

constexpr std::int32_t kDefaultTokens = 256;

class Complete : public Command {
public:
    void declare(OptionParser& parser) override {
        add_common_options(parser, options_);
        add_inflation_options(parser, options_);
        add_config_argument(parser, options_);
        parser.option("-p", prompt_, {.value = "TEXT", .doc = "the prompt", .any_text = true, .once = true});
        add_text_file_option(parser, file_, "the prompt");
        parser.exclude("-f", "-p");
        parser.after_parsing([this] { check_prompt(); });
        add_max_tokens_option(parser, max_tokens_,
                              "generate at most N tokens; 0: to the end of the context [default: " +
                                  std::to_string(kDefaultTokens) + "]");
        add_sampling_options(parser, options_);
        add_temperature_option(parser, options_);
        parser.option_list("--stop", stop_,
                           {.value = "TEXT", .doc = "stop before this text (repeatable)", .any_text = true});
        parser.flag("--ignore-eos", ignore_eos_, "keep generating after an end-of-text token");
        add_json_flag(parser, json_);
        parser.flag("--token-ids", token_ids_, "print token ids instead of text");
    }

    int run() override {
        const std::string prompt = prompt_ ? *prompt_ : read_text(file_, "the prompt", "-p TEXT");
        if (prompt.empty()) throw Error("the prompt is empty, so there is nothing to complete");
        EngineNeeds needs;
        needs.speculating = true;
        OpenedEngine engine(options_, needs);
        speculative::Generator generator = engine.make_generator();
        const std::vector<std::int32_t> tokens =
            core::encode_within(engine.tokenizer(), prompt, {}, engine.context_length(), "the prompt");

        speculative::GenerateRequest request;
        request.input = tokens;
        request.max_tokens =
            static_cast<std::int32_t>(std::min<std::int64_t>(max_tokens_.value_or(kDefaultTokens), 1 << 30));
        request.seed = engine.config().seed;
        request.branch = engine.config().branch;
        request.stop = stop_;
        request.ignore_eos = ignore_eos_;
        request.cancel = &interrupted();
        const speculative::GenerateResult result = generator.generate(request, printer());
        engine.report_stages(generator.chain());
        if (json_) {
            const core::Config& config = engine.config();
            print(completion_json(result, config.seed, config.branch, engine.load_ms(), engine.inflated()) + "\n");
        } else if (token_ids_ || (stdout_is_terminal() && !result.text.empty() && !result.text.ends_with('\n'))) {
            print("\n");
        }
        return result.finish == speculative::FinishReason::cancelled ? kCancelled : 0;
    }

private:
    void check_prompt() const {
        if (prompt_ && prompt_->empty()) throw UsageError("-p: the prompt is empty, so there is nothing to complete");
        std::error_code ignored;
        if (prompt_ || !file_.empty() || options_.config.empty() || std::filesystem::exists(options_.config, ignored))
            return;
        throw UsageError("there is no configuration file '" + options_.config + "'; a prompt is written with -p TEXT");
    }

    // Prints each token as it comes; with --json, nothing, because the object is printed at the end.
    speculative::TokenCallback printer() const {
        if (json_) return {};
        if (token_ids_) {
            return [first = true](const speculative::TokenEvent& event) mutable {
                print((first ? "" : " ") + std::to_string(event.token));
                first = false;
            };
        }
        return [](const speculative::TokenEvent& event) {
            if (!event.text.empty()) print(event.text);
        };
    }

    Options options_;
    std::optional<std::string> prompt_;
    std::string file_;
    std::optional<std::int64_t> max_tokens_;
    std::vector<std::string> stop_;
    bool ignore_eos_ = false, json_ = false, token_ids_ = false;
};

const RegisterCommand<Complete> kComplete("complete", "print one completion of a prompt", CommandGroup::generate);

}  // namespace

}  // namespace foresay::app
