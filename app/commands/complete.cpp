// foresay complete: one completion, streamed to standard output. With --fim, the text that is missing at a place in a
// file: the generated text up to where the hole ends (app/edits/hole.h).
#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "app/command_line/command.h"
#include "app/command_line/parser.h"
#include "app/conversation/prompt.h"
#include "app/conversation/source_files.h"
#include "app/edits/file_text.h"
#include "app/edits/hole.h"
#include "app/edits/target_file.h"
#include "app/files.h"
#include "app/interrupt.h"
#include "app/opened_engine.h"
#include "app/options.h"
#include "app/output.h"
#include "app/statistics.h"
#include "base/error.h"
#include "core/chat/style.h"
#include "core/text/bounded_encode.h"
#include "core/text/stop_strings.h"
#include "engine/unfinished.h"

namespace foresay::app {

namespace {

constexpr std::int32_t kDefaultTokens = 256;

class Complete : public Command {
public:
    void declare(OptionParser& parser) override {
        add_common_options(parser, options_);
        refuse_shape(parser, options_);
        parser.over_hosts(options_);
        add_inflation_options(parser, options_);
        add_config_argument(parser, options_);
        parser.option("-p", prompt_, {.value = "TEXT", .doc = "the prompt", .any_text = true, .once = true});
        add_text_file_option(parser, file_, "the prompt");
        parser.exclude("-f", "-p");
        parser.flag("--chat", chat_,
                    "the prompt is a message to the model, in its chat format; reasoning is not printed, and is a "
                    "field of its own with --json");
        const auto take_place = [this](const std::string& text) {
            try {
                place_ = parse_place(text);
            } catch (const Error& problem) {
                throw UsageError(std::string("--fim: ") + problem.what());
            }
        };
        parser.option(
            "--fim", take_place,
            {.value = "FILE:LINE[:COLUMN]",
             .doc = "fill in the middle: print the text to insert at this place, without COLUMN at the end of "
                    "the line; FILE - is standard input",
             .hint = ValueHint::file});
        parser.flag("--write", write_, "insert the text of --fim into FILE, too");
        parser.exclude("--fim", "-p");
        parser.exclude("--fim", "-f");
        parser.exclude("--fim", "--chat");
        parser.after_parsing([this] { check_prompt(); });
        add_max_tokens_option(parser, max_tokens_,
                              "generate at most N tokens; 0: to the end of the context [default: " +
                                  std::to_string(kDefaultTokens) + "]");
        add_sampling_options(parser, options_);
        add_temperature_option(parser, options_);
        add_grammar_options(parser, options_);
        for (const char* option : {"--json-schema", "--grammar"}) parser.exclude("--fim", option);
        parser.option_list("--stop", stop_,
                           {.value = "TEXT", .doc = "stop before this text (repeatable)", .any_text = true});
        parser.flag("--ignore-eos", ignore_eos_,
                    "keep generating after an end-of-text token, except under a grammar, whose text ends there");
        parser.option("--prediction", prediction_file_,
                      {.value = "FILE",
                       .doc = "draft from this text, which the answer is expected to repeat in large parts: the answer "
                              "is the same and comes sooner",
                       .hint = ValueHint::file,
                       .once = true});
        parser.exclude("--fim", "--prediction");
        parser.exclude("--chat", "--stop");
        add_json_flag(parser, json_);
        parser.flag("--token-ids", token_ids_, "print token ids instead of text");
        parser.exclude("--fim", "--ignore-eos");
        parser.exclude("--fim", "--token-ids");
        parser.after_parsing([this] {
            if (write_ && !place_) throw UsageError("--write needs --fim FILE:LINE");
            if (write_ && place_->file == "-") throw UsageError("--write: standard input cannot be written");
        });
    }

    int run() override {
        // Whatever needs no model is checked before one is loaded, which may take long.
        const core::StopStrings stops(stop_);
        if (place_) return fill();
        const std::string prompt = prompt_ ? *prompt_ : read_text(file_, "the prompt", "-p TEXT");
        if (prompt.empty()) throw Error("the prompt is empty, so there is nothing to complete");
        if (!prediction_file_.empty()) predicted_ = read_text(prediction_file_, "the prediction", "--prediction FILE");
        EngineNeeds needs;
        needs.speculating = true;
        OpenedEngine engine(options_, needs);
        if (chat_) return chat(engine, prompt);
        speculative::Generator generator = engine.make_generator();
        const std::vector<std::int32_t> tokens =
            core::encode_within(engine.tokenizer(), prompt, {}, engine.context_length(), "the prompt");

        const std::vector<std::int32_t> prediction = encode_prediction(engine);
        speculative::GenerateRequest request = request_for(engine);
        request.input = tokens;
        request.prediction = prediction;
        const speculative::GenerateResult result = generator.generate(request, printer());
        return report(engine, generator, result);
    }

private:
    std::int64_t max_tokens() const { return std::min<std::int64_t>(max_tokens_.value_or(kDefaultTokens), 1 << 30); }

    speculative::GenerateRequest request_for(const OpenedEngine& engine) const {
        speculative::GenerateRequest request;
        request.max_tokens = static_cast<std::int32_t>(max_tokens());
        request.seed = engine.config().seed;
        request.branch = engine.config().branch;
        request.stop = stop_;
        request.ignore_eos = ignore_eos_;
        request.cancel = &interrupted();
        return request;
    }

    // The tokens of --prediction, as many as an answer can have.
    std::vector<std::int32_t> encode_prediction(const OpenedEngine& engine) const {
        if (predicted_.empty()) return {};
        const auto most = static_cast<std::size_t>(engine.context_length());
        core::EncodeOptions plain{.add_special = false, .parse_special = false};
        plain.enough = most;
        std::vector<std::int32_t> tokens = engine.tokenizer().encode(predicted_, plain);
        tokens.resize(std::min(tokens.size(), most));
        return tokens;
    }

