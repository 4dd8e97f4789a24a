#include "app/repl/commands/chain.h"

#include <optional>
#include <span>
#include <vector>

#include "app/chain_picture.h"
#include "app/edits/target_file.h"
#include "app/output.h"
#include "app/pager.h"
#include "app/repl/commands/arguments.h"
#include "app/repl/repl.h"
#include "app/terminal.h"
#include "base/error.h"
#include "samplers/chain_trace.h"

namespace foresay::app {
namespace {

constexpr std::size_t kPlainWidth = 120;  // where there is no terminal

struct Request {
    std::optional<std::size_t> index;
    bool json = false;
    std::string svg;  // empty: none
};

Request request_of(const std::string& arguments, std::size_t length) {
    Request request;
    const std::vector<std::string> words = split_words(arguments);
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (words[i] == "--json") {
            request.json = true;
        } else if (words[i] == "--svg") {
            if (++i == words.size()) throw Error("write /chain N --svg FILE");
            request.svg = words[i];
        } else if (words[i].starts_with("--") || request.index) {
            throw Error("write /chain [N] [--json] [--svg FILE], where N is the number of a token as /top shows it");
        } else {
            request.index = whole_number(words[i], "the number of the token", 0, length - 1);
        }
    }
    return request;
}

// The chain as it is now, brought to the place of a token and run on its row.
samplers::ChainTrace replay(Repl& repl, std::size_t index, std::uint64_t& position) {
    Conversation& conversation = repl.conversation();
    const Turn& turn = conversation.last();
    const Document all = conversation.document();
    const std::size_t start = all.tokens.size() - turn.given.size() - turn.answer.size();
    // Tokens that an earlier answer has sampled, and this one was given, had the whole answer before them to come.
    const std::size_t given = index < turn.given.size() ? 0 : turn.given.size();
    const std::span<const std::int32_t> tokens = all.tokens;
    const auto chain = repl.workspace().generator().chain().duplicate();
    chain->begin(turn.seed, turn.branch, tokens.first(start + given), tokens.size(), given);
    position = start + index;
    const std::size_t first = chain->feedback() ? given : index;
    for (std::size_t at = given; at < first; ++at) chain->accept(tokens[start + at]);
    std::optional<samplers::ChainTrace> trace;
    std::vector<float> row;
    const auto visit = [&](std::size_t at, std::int32_t token, std::span<const float> logits) {
        row.assign(logits.begin(), logits.end());
        if (at == index) {
            trace = chain->trace(row);
        } else {
            chain->decide(row);
            chain->accept(token);
        }
    };
    conversation.visit_answer(first, index + 1 - first, visit);
    if (!trace) throw Error("the row of this token cannot be computed again: nothing comes before it");
    return std::move(*trace);
}

// Only a picture of this kind is replaced.
void write_svg(const std::string& name, const std::string& svg) {
    const TargetFile file = read_target(name, {.outside = true, .must_exist = false});
    if (file.exists && file.bytes.find(kChainSvgMark) == std::string::npos) {
        throw Error(name + " exists and is no picture of a chain; choose another name");
    }
    replace_target(file, svg);
}

}  // namespace

void show_chain(Repl& repl, const std::string& arguments) {
    Conversation& conversation = repl.conversation();
    if (conversation.empty()) throw Error("there is no answer to show");
    const Turn& turn = conversation.last();
    const std::size_t length = turn.given.size() + turn.answer.size();
    if (length == 0) throw Error("the last answer has no tokens");
    const Request request = request_of(arguments, length);
    const std::size_t index = request.index.value_or(length - 1);
    if (index < turn.given.size() && turn.given_sampled[index] == 0) {
        throw Error("token " + std::to_string(index) + " was not sampled: /edit wrote it" +
                    (turn.answer.empty()
                         ? std::string()
                         : "; the first that was sampled after it is " + std::to_string(turn.given.size())));
    }
    std::uint64_t position = 0;
    const samplers::ChainTrace trace = replay(repl, index, position);
    const std::int32_t token = index < turn.given.size() ? turn.given[index] : turn.answer[index - turn.given.size()];
    const auto quote = [&](std::int32_t id) { return quoted(conversation.tokenizer().bytes(id)); };
    ChainPicture picture = chain_picture(trace, token, quote);
    picture.subject = "Token " + std::to_string(index) + " of the answer, " + quote(token) + ": position " +
                      std::to_string(position) + ", seed " + std::to_string(turn.seed) + ", branch " +
                      std::to_string(turn.branch) + ".";
    if (trace.token == token) {
        picture.replay = "Sampled again from the same row, it wins again.";
    } else if (trace.token < 0) {
        picture.replay = "Sampled again, nothing wins: " + trace.columns.back().failure + ".";
    } else {
        picture.replay = "Sampled again, " + quote(trace.token) +
                         " wins: the chain is not the one that this answer was sampled with.";
    }
    if (!request.svg.empty()) {
        write_svg(request.svg, chain_svg(picture));
        say(dim("Wrote " + printable(request.svg) + ".") + "\n");
    }
    if (request.json) print(chain_json(picture) + "\n");
    if (request.json || !request.svg.empty()) return;
    const std::size_t width = stderr_is_terminal() ? terminal_columns() : kPlainWidth;
    page_message(chain_table(picture, width, colourful_errors()));
}

}  // namespace foresay::app
