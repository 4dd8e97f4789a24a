#include "app/repl/conversation.h"

#include <algorithm>

#include "base/error.h"

namespace foresay::app {

namespace {

constexpr std::size_t kMaxPast = 256;

}  // namespace

Conversation::Conversation(speculative::Generator& generator, const core::Tokenizer& tokenizer, core::ChatFormat format)
    : generator_(generator), tokenizer_(tokenizer), format_(format) {}

std::vector<std::int32_t> Conversation::document() const {
    std::vector<std::int32_t> tokens;
    for (const Turn& turn : turns_) {
        tokens.insert(tokens.end(), turn.input.begin(), turn.input.end());
        tokens.insert(tokens.end(), turn.answer.begin(), turn.answer.end());
    }
    return tokens;
}

std::int64_t Conversation::tokens() const {
    std::size_t count = 0;
    for (const Turn& turn : turns_) count += turn.input.size() + turn.answer.size();
    return static_cast<std::int64_t>(count);
}

std::vector<std::int32_t> Conversation::encode(const std::string& text) const {
    const bool start = turns_.empty();
    // The document is never tokenised again across the seam: the first input is encoded as `complete` would, the others
    // on their own.
    if (format_ == core::ChatFormat::complete) return tokenizer_.encode(text, {start, true});
    if (start) {
        return core::encode_chat(tokenizer_, core::render_chat(format_, "", {{core::ChatTurn::Role::user, text}}),
                                 true);
    }
    return core::encode_chat(tokenizer_, core::render_next_turn(format_, text, turns_.back().ended), false);
}

std::uint64_t Conversation::unused_branch(std::uint64_t seed, const std::vector<std::int32_t>& prompt) const {
    const auto used = branches_.find({seed, prompt});
    return used == branches_.end() ? 0 : used->second + 1;
}

Conversation::Answer Conversation::generate(Turn turn, const Limits& limits, const speculative::TokenCallback& show) {
    std::vector<std::int32_t> prompt = document();
    prompt.insert(prompt.end(), turn.input.begin(), turn.input.end());
    if (static_cast<std::int32_t>(prompt.size()) >= generator_.capacity()) {
        throw Error("the conversation would take " + std::to_string(prompt.size()) + " of " +
                    std::to_string(generator_.capacity()) + " positions; /clear starts anew, /undo goes back");
    }
    // What the cache holds of it stays; the last token is always given anew, because its logits are needed.
    const auto held = generator_.tokens();
    const auto most = std::min(held.size(), prompt.size() - 1);
    const auto same =
        std::mismatch(held.begin(), held.begin() + static_cast<std::ptrdiff_t>(most), prompt.begin()).first;
    const auto keep = static_cast<std::size_t>(same - held.begin());
    generator_.truncate(static_cast<std::int32_t>(keep));

    speculative::GenerateRequest request;
    request.input = std::span(prompt).subspan(keep);
    request.max_tokens = limits.max_tokens;
    request.seed = turn.seed;
    request.branch = turn.branch;
    request.cancel = limits.cancel;
    Answer answer;
    answer.input_tokens = static_cast<std::int64_t>(prompt.size() - keep);
    answer.result = generator_.generate(request, show);
    turn.answer = answer.result.tokens;
    turn.ended = !turn.answer.empty() && tokenizer_.is_end_of_text(turn.answer.back());
    // A document goes on behind an end of text as if it had not been written.
    if (turn.ended && format_ == core::ChatFormat::complete) turn.answer.pop_back();
    std::uint64_t& highest = branches_[{turn.seed, prompt}];
    highest = std::max(highest, turn.branch);
    turns_.push_back(std::move(turn));
    return answer;
}

Conversation::Answer Conversation::answer(const std::string& text, const Limits& limits,
                                          const speculative::TokenCallback& show) {
    Turn turn;
    turn.input = encode(text);
    turn.seed = limits.seed;
    turn.branch = limits.branch;
    if (turns_.empty() && turn.input.empty()) throw Error("there is nothing to go on from; write something first");
    std::vector<Turn> before = turns_;
    Answer answer = generate(std::move(turn), limits, show);
    past_.push_back(std::move(before));
    if (past_.size() > kMaxPast) past_.erase(past_.begin());
    return answer;
}

Conversation::Answer Conversation::retry(std::optional<std::uint64_t> seed, const Limits& limits,
                                         const speculative::TokenCallback& show) {
    check(!turns_.empty(), "retry() needs a turn");
    std::vector<Turn> before = turns_;
    Turn turn = std::move(turns_.back());
    turns_.pop_back();
    turn.answer.clear();
    if (seed) {
        turn.seed = *seed;
        turn.branch = 0;
    } else {
        std::vector<std::int32_t> prompt = document();
        prompt.insert(prompt.end(), turn.input.begin(), turn.input.end());
        turn.branch = unused_branch(turn.seed, prompt);
    }
    try {
        Answer answer = generate(std::move(turn), limits, show);
        past_.push_back(std::move(before));
        if (past_.size() > kMaxPast) past_.erase(past_.begin());
        return answer;
    } catch (...) {
        turns_ = std::move(before);
        throw;
    }
}

bool Conversation::undo() {
    if (past_.empty()) return false;
    turns_ = std::move(past_.back());
    past_.pop_back();
    return true;
}

void Conversation::clear() {
    if (turns_.empty()) return;
    past_.push_back(std::exchange(turns_, {}));
}

}  // namespace foresay::app
