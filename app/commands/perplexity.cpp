// foresay perplexity: exp of the mean negative log likelihood of a text under a model.
//
// Follows llama.cpp's tool: the text is cut into windows of `context` tokens, each beginning with BOS when the
// model asks for it (it replaces the window's first token), and the second half of each window is scored.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/command_line/command.h"
#include "app/command_line/parser.h"
#include "app/files.h"
#include "app/interrupt.h"
#include "app/opened_engine.h"
#include "app/options.h"
#include "app/output.h"
#include "base/error.h"

namespace foresay::app {

namespace {

constexpr std::int32_t kDefaultWindow = 512;
constexpr std::int32_t kShortestWindow = 4;
constexpr std::int32_t kRows = 64;  // tokens scored per forward

double negative_log_likelihood(std::span<const float> logits, std::int32_t token) {
    const float best = *std::max_element(logits.begin(), logits.end());
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit - best));
    return std::log(sum) - static_cast<double>(logits[static_cast<std::size_t>(token)] - best);
}

struct Score {
    double sum = 0.0;  // nats
    std::int64_t tokens = 0;

    double perplexity() const { return std::exp(sum / static_cast<double>(tokens)); }
};

// Scores tokens [first + 1, n) of one window. False when cancelled.
bool score_window(core::Context& context, std::span<const std::int32_t> window, std::int32_t first, Score& score) {
    context.truncate(0);
    if (!context.prefill(window.first(static_cast<std::size_t>(first)), 0, &interrupted())) return false;
    const auto last = static_cast<std::int32_t>(window.size()) - 1;  // its successor lies outside the window
    const std::int32_t step = std::min(kRows, context.max_rows());
    for (std::int32_t start = first; start < last; start += step) {
        if (interrupted()) return false;
        std::vector<kernels::TokenRef> tokens;
        std::vector<std::int32_t> rows;
        for (std::int32_t i = start; i < std::min(start + step, last); ++i) {
            tokens.push_back(kernels::TokenRef::id(window[static_cast<std::size_t>(i)]));
            rows.push_back(i - start);
        }
        check(context.evaluate(kernels::RowClass::prefill, tokens, rows), "a window fits the context");
        for (const std::int32_t row : rows) {
            score.sum +=
                negative_log_likelihood(context.logits(row), window[static_cast<std::size_t>(start + row + 1)]);
            ++score.tokens;
        }
    }
    return true;
}

class Perplexity : public Command {
public:
    void declare(OptionParser& parser) override {
        add_common_options(parser, options_);
        refuse_shape(parser, options_);
        parser.over_hosts(options_);
        add_inflation_options(parser, options_);
        add_config_argument(parser, options_);
        add_text_file_option(parser, file_, "the text to score");
        add_json_flag(parser, json_);
        parser.after_parsing([this] {
            // --context is the window here; ignore the context that the configuration sets for conversations.
            if (!options_.context) override_key(options_, "--context", "target.context", "0");
        });
    }

    int run() override {
        EngineNeeds needs;
        needs.draft = false;
        needs.decode_rows = kRows;
        needs.default_context = kDefaultWindow;
        const std::string text = read_text(file_, "the text");
        OpenedEngine engine(options_, needs);
        const auto context = engine.make_context();
        const std::int32_t window = context->capacity();
        if (window < kShortestWindow) {
            throw UsageError("--context must be at least " + std::to_string(kShortestWindow) +
                             ", because the second half of each window is scored; not " + std::to_string(window));
        }
        std::vector<std::int32_t> tokens = engine.tokenizer().encode(text);
        if (tokens.size() < static_cast<std::size_t>(window)) {
            throw Error((file_.empty() || file_ == "-" ? "the text" : file_) + " has " + std::to_string(tokens.size()) +
                        " tokens, less than one window of " + std::to_string(window) +
                        "; use a longer text or a smaller --context");
        }
        Score score;
        if (!score_windows(*context, engine.tokenizer(), tokens, score)) return kCancelled;
        report(engine, score, window);
        return 0;
    }

private:
    // Scores `tokens` window by window and shows the progress. False when cancelled.
    static bool score_windows(core::Context& context, const core::Tokenizer& tokenizer, std::span<std::int32_t> tokens,
                              Score& score) {
        const auto window = static_cast<std::size_t>(context.capacity());
        const std::size_t windows = tokens.size() / window;
        for (std::size_t i = 0; i < windows; ++i) {
            const std::span<std::int32_t> part = tokens.subspan(i * window, window);
            if (tokenizer.adds_bos()) part[0] = tokenizer.special().bos;
            if (!score_window(context, part, context.capacity() / 2, score)) return false;
            if (stderr_is_terminal()) {
                say("\r\x1b[K" + dim("window " + std::to_string(i + 1) + " of " + std::to_string(windows) +
                                     ", perplexity " + std::to_string(score.perplexity())));
            }
        }
        if (stderr_is_terminal()) say("\r\x1b[K");
        return true;
    }

    void report(const OpenedEngine& engine, const Score& score, std::int32_t window) const {
        const double perplexity = score.perplexity();
        if (std::isnan(perplexity)) {
            throw Error(engine.target().source().path() +
                        ": the logits are not numbers, so the weights are damaged; get the file again");
        }
        const std::string inflated = engine.inflated();
        if (json_) {
            nlohmann::ordered_json out;
            if (!inflated.empty()) out["inflated"] = inflated;
            out["perplexity"] = perplexity;
            out["tokens"] = score.tokens;
            out["context"] = window;
            print(out.dump() + "\n");
            return;
        }
        print("perplexity " + std::to_string(perplexity) + " over " + std::to_string(score.tokens) +
              " tokens in windows of " + std::to_string(window) + (inflated.empty() ? "" : ", inflated: " + inflated) +
              "\n");
    }

    Options options_;
    std::string file_;
    bool json_ = false;
};

const RegisterCommand<Perplexity> kPerplexity("perplexity", "measure how well a model predicts a text",
                                              CommandGroup::measure);

}  // namespace

}  // namespace foresay::app
