// Commands that show the tokens and probabilities of an answer, or copy it.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "app/clipboard.h"
#include "app/output.h"
#include "app/pager.h"
#include "app/repl/commands/arguments.h"
#include "app/repl/commands/chain.h"
#include "app/repl/commands/topics.h"
#include "app/repl/completion.h"
#include "app/repl/repl.h"
#include "app/terminal.h"
#include "base/error.h"
#include "core/text/utf8.h"

namespace foresay::app {

namespace {

constexpr std::size_t kAlternatives = 5;
constexpr double kShown = 0.0005;  // less rounds to 0.0 % and is left out

std::string percent(double share) {
    if (share < kShown) return "<0.1 %";
    std::array<char, 16> text{};
    std::snprintf(text.data(), text.size(), "%.1f %%", 100.0 * share);
    return text.data();
}

// One position of an answer: the token that was sampled, its probability and rank, and the `count` likeliest ones.
std::string alternatives(const core::Tokenizer& tokenizer, std::size_t index, std::int32_t sampled,
                         std::span<const float> row, std::size_t count, std::size_t columns) {
    const std::span<const float> logits =
        row.first(std::min(row.size(), static_cast<std::size_t>(tokenizer.vocab_size())));
    const float best = *std::max_element(logits.begin(), logits.end());
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - best);
    const auto share = [&](std::int32_t id) {
        return std::exp(static_cast<double>(logits[static_cast<std::size_t>(id)]) - best) / sum;
    };
    std::vector<std::int32_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    const std::size_t most = std::min(count, ids.size());
    const auto before = [&](std::int32_t a, std::int32_t b) {
        const float left = logits[static_cast<std::size_t>(a)], right = logits[static_cast<std::size_t>(b)];
        return left != right ? left > right : a < b;
    };
    std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(most), ids.end(), before);
    const auto rank = std::count_if(logits.begin(), logits.end(),
                                    [&, at = std::int32_t{0}](float) mutable { return before(at++, sampled); });
    std::string line = padded(std::to_string(index), 5) + padded(quoted(tokenizer.bytes(sampled)), 18) +
                       padded(percent(share(sampled)), 9) + padded("#" + std::to_string(rank + 1), 6);
    std::size_t used = columns_of(line);
    for (std::size_t i = 0; i < most && share(ids[i]) >= kShown; ++i) {
        const std::string one = "  " + quoted(tokenizer.bytes(ids[i])) + " " + percent(share(ids[i]));
        used += columns_of(one);
        if (used > columns) break;
        line += one;
    }
    return line + "\n";
}

void top(Repl& repl, const std::string& arguments) {
    Conversation& conversation = repl.conversation();
    const std::size_t count =
        arguments.empty() ? kAlternatives : whole_number(arguments, "the number of alternatives", 1, 100);
    if (conversation.empty()) throw Error("there is no answer to show");
    // An explicit N is shown in full, even if the line wraps.
    const bool whole = !arguments.empty() || !stderr_is_terminal();
    const std::size_t columns = whole ? std::numeric_limits<std::size_t>::max() : terminal_columns();
    std::string out;
    conversation.visit_answer([&](std::size_t index, std::int32_t token, std::span<const float> logits) {
        out += alternatives(conversation.tokenizer(), index, token, logits, count, columns);
    });
    page_message(out);
}

std::string token_lines(const core::Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
    std::string out;
    for (const std::int32_t id : ids) {
        out += padded(std::to_string(id), 8) + quoted(tokenizer.bytes(id)) +
               (tokenizer.is_control(id) ? "  special\n" : "\n");
    }
    return out;
}

void tokens(Repl& repl, const std::string& arguments) {
    Conversation& conversation = repl.conversation();
    const core::Tokenizer& tokenizer = conversation.tokenizer();
    if (!arguments.empty()) {
        const std::vector<std::int32_t> ids =
            tokenizer.encode(arguments, {.add_special = false, .parse_special = true});
        return page_message(token_lines(tokenizer, ids) + std::to_string(ids.size()) + " tokens\n");
    }
    if (conversation.empty()) throw Error("the conversation is empty; write /tokens TEXT");
    const Turn& turn = conversation.last();
    page_message("message\n" + token_lines(tokenizer, turn.input) + (turn.given.empty() ? "" : "edited\n") +
                 token_lines(tokenizer, turn.given) + "answer\n" + token_lines(tokenizer, turn.answer) +
                 std::to_string(turn.input.size()) + " in the message, " +
                 std::to_string(turn.given.size() + turn.answer.size()) + " in the answer, " +
                 std::to_string(conversation.tokens()) + " of " + std::to_string(repl.engine().context_length()) +
                 " positions in use\n");
}

void copy(Repl& repl, const std::string&) {
    Conversation& conversation = repl.conversation();
    if (conversation.empty()) throw Error("there is no answer to copy");
    if (!stdout_is_terminal()) throw Error("/copy needs a terminal");
    const std::string answer = conversation.answer_text(conversation.last());
    const std::optional<std::string> block = last_code_block(answer);
    const std::string& text = block ? *block : answer;
    print(clipboard_sequence(text));
    say(dim(std::string(block ? "The last code block" : "The last answer") + " was sent to the clipboard, " +
            std::to_string(text.size()) + " bytes; the terminal must allow it.") +
        "\n");
}

void reasoning(Repl& repl, const std::string&) {
    Conversation& conversation = repl.conversation();
    if (conversation.empty()) throw Error("there is no answer yet");
    std::string text = conversation.reasoning_text(conversation.last());
    if (text.empty()) {
        throw Error(conversation.style().markup.none() ? "this model's answers have no reasoning that is set apart"
                                                       : "the last answer has no reasoning");
    }
    if (!text.ends_with('\n')) text += '\n';
    page_message(printable(core::to_valid_utf8(text)));
}

Candidates complete_chain(const CompletionRequest& request) {
    if (!request.before.empty() && request.before.back() == "--svg") return complete_files(request);
    return {"--json", "--svg"};
}

constexpr ReplCommand kCommands[] = {
    {"top", "[N]", "show the likeliest tokens at each position of the last answer",
     "For each token: its probability and rank in the model's output, before any sampler; then the N likeliest tokens "
     "[default: 5], as far as they reach 0.1 %. Without N, the line ends at the width of the terminal.",
     top},
    {"chain", "[N] [--json] [--svg FILE]", "show what every sampler did to a token of the last answer",
     "N is the token's number as /top shows it [default: the last]. The row is computed and sampled again, with the "
     "chain as it is now. The table has candidates as rows and samplers as columns: the probability among those that "
     "are left as a bar, what the sampler changed in its logarithm, in nats, those that it dropped, and at the end the "
     "noise of the position and the winner. --json prints the numbers to standard output, --svg FILE writes a picture.",
     show_chain, complete_chain},
    {"tokens", "[TEXT]", "show the tokens of a text, or of the last message and answer", "", tokens},
    {"reasoning", "", "show what the model thought before the last answer",
     "Models that reason before they answer mark that part. It is one line while it is generated, and not part of what "
     "/copy, /write and /edit take. /print shows it in the conversation as the model reads it.",
     reasoning},
    {"copy", "", "copy the last code block of the last answer, or the whole answer",
     "Uses the OSC 52 escape sequence. Most terminals support it; some need it enabled in their settings.", copy},
};

}  // namespace

CommandTopic inspection_commands() { return {"The last answer", kCommands}; }

}  // namespace foresay::app