    int chat(OpenedEngine& engine, const std::string& message) {
        const core::Tokenizer& tokenizer = engine.tokenizer();
        const ChatStyle style = chat_style(engine.config(), tokenizer, engine.chat_template());
        if (style.format == core::ChatFormat::complete) {
            throw Error("--chat: the model has no chat format here; without --chat, it continues the prompt");
        }
        const std::string unused = unused_system_notice(engine.config(), tokenizer, engine.chat_template());
        if (!unused.empty()) complain("foresay: " + unused);
        core::encode_within(tokenizer, message, {}, engine.context_length(), "the prompt");  // throws if it is too long
        const std::vector<std::int32_t> tokens = encode_message(tokenizer, style, message);
        speculative::Generator generator = engine.make_generator();
        const std::vector<std::int32_t> prediction = encode_prediction(engine);
        speculative::GenerateRequest request = request_for(engine);
        request.input = tokens;
        request.prediction = prediction;
        core::AnswerParser parser(style.markup, tokenizer, tokens);
        std::string content, reasoning;
        std::vector<core::AnswerPart> parts;
        const speculative::TokenCallback print_ids = printer();
        const auto give = [&] {
            for (const core::AnswerPart& part : parts) {
                (part.reasoning ? reasoning : content) += part.text;
                if (!part.reasoning && !json_ && !token_ids_) print(part.text);
            }
            parts.clear();
        };
        speculative::GenerateResult result = generator.generate(request, [&](const speculative::TokenEvent& event) {
            if (event.token < 0) return;
            if (token_ids_ && print_ids) print_ids(event);
            parser.push(event.token, parts);
            give();
        });
        parser.finish(parts);
        give();
        result.text = content;
        return report(engine, generator, result, style.markup.none() ? nullptr : &reasoning);
    }

    int report(OpenedEngine& engine, speculative::Generator& generator, const speculative::GenerateResult& result,
               const std::string* reasoning = nullptr) {
        engine.report_stages(generator.chain());
        std::string unfinished;
        if (result.finish == speculative::FinishReason::length)
            unfinished = engine::unfinished_stage(engine, generator.chain().spec(), result.tokens);
        if (!unfinished.empty())
            complain("foresay: " + engine::unfinished_text(unfinished, result.tokens.size(), max_tokens(), "-n"));
        if (json_) {
            const core::Config& config = engine.config();
            print(completion_json(result, config.seed, config.branch, engine.load_ms(), engine.inflated(), reasoning,
                                  unfinished) +
                  "\n");
        } else if (token_ids_ || (stdout_is_terminal() && !result.text.empty() && !result.text.ends_with('\n'))) {
            print("\n");
        }
        return result.finish == speculative::FinishReason::cancelled ? kCancelled : 0;
    }

    int fill() {
        TargetFile target;
        // The user names the file here, so it may be anywhere.
        if (write_) target = read_target(place_->file, {.outside = true, .must_exist = true});
        std::string bytes = write_                ? target.bytes
                            : place_->file == "-" ? read_stdin("the text")
                                                  : read_file(user_path(place_->file), "the file", kMostFileBytes);
        if (bytes.find('\0') != std::string::npos) throw Error(place_->file + " is not text: it contains zero bytes");
        const FileText file(std::move(bytes));
        const std::size_t at = offset_of(file.text(), *place_);

        EngineNeeds needs;
        needs.speculating = true;
        OpenedEngine engine(options_, needs);
        speculative::Generator generator = engine.make_generator();
        const FimOrder order = fim_order(engine.config());
        const std::string prefix = file.text().substr(0, at);
        const Surroundings around{prefix, file.text().substr(at), leaves_out_blank(engine.tokenizer(), prefix, order)};
        const std::vector<std::int32_t> tokens = encode_fill(engine.tokenizer(), around.prefix, around.suffix,
                                                             fill_room(generator.capacity(), max_tokens()), order);
        Hole hole(around, has_fill_tokens(engine.tokenizer()));
        speculative::GenerateRequest request = request_for(engine);
        request.input = tokens;
        request.stop_when = [&](const speculative::TokenEvent& event) {
            return hole.stopped() || ends_middle(engine.tokenizer(), event.token);
        };
        speculative::GenerateResult result = generator.generate(request, [&](const speculative::TokenEvent& event) {
            const std::string more = hole.push(event.text);
            if (!json_ && !more.empty()) print(more);
        });
        const std::string rest = hole.finish();
        if (!json_ && !rest.empty()) print(rest);
        const bool cancelled = result.finish == speculative::FinishReason::cancelled;
        if (!cancelled && hole.taken() < result.text.size()) result.finish = speculative::FinishReason::stop;
        result.text = hole.text();
        if (!cancelled && result.text.empty()) {
            complain("foresay: the model has nothing to insert there; another --seed may have");
        }
        if (write_ && !cancelled && !result.text.empty()) {
            keep_backup(target);
            replace_target(target, file.with_insertion(at, result.text));
        }
        return report(engine, generator, result);
    }

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
    std::optional<FilePlace> place_;
    bool write_ = false;
    std::optional<std::int64_t> max_tokens_;
    std::vector<std::string> stop_;
    std::string prediction_file_, predicted_;  // and what the file holds
    bool chat_ = false, ignore_eos_ = false, json_ = false, token_ids_ = false;
};

const RegisterCommand<Complete> kComplete("complete", "print one completion of a prompt", CommandGroup::generate);

}  // namespace

}  // namespace foresay::app
