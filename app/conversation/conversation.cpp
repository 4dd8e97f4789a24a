// Every operation that generates builds a Turn, moves the generator to its prompt (prepare), generates, and commits the
// turn to the tree as one change. The tree is untouched until commit, so an exception does not change it.
#include "app/conversation/conversation.h"

#include <algorithm>

#include "base/error.h"
#include "core/text/bounded_encode.h"

namespace foresay::app {

namespace {

Turn::Finish finish_of(speculative::FinishReason reason) {
    switch (reason) {
        case speculative::FinishReason::stop:
            return Turn::Finish::stop;
        case speculative::FinishReason::length:
            return Turn::Finish::length;
        case speculative::FinishReason::cancelled:
            break;
    }
    return Turn::Finish::cancelled;
}

}  // namespace

Conversation::Conversation(speculative::Generator& generator, const core::Tokenizer& tokenizer, ChatStyle style)
    : generator_(&generator), tokenizer_(tokenizer), style_(std::move(style)) {}

std::string Conversation::answer_text(const Turn& turn) const {
    return tokenizer_.decode(turn.given) + tokenizer_.decode(turn.answer);
}

std::int64_t Conversation::least_tokens(const std::string& text) const {
    const std::int64_t most = generator_->capacity();
    std::size_t bytes = text.size();
    for (const Attachment& file : files_) bytes += file.text.size();
    std::int64_t least = tokenizer_.least_tokens(bytes);
    if (least > most || static_cast<std::int64_t>(bytes) <= most) return least;
    // Between other texts the last tokens of a part may be others, so this is a bound only up to a few tokens.
    constexpr std::int64_t kSeam = 16;
    const auto count = [&](const std::string& part, bool special) {
        return core::count_tokens(tokenizer_, part, {.add_special = false, .parse_special = special}, most + kSeam) -
               kSeam;
    };
    least = std::max(least, count(text, true));
    for (const Attachment& file : files_) least = std::max(least, count(file.text, false));
    return least;
}

std::vector<std::int32_t> Conversation::encode(const std::string& text) const {
    const std::int64_t least = least_tokens(text), most = generator_->capacity();
    if (least > most) {
        throw Error(std::string(files_.empty() ? "the entry has" : "the entry and its files have") + " at least " +
                    std::to_string(least) + " tokens, but the context has " + std::to_string(most) +
                    " positions; shorten it, or start with a longer --context");
    }
    return empty() ? encode_first(tokenizer_, style_, files_, text)
                   : encode_next(tokenizer_, style_, files_, text, last().ended);
}

Document Conversation::upcoming(const std::string& text) const {
    if (least_tokens(text) > generator_->capacity()) return document();
    std::vector<std::int32_t> stable = encode(text);
    // More typing can change the last tokens: it may extend the last word, end it, or add a space. Keep the tokens that
    // several continuations share. A wrong guess only wastes work: answer() checks the evaluated tokens.
    for (const char* more : {"a", " a", "\n", "1", "(", "."}) {
        const std::vector<std::int32_t> other = encode(text + more);
        stable.erase(std::mismatch(stable.begin(), stable.end(), other.begin(), other.end()).first, stable.end());
    }
    Document prompt = document();
    prompt.add(stable, 0);
    return prompt;
}

std::int64_t Conversation::file_tokens() const {
    if (files_.empty()) return 0;
    Conversation bare(*generator_, tokenizer_, style_);
    bare.tree_ = tree_;
    return static_cast<std::int64_t>(encode("").size()) - static_cast<std::int64_t>(bare.encode("").size());
}

// A branch of the seed is used if an answer to the same tokens was sampled from it.
std::uint64_t Conversation::unused_branch(const Turn& turn, int parent) const {
    Document prompt = tree_.document(parent);
    prompt.add_prompt(turn);
    std::uint64_t next = 0;
    const auto& nodes = tree_.nodes();
    for (const TurnTree::Node& node : nodes) {
        if (node.turn.seed != turn.seed || node.turn.branch < next) continue;
        if (node.turn.input.size() > prompt.tokens.size()) continue;
        Document other = tree_.document(node.parent);
        other.add_prompt(node.turn);
        if (other.tokens == prompt.tokens) next = node.turn.branch + 1;
    }
    return next;
}

std::int64_t Conversation::prepare(const Turn& turn, int parent) {
    Document prompt = tree_.document(parent);
    prompt.add_prompt(turn);
    const auto length = static_cast<std::int64_t>(prompt.tokens.size());
    if (length >= generator_->capacity()) {
        throw Error("the conversation needs " + std::to_string(length) + " positions, but the context has " +
                    std::to_string(generator_->capacity()) + "; /clear starts a new one, /undo goes back");
    }
    generator_->switch_to(prompt.tokens, prompt.generated);
    // The last token is always evaluated, because its logits are needed.
    return length - std::min<std::int64_t>(generator_->held(), length - 1);
}

void Conversation::take(Turn& turn, const speculative::GenerateResult& result) const {
    turn.answer = result.tokens;
    turn.finish = finish_of(result.finish);
    turn.ended = !turn.answer.empty() && tokenizer_.is_end_of_text(turn.answer.back());
    // In a document the text continues as if the end-of-text token had not been generated.
    if (turn.ended && style_.format == core::ChatFormat::complete) turn.answer.pop_back();
}

Conversation::Answer Conversation::generate(Turn& turn, int parent, const Limits& limits, const Show& show) {
    Answer answer{.seed = turn.seed, .branch = turn.branch};
    answer.input_tokens = prepare(turn, parent);
    speculative::GenerateRequest request;
    request.max_tokens = limits.max_tokens;
    request.seed = turn.seed;
    request.branch = turn.branch;
    request.cancel = limits.cancel;
    answer.result = generator_->generate(request, show);
    take(turn, answer.result);
    return answer;
}

void Conversation::apply(TurnTree::Change change) {
    tree_.apply(change);
    unsaved_.push_back(std::move(change));
}

// The turn becomes the end of the current branch.
void Conversation::commit(Turn turn, int parent) {
    TurnTree::Change change{{}, tree_.state(), false};
    change.state.heads[change.state.current] = static_cast<int>(tree_.nodes().size());
    change.added.push_back({std::move(turn), parent});
    apply(std::move(change));
}

Conversation::Answer Conversation::answer(const std::string& text, const Limits& limits, const Show& show) {
    Turn turn;
    turn.said = whole_text(style_.format, files_, text);
    turn.input = encode(text);
    turn.seed = limits.seed;
    turn.branch = limits.branch;
    if (empty() && turn.input.empty()) throw Error("there is nothing to continue; write something first");
    const int parent = tree_.head();
    Answer answer = generate(turn, parent, limits, show);
    answer.line = current_branch();
    commit(std::move(turn), parent);
    files_.clear();
    return answer;
}

Conversation::Answer Conversation::retry(std::optional<std::uint64_t> seed, const Limits& limits, const Show& show) {
    check(!empty(), "retry() needs a turn");
    Turn turn = last();
    const int parent = tree_.parent(tree_.head());
    turn.seed = seed.value_or(turn.seed);
    turn.branch = seed ? 0 : unused_branch(turn, parent);
    Answer answer = generate(turn, parent, limits, show);
    answer.line = current_branch();
    commit(std::move(turn), parent);
    return answer;
}

Conversation::Answer Conversation::edit(const std::string& text, const Limits& limits, const Show& show) {
    check(!empty(), "edit() needs a turn");
    Turn turn = last();
    const int parent = tree_.parent(tree_.head());
    std::vector<std::int32_t> said = turn.given;
    std::vector<std::uint8_t> sampled = turn.given_drawn;
    said.insert(said.end(), turn.answer.begin(), turn.answer.end());
    sampled.resize(said.size(), 1);
    // Drop the end-of-text token, because generation continues after the edited text.
    if (turn.ended && !said.empty() && tokenizer_.is_end_of_text(said.back())) said.pop_back();
    EditedAnswer edited = encode_edit(tokenizer_, said, text);
    turn.given = std::move(edited.tokens);
    turn.given_drawn.assign(sampled.begin(), sampled.begin() + static_cast<std::ptrdiff_t>(edited.kept));
    turn.given_drawn.resize(turn.given.size(), 0);
    Answer answer = generate(turn, parent, limits, show);
    answer.line = current_branch();
    commit(std::move(turn), parent);
    return answer;
}

Conversation::Answer Conversation::fill(const std::string& prefix, const std::string& suffix, const Limits& limits,
                                        const Show& show) {
    Turn turn;
    turn.said = prefix;
    // The texts may use the context that the answer leaves, and at least half of it.
    const std::int64_t most = limits.max_tokens > 0 ? limits.max_tokens : generator_->capacity() / 4;
    const std::int64_t room = std::max<std::int64_t>(generator_->capacity() / 2, generator_->capacity() - most);
    turn.input = encode_fill(tokenizer_, prefix, suffix, room);
    turn.seed = limits.seed;
    turn.branch = limits.branch;
    Answer answer = generate(turn, TurnTree::kRoot, limits, show);
    TurnTree::Change change{{}, tree_.state(), false};
    // An empty conversation has nothing to keep, so the fill becomes its current branch.
    if (!empty()) {
        change.state.current = change.state.heads.size();
        change.state.heads.push_back(TurnTree::kRoot);
    }
    change.state.heads[change.state.current] = static_cast<int>(tree_.nodes().size());
    change.added.push_back({std::move(turn), TurnTree::kRoot});
    answer.line = change.state.current;
    apply(std::move(change));
    return answer;
}

std::vector<Conversation::Answer> Conversation::answers(const std::optional<std::string>& text, std::size_t count,
                                                        const Limits& limits, const speculative::BranchCallback& show) {
    check(count > 0 && (text || !empty()), "answers() needs something to answer");
    // The first answer to a new message stays on the current branch.
    require_room_for_branches(text ? count - 1 : count);
    Turn turn;
    int parent = tree_.head();
    if (text) {
        turn.said = whole_text(style_.format, files_, *text);
        turn.input = encode(*text);
        turn.seed = limits.seed;
    } else {
        turn = last();
        parent = tree_.parent(tree_.head());
    }
    if (parent == TurnTree::kRoot && turn.input.empty()) {
        throw Error("there is nothing to continue; write something first");
    }
    const std::uint64_t first = unused_branch(turn, parent);
    std::vector<std::uint64_t> branches;
    for (std::size_t i = 0; i < count; ++i) branches.push_back(first + i);
    const std::int64_t evaluated = prepare(turn, parent);
    speculative::GenerateRequest request;
    request.max_tokens = limits.max_tokens;
    request.seed = turn.seed;
    request.cancel = limits.cancel;
    const auto results = generator_->generate_branches(request, branches, show);

    std::vector<Answer> answers;
    for (std::size_t i = 0; i < count; ++i) {
        answers.push_back({results[i], i == 0 ? evaluated : 0, turn.seed, branches[i]});
    }
    commit_side_by_side(std::move(turn), parent, text.has_value(), answers);
    if (text) files_.clear();
    return answers;
}

// Adds a turn for each answer and sets Answer::line to its branch. The first answer to a new message stays on the
// current branch; every other one gets a new branch.
void Conversation::commit_side_by_side(Turn turn, int parent, bool new_message, std::vector<Answer>& answers) {
    TurnTree::Change change{{}, tree_.state(), false};
    for (std::size_t i = 0; i < answers.size(); ++i) {
        turn.branch = answers[i].branch;
        take(turn, answers[i].result);
        const int node = static_cast<int>(tree_.nodes().size() + i);
        change.added.push_back({turn, parent});
        if (new_message && i == 0) {
            answers[i].line = change.state.current;
            change.state.heads[change.state.current] = node;
        } else {
            answers[i].line = change.state.heads.size();
            change.state.heads.push_back(node);
        }
    }
    change.state.current = answers.front().line;
    apply(std::move(change));
}

void Conversation::require_room_for_branches(std::size_t count) const {
    if (branch_count() + count <= TurnTree::kMaxBranches) return;
    throw Error("a conversation has at most " + std::to_string(TurnTree::kMaxBranches) + " branches");
}

bool Conversation::undo() {
    if (!files_.empty()) {
        files_.pop_back();
        return true;
    }
    if (!tree_.can_undo()) return false;
    apply(tree_.undo());
    return true;
}

void Conversation::clear() {
    files_.clear();
    if (empty()) return;
    TurnTree::Change change{{}, tree_.state(), false};
    change.state.heads[change.state.current] = TurnTree::kRoot;
    apply(std::move(change));
}

void Conversation::switch_branch(std::size_t index) {
    check(index < branch_count(), "no such branch");
    TurnTree::Change change{{}, tree_.state(), false};
    change.state.current = index;
    apply(std::move(change));
}

void Conversation::new_branch(std::size_t turns) {
    require_room_for_branches(1);
    int head = tree_.head();
    std::size_t count = tree_.line(head).size();
    check(turns <= count, "the branch has fewer turns");
    for (; count > turns; --count) head = tree_.parent(head);
    TurnTree::Change change{{}, tree_.state(), false};
    change.state.current = change.state.heads.size();
    change.state.heads.push_back(head);
    apply(std::move(change));
}

void Conversation::visit_answer(
    const std::function<void(std::size_t index, std::int32_t token, std::span<const float>)>& visit) {
    check(!empty(), "visit_answer() needs a turn");
    const Document all = document();
    const std::size_t length = last().given.size() + last().answer.size();
    const std::size_t start = all.tokens.size() - length;
    generator_->switch_to(all.tokens, all.generated);
    if (start == 0) return;
    generator_->visit_logits(static_cast<std::int32_t>(start), [&](std::int32_t index, std::span<const float> logits) {
        visit(static_cast<std::size_t>(index) - start, all.tokens[static_cast<std::size_t>(index)], logits);
    });
}

void Conversation::restore(TurnTree tree) {
    const std::int32_t vocabulary = generator_->target().model().config().shape.vocab;
    const auto known = [&](const std::vector<std::int32_t>& tokens) {
        return std::all_of(tokens.begin(), tokens.end(), [&](std::int32_t id) { return id >= 0 && id < vocabulary; });
    };
    for (const TurnTree::Node& node : tree.nodes()) {
        const Turn& turn = node.turn;
        if (!known(turn.input) || !known(turn.given) || !known(turn.answer)) {
            throw Error("the conversation holds token ids outside the model's vocabulary of " +
                        std::to_string(vocabulary));
        }
    }
    tree_ = std::move(tree);
    files_.clear();
    unsaved_.clear();
}

namespace {

std::size_t place_of(const std::vector<std::int32_t>& tokens, std::int32_t id) {
    return static_cast<std::size_t>(std::find(tokens.begin(), tokens.end(), id) - tokens.begin());
}

// The inverse of encode_fill(): the texts before and after the hole. False if `input` does not come from encode_fill().
bool read_fill(const core::Tokenizer& tokenizer, const std::vector<std::int32_t>& input, std::string& prefix,
               std::string& suffix) {
    const core::SpecialTokens& special = tokenizer.special();
    const std::size_t begin = place_of(input, special.fim_prefix);
    const std::size_t hole = place_of(input, special.fim_suffix);
    const std::size_t end = place_of(input, special.fim_middle);
    if (special.fim_prefix < 0 || begin >= hole || hole >= end || end >= input.size()) return false;
    prefix = tokenizer.decode(std::span(input).subspan(begin + 1, hole - begin - 1));
    suffix = tokenizer.decode(std::span(input).subspan(hole + 1, end - hole - 1));
    return true;
}

}  // namespace

void Conversation::rebind(speculative::Generator& generator, const core::Tokenizer& tokenizer, ChatStyle style,
                          bool same_vocabulary) {
    const core::Tokenizer before = std::exchange(tokenizer_, tokenizer);
    generator_ = &generator;
    style_ = std::move(style);
    if (same_vocabulary) return;
    const core::EncodeOptions plain{.add_special = false, .parse_special = false};
    tree_.rewrite([&](TurnTree::Node& node) {
        Turn& turn = node.turn;
        const std::string text = before.decode(turn.given) + before.decode(turn.answer);
        std::string prefix, suffix;
        if (read_fill(before, turn.input, prefix, suffix)) {
            const bool able = tokenizer_.special().fim_middle >= 0;
            turn.input = able ? encode_fill(tokenizer_, prefix, suffix, generator_->capacity() / 2)
                              : encode_first(tokenizer_, style_, {}, prefix);
        } else if (node.parent == TurnTree::kRoot) {
            turn.input = encode_first(tokenizer_, style_, {}, turn.said);
        } else {
            turn.input = encode_next(tokenizer_, style_, {}, turn.said, false);
        }
        turn.given.clear();
        turn.given_drawn.clear();
        turn.answer = tokenizer_.encode(text, plain);
        turn.ended = false;  // the next turn's markup ends it in the new format
    });
    unsaved_.clear();
}

}  // namespace foresay::app
