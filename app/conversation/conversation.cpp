// Every operation that generates builds a Turn, moves the generator to its prompt (prepare), generates, and commits the
// turn to the tree as one change. The tree is untouched until commit, so an exception does not change it.
#include "app/conversation/conversation.h"

#include <algorithm>

#include "app/conversation/filled_hole.h"
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
        case speculative::FinishReason::deadline:
            break;
    }
    return Turn::Finish::cancelled;
}

// An answer that is being generated, with its reasoning and its content apart.
class PartedAnswer {
public:
    PartedAnswer(const core::AnswerMarkup& markup, const core::Tokenizer& tokenizer, const Turn& turn)
        : parser_(markup, tokenizer, turn.input) {
        for (const std::int32_t token : turn.given) parser_.push(token, parts_);
        parts_.clear();
    }

    // Shows what the token completes. Every token is shown, most with no text.
    void push(const speculative::TokenEvent& event, const speculative::TokenCallback& show,
              const std::function<void(std::string_view)>& show_reasoning) {
        if (event.token < 0) return;  // text that finish() has, too
        parser_.push(event.token, parts_);
        give(event, show, show_reasoning);
    }
    void finish(const speculative::TokenCallback& show, const std::function<void(std::string_view)>& show_reasoning) {
        parser_.finish(parts_);
        if (!parts_.empty()) give({.token = -1, .text = {}}, show, show_reasoning);
    }
    void take(Conversation::Answer& answer) {
        answer.result.text = std::move(content_);
        answer.reasoning = std::move(reasoning_);
    }

private:
    void give(speculative::TokenEvent event, const speculative::TokenCallback& show,
              const std::function<void(std::string_view)>& show_reasoning) {
        std::string content, reasoning;
        for (const core::AnswerPart& part : parts_) (part.reasoning ? reasoning : content) += part.text;
        const bool reasoned = !reasoning.empty() || (event.token >= 0 && parser_.in_reasoning());
        if (reasoned && show_reasoning) show_reasoning(reasoning);
        reasoning_ += reasoning;
        parts_.clear();
        content_ += content;
        event.text = content;
        if (show) show(event);
    }

    core::AnswerParser parser_;
    std::vector<core::AnswerPart> parts_;
    std::string content_, reasoning_;
};

}  // namespace

Conversation::Conversation(speculative::Generator& generator, const core::Tokenizer& tokenizer, ChatStyle style)
    : generator_(&generator), tokenizer_(tokenizer), style_(std::move(style)) {}

core::AnswerParts Conversation::parts(const Turn& turn) const {
    if (style_.markup.none()) return {{}, tokenizer_.decode(turn.given) + tokenizer_.decode(turn.answer)};
    std::vector<std::int32_t> answer = turn.given;
    answer.insert(answer.end(), turn.answer.begin(), turn.answer.end());
    return core::split_answer(style_.markup, tokenizer_, turn.input, answer);
}

std::string Conversation::answer_text(const Turn& turn) const { return parts(turn).content; }
std::string Conversation::reasoning_text(const Turn& turn) const { return parts(turn).reasoning; }

std::int64_t Conversation::least_tokens(const std::string& text) const {
    const std::int64_t most = generator_->capacity();
    std::size_t bytes = text.size();
    for (const Attachment& file : files_) bytes += file.text.size();
    std::int64_t least = tokenizer_.least_tokens(bytes);
    if (least > most || static_cast<std::int64_t>(bytes) <= most) return least;
    const auto count = [&](const std::string& part, bool special) {
        return core::count_tokens_of_part(tokenizer_, part, {.add_special = false, .parse_special = special}, most);
    };
    least = std::max(least, count(text, true));
    for (const Attachment& file : files_) least = std::max(least, count(file.text, false));
    return least;
}

Conversation::Input Conversation::encode(const std::string& text) const {
    const std::int64_t least = least_tokens(text), most = generator_->capacity();
    if (least > most) {
        throw Error(std::string(files_.empty() ? "the entry has" : "the entry and its files have") + " at least " +
                    std::to_string(least) + " tokens, but the context has " + std::to_string(most) +
                    " positions; shorten it, or raise the limit with --context N or /set target.context N");
    }
    return encode_bounded(text);
}

Conversation::Input Conversation::encode_bounded(const std::string& text) const {
    if (style_.chat) return encode_by_template(tree_.head(), said(text));
    return {{},
            empty() ? encode_first(tokenizer_, style_, files_, text)
                    : encode_next(tokenizer_, style_, files_, text, last().ended, line_open())};
}

Conversation::Input Conversation::encode_by_template(int parent, const std::string& said) const {
    std::vector<core::ChatMessage> messages;
    if (!style_.system.empty()) messages.push_back({"system", style_.system, {}, {}});
    // Messages without an answer are one with the next: templates want roles to alternate.
    const auto add_user = [&](const std::string& text) {
        if (!messages.empty() && messages.back().role == "user") {
            messages.back().content += "\n\n" + text;
        } else {
            messages.push_back({"user", text, {}, {}});
        }
    };
    for (const Turn* turn : tree_.line(parent)) {
        add_user(turn->said);
        core::AnswerParts answer = parts(*turn);
        if (answer.content.empty() && answer.reasoning.empty()) continue;
        core::ChatMessage message{"assistant", std::move(answer.content), std::move(answer.reasoning), {}};
        if (!message.reasoning.empty()) {
            message.raw = tokenizer_.decode(turn->given, true);
            for (const std::int32_t token : turn->answer)
                if (!tokenizer_.is_end_of_text(token)) message.raw += tokenizer_.bytes(token);
        }
        messages.push_back(std::move(message));
    }
    add_user(said);
    const Document before = tree_.document(parent);
    core::ChatTemplate::Continuation next =
        style_.chat->continue_document(style_.chat->render(messages, style_.options), before.tokens, before.generated);
    Input input{{}, std::move(next.tokens)};
    if (next.kept < before.tokens.size()) input.kept = static_cast<std::int64_t>(next.kept);
    return input;
}

void Conversation::take_input(Turn& turn, Input input) {
    turn.kept = input.kept;
    turn.input = std::move(input.tokens);
}

std::string Conversation::said(const std::string& text) const { return whole_text(style_, files_, text, line_open()); }

bool Conversation::line_open() const {
    return style_.format == core::ChatFormat::complete && line_is_open(tokenizer_, document().tokens);
}

std::string Conversation::open_line() const {
    if (!line_open()) return {};
    const std::string text = tokenizer_.decode(document().tokens);
    return text.substr(text.find_last_of('\n') + 1);  // npos + 1 is 0
}

Document Conversation::upcoming(const std::string& text) const {
    if (least_tokens(text) > generator_->capacity()) return document();
    const auto prompt_of = [&](const std::string& message) {
        const Input input = encode_bounded(message);
        Document prompt = document();
        if (input.kept) prompt.keep(*input.kept);
        prompt.add(input.tokens, 0);
        return prompt;
    };
    Document stable;
    try {
        stable = prompt_of(text);
    } catch (const jinja::TemplateError&) {
        return document();  // answer() says what is wrong
    }
    // More typing can change the last tokens: it may extend the last word, end it, or add a space. Keep the tokens that
    // several continuations share. A wrong guess only wastes work: answer() checks the evaluated tokens.
    for (const char* more : {"a", " a", "\n", "1", "(", "."}) {
        const std::vector<std::int32_t> other = prompt_of(text + more).tokens;
        const auto same = std::mismatch(stable.tokens.begin(), stable.tokens.end(), other.begin(), other.end()).first;
        stable.keep(same - stable.tokens.begin());
    }
    return stable;
}

std::int64_t Conversation::file_tokens() const {
    if (files_.empty()) return 0;
    Conversation bare(*generator_, tokenizer_, style_);
    bare.tree_ = tree_;
    const std::int64_t whole = document().tokens.size();
    const auto length = [&](const Input& input) {
        return input.kept.value_or(whole) + static_cast<std::int64_t>(input.tokens.size());
    };
    return length(encode("")) - length(bare.encode(""));
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
        const std::string subject = parent == TurnTree::kRoot ? "this text needs " : "the conversation needs ";
        const std::string way_out = parent == TurnTree::kRoot ? "; " : "; /clear starts a new one, /undo goes back, ";
        throw Error(subject + std::to_string(length) + " positions and room for an answer, but the context has " +
                    std::to_string(generator_->capacity()) + way_out +
                    "/set target.context N sets its length, up to what the model allows");
    }
    generator_->switch_to(prompt.tokens, prompt.generated);
    // The last token is always evaluated, because its logits are needed.
    return length - std::min<std::int64_t>(generator_->held(), length - 1);
}

void Conversation::take(Turn& turn, const speculative::GenerateResult& result) const {
    turn.answer = result.tokens;
    turn.finish = result.error.empty() ? finish_of(result.finish) : Turn::Finish::cancelled;
    turn.ended = !turn.answer.empty() && tokenizer_.is_end_of_text(turn.answer.back());
    // In a document the text continues as if the end-of-text token had not been generated.
    if (turn.ended && style_.format == core::ChatFormat::complete) turn.answer.pop_back();
}

void Conversation::take_filled(Turn& turn, speculative::GenerateResult& result, const Hole& hole) const {
    take(turn, result);
    if (hole.taken() < result.text.size()) {
        // Keep the tokens that the text begins in.
        std::size_t bytes = 0, kept = 0;
        for (; kept < turn.answer.size() && bytes < hole.taken(); ++kept) {
            if (!tokenizer_.is_control(turn.answer[kept])) bytes += tokenizer_.bytes(turn.answer[kept]).size();
        }
        turn.answer.resize(kept);
        turn.ended = false;
        result.finish = speculative::FinishReason::stop;
        turn.finish = Turn::Finish::stop;
    }
    result.text = hole.text();
}

Conversation::Answer Conversation::generate(Turn& turn, int parent, const Limits& limits, const Show& show,
                                            const std::optional<Surroundings>& around,
                                            std::span<const std::int32_t> prediction) {
    Answer answer{.seed = turn.seed, .branch = turn.branch};
    answer.input_tokens = prepare(turn, parent);
    speculative::GenerateRequest request;
    request.max_tokens = limits.max_tokens;
    request.seed = turn.seed;
    request.branch = turn.branch;
    request.begun = static_cast<std::int32_t>(turn.given.size());
    request.cancel = limits.cancel;
    request.prediction = prediction;
    if (!around && style_.markup.none()) {
        answer.result = generator_->generate(request, show);
        take(turn, answer.result);
        return answer;
    }
    if (!around) {
        PartedAnswer parted(style_.markup, tokenizer_, turn);
        answer.result = generator_->generate(
            request, [&](const speculative::TokenEvent& event) { parted.push(event, show, limits.reasoning); });
        parted.finish(show, limits.reasoning);
        take(turn, answer.result);
        parted.take(answer);
        return answer;
    }
    Hole hole(*around, has_fill_tokens(tokenizer_));
    const auto show_filled = [&](const speculative::TokenEvent& event) {
        speculative::TokenEvent filled = event;
        const std::string text = hole.push(event.text);
        filled.text = text;
        if (show) show(filled);
    };
    request.stop_when = [&](const speculative::TokenEvent& event) {
        return hole.stopped() || ends_middle(tokenizer_, event.token);
    };
    answer.result = generator_->generate(request, show_filled);
    const std::string rest = hole.finish();
    if (show && !rest.empty()) show({.token = -1, .text = rest});
    take_filled(turn, answer.result, hole);
    return answer;
}

void Conversation::apply(TurnTree::Change change) {
    tree_.apply(change);
    unsaved_.push_back(std::move(change));
    ++changes_;
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
    turn.said = said(text);
    take_input(turn, encode(text));
    turn.seed = limits.seed;
    turn.branch = limits.branch;
    if (empty() && turn.input.empty()) throw Error("there is nothing to continue; write something first");
    const int parent = tree_.head();
    const AnswerRecording recording = record(turn, parent);
    Answer answer = generate(turn, parent, limits, recording.watch(show));
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
    const std::optional<Surroundings> hole = turn.given.empty() ? around(tree_.head()) : std::nullopt;
    const AnswerRecording recording = record(turn, parent);
    // The next answer may repeat parts of the last one.
    Answer answer = generate(turn, parent, limits, recording.watch(show), hole, last().answer);
    answer.line = current_branch();
    commit(std::move(turn), parent);
    if (hole) holes_[tree_.head()] = *hole;
    return answer;
}

Conversation::Answer Conversation::edit(const std::string& text, const Limits& limits, const Show& show) {
    check(!empty(), "edit() needs a turn");
    Turn turn = last();
    const int parent = tree_.parent(tree_.head());
    std::vector<std::int32_t> said = turn.given;
    std::vector<std::uint8_t> sampled = turn.given_sampled;
    said.insert(said.end(), turn.answer.begin(), turn.answer.end());
    sampled.resize(said.size(), 1);
    // Drop the end-of-text token, because generation continues after the edited text.
    if (turn.ended && !said.empty() && tokenizer_.is_end_of_text(said.back())) said.pop_back();
    // `text` is the content; the reasoning before it stays.
    const std::size_t content = content_begin(turn, said);
    EditedAnswer edited =
        encode_edit(tokenizer_, {said.begin() + static_cast<std::ptrdiff_t>(content), said.end()}, text);
    edited.tokens.insert(edited.tokens.begin(), said.begin(), said.begin() + static_cast<std::ptrdiff_t>(content));
    edited.kept += content;
    turn.given = std::move(edited.tokens);
    turn.given_sampled.assign(sampled.begin(), sampled.begin() + static_cast<std::ptrdiff_t>(edited.kept));
    turn.given_sampled.resize(turn.given.size(), 0);
    const AnswerRecording recording = record(turn, parent);
    // What follows the edited text may be what followed it before.
    Answer answer = generate(turn, parent, limits, recording.watch(show), std::nullopt, said);
    answer.line = current_branch();
    commit(std::move(turn), parent);
    return answer;
}

// The place of the first token of the content.
std::size_t Conversation::content_begin(const Turn& turn, const std::vector<std::int32_t>& answer) const {
    if (style_.markup.none()) return 0;
    core::AnswerParser parser(style_.markup, tokenizer_, turn.input);
    std::vector<core::AnswerPart> parts;
    bool reasoned = false;
    for (std::size_t i = 0; i < answer.size(); ++i) {
        parts.clear();
        parser.push(answer[i], parts);
        reasoned = reasoned || std::ranges::any_of(parts, &core::AnswerPart::reasoning);
        if (parser.content_begun()) return reasoned || style_.markup.kind == core::AnswerMarkup::Kind::harmony ? i : 0;
    }
    return reasoned ? answer.size() : 0;
}

Conversation::Answer Conversation::more(const Limits& limits, const Show& show) {
    check(!empty(), "more() needs a turn");
    Turn turn = last();
    if (turn.ended) throw Error("the model ended its answer; /retry generates another one");
    const int parent = tree_.parent(tree_.head());
    turn.given.insert(turn.given.end(), turn.answer.begin(), turn.answer.end());
    turn.given_sampled.resize(turn.given.size(), 1);
    const AnswerRecording recording = record(turn, parent);
    Answer answer = generate(turn, parent, limits, recording.watch(show));
    answer.line = current_branch();
    commit(std::move(turn), parent);
    return answer;
}

Conversation::Answer Conversation::fill(const std::string& prefix, const std::string& suffix, const Limits& limits,
                                        const Show& show) {
    Turn turn;
    turn.said = prefix;
    turn.input =
        encode_fill(tokenizer_, prefix, suffix, fill_room(generator_->capacity(), limits.max_tokens), style_.fim_order);
    turn.seed = limits.seed;
    turn.branch = limits.branch;
    const Surroundings hole{prefix, suffix, leaves_out_blank(tokenizer_, prefix, style_.fim_order)};
    const AnswerRecording recording = record(turn, TurnTree::kRoot, {turn.branch}, empty());
    Answer answer = generate(turn, TurnTree::kRoot, limits, recording.watch(show), hole);
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
    holes_[tree_.head()] = hole;
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
        turn.said = said(*text);
        take_input(turn, encode(*text));
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
    request.begun = static_cast<std::int32_t>(turn.given.size());
    request.cancel = limits.cancel;
    if (!text) request.prediction = last().answer;  // as retry() does
    const std::optional<Surroundings> filled = text || !turn.given.empty() ? std::nullopt : around(tree_.head());
    std::vector<Hole> holes(filled ? count : 0, Hole(filled.value_or(Surroundings{}), has_fill_tokens(tokenizer_)));
    const auto show_filled = [&](std::size_t index, const speculative::TokenEvent& event) {
        speculative::TokenEvent part = event;
        const std::string more = holes[index].push(event.text);
        part.text = more;
        show(index, part);
    };
    std::vector<PartedAnswer> parted;
    for (std::size_t i = 0; i < count && !filled && !style_.markup.none(); ++i) {
        parted.emplace_back(style_.markup, tokenizer_, turn);
    }
    const auto shown_by = [&](std::size_t index) {
        return [&show, index](const speculative::TokenEvent& event) {
            if (show) show(index, event);
        };
    };
    const auto reasoning_of = [&](std::size_t index) {
        return index == 0 ? limits.reasoning : std::function<void(std::string_view)>();
    };
    const auto show_parted = [&](std::size_t index, const speculative::TokenEvent& event) {
        parted[index].push(event, shown_by(index), reasoning_of(index));
    };
    const speculative::BranchCallback shown = !parted.empty()  ? speculative::BranchCallback(show_parted)
                                              : filled && show ? speculative::BranchCallback(show_filled)
                                                               : show;
    const AnswerRecording recording = record(turn, parent, branches, text.has_value());
    const auto results = generator_->generate_branches(request, branches, recording.watch(shown));

    std::vector<Answer> answers;
    std::vector<Hole> kept;  // of the answers, in their order
    std::string failure;     // the first one's
    bool succeeded = false;  // at least one
    for (std::size_t i = 0; i < count; ++i) {
        if (filled) {
            if (!show) holes[i].push(results[i].text);
            const std::string rest = holes[i].finish();
            if (show && !rest.empty()) show(i, {.token = -1, .text = rest});
        }
        if (!parted.empty()) parted[i].finish(shown_by(i), reasoning_of(i));
        const bool cancelled = results[i].finish == speculative::FinishReason::cancelled;
        if (!results[i].error.empty()) {
            if (failure.empty()) failure = results[i].error;
        } else if (!cancelled || !results[i].tokens.empty()) {
            succeeded = true;
        }
        if (cancelled && results[i].tokens.empty()) continue;
        Answer answer{.result = results[i],
                      .input_tokens = answers.empty() ? evaluated : 0,
                      .seed = turn.seed,
                      .branch = branches[i]};
        if (!parted.empty()) parted[i].take(answer);
        answers.push_back(std::move(answer));
        if (filled) kept.push_back(holes[i]);
    }
    if (!failure.empty() && !succeeded) throw Error(failure);
    if (answers.empty()) {
        if (!text) {
            if (recorder_ != nullptr) recorder_->fail();  // no turn follows what was recorded
            return answers;
        }
        // As answer() keeps the message.
        answers.push_back({.result = results[0], .input_tokens = evaluated, .seed = turn.seed, .branch = branches[0]});
    }
    const int first_node = static_cast<int>(tree_.nodes().size());
    commit_side_by_side(std::move(turn), parent, text.has_value(), answers, kept);
    for (std::size_t i = 0; i < kept.size(); ++i) holes_[first_node + static_cast<int>(i)] = *filled;
    if (text) files_.clear();
    return answers;
}

// Adds a turn for each answer and sets Answer::line to its branch. The first answer to a new message stays on the
// current branch; every other one gets a new branch. One that did not fail becomes the current branch.
void Conversation::commit_side_by_side(Turn turn, int parent, bool new_message, std::vector<Answer>& answers,
                                       const std::vector<Hole>& holes) {
    TurnTree::Change change{{}, tree_.state(), false};
    for (std::size_t i = 0; i < answers.size(); ++i) {
        turn.branch = answers[i].branch;
        if (holes.empty()) {
            take(turn, answers[i].result);
        } else {
            take_filled(turn, answers[i].result, holes[i]);
        }
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
    const auto sound = std::ranges::find_if(answers, [](const Answer& one) { return one.result.error.empty(); });
    change.state.current = sound->line;
    apply(std::move(change));
}

AnswerRecording Conversation::record(const Turn& turn, int parent, const std::vector<std::uint64_t>& branches,
                                     bool on_current) const {
    TurnTree::Change change{{}, tree_.state(), false};
    for (std::size_t i = 0; i < branches.size() && recorder_ != nullptr; ++i) {
        Turn begun = turn;
        begun.branch = branches[i];
        begun.answer.clear();
        begun.ended = false;
        begun.finish = Turn::Finish::cancelled;
        const int node = static_cast<int>(tree_.nodes().size() + i);
        change.added.push_back({std::move(begun), parent});
        if (i > 0 || !on_current) change.state.heads.push_back(node);
        if (i == 0 && !on_current) change.state.current = change.state.heads.size() - 1;
        if (i == 0) change.state.heads[change.state.current] = node;
    }
    return {recorder_, tokenizer_, change};
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

void Conversation::visit_answer(const VisitLogits& visit) {
    check(!empty(), "visit_answer() needs a turn");
    visit_answer(0, last().given.size() + last().answer.size(), visit);
}

void Conversation::visit_answer(std::size_t first, std::size_t count, const VisitLogits& visit) {
    check(!empty(), "visit_answer() needs a turn");
    const Document all = document();
    const std::size_t start = all.tokens.size() - last().given.size() - last().answer.size();
    generator_->switch_to(all.tokens, all.generated);
    if (start + first == 0) return;
    generator_->visit_logits(static_cast<std::int32_t>(start + first), static_cast<std::int32_t>(count),
                             [&](std::int32_t index, std::span<const float> logits) {
                                 visit(static_cast<std::size_t>(index) - start,
                                       all.tokens[static_cast<std::size_t>(index)], logits);
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
    holes_.clear();
    ++changes_;
    files_.clear();
    unsaved_.clear();
}

std::string Conversation::text_before(const std::optional<std::string>& said, std::size_t most) const {
    check(said || !empty(), "there is no last answer");
    Document text = said ? document() : tree_.document(tree_.parent(tree_.head()));
    const std::vector<std::int32_t> input = said ? encode(*said).tokens : last().input;
    std::string prefix, suffix;
    if (decode_fill(tokenizer_, input, prefix, suffix)) return prefix;
    text.add(input, 0);
    const std::size_t count = std::min(most, text.tokens.size());
    return tokenizer_.decode(std::span(text.tokens).last(count));
}

std::optional<Surroundings> Conversation::around(int node) const {
    const auto known = holes_.find(node);
    if (known != holes_.end()) return known->second;
    return filled_hole(tokenizer_, tree_.turn(node));
}

void Conversation::rebind(speculative::Generator& generator, const core::Tokenizer& tokenizer, ChatStyle style,
                          bool same_vocabulary) {
    const core::Tokenizer before = std::exchange(tokenizer_, tokenizer);
    const core::AnswerMarkup markup_before = style_.markup;
    generator_ = &generator;
    style_ = std::move(style);
    if (same_vocabulary) return;
    const core::EncodeOptions plain{.add_special = false, .parse_special = false};
    ChatStyle as_said = style_;  // Turn::said has the newlines that a document got
    as_said.newline = false;
    tree_.rewrite([&](TurnTree::Node& node) {
        Turn& turn = node.turn;
        std::vector<std::int32_t> answer = turn.given;
        answer.insert(answer.end(), turn.answer.begin(), turn.answer.end());
        // The marks of one model's reasoning mean nothing to another, so it is left out.
        std::string text = core::split_answer(markup_before, before, turn.input, answer).content;
        turn.kept.reset();
        if (const std::optional<Surroundings> hole = filled_hole(before, turn)) {
            const auto& [prefix, suffix, blank_left_out] = *hole;
            const bool fills = tokenizer_.special().fim_middle >= 0 || style_.chat;
            // A model that is given the blank has not written it.
            const bool given = !fills || !leaves_out_blank(tokenizer_, prefix, style_.fim_order);
            if (blank_left_out && given && text.starts_with(' ')) text.erase(0, 1);
            turn.input = fills ? encode_fill(tokenizer_, prefix, suffix, generator_->capacity() / 2, style_.fim_order)
                               : encode_first(tokenizer_, as_said, {}, prefix);
        } else if (style_.chat) {
            try {
                take_input(turn, encode_by_template(node.parent, turn.said));
            } catch (const jinja::TemplateError&) {  // a turn that it would not have written
                turn.input = tokenizer_.encode(turn.said, plain);
            }
        } else if (node.parent == TurnTree::kRoot) {
            turn.input = encode_first(tokenizer_, as_said, {}, turn.said);
        } else {
            turn.input = encode_next(tokenizer_, as_said, {}, turn.said, false, false);
        }
        turn.given.clear();
        turn.given_sampled.clear();
        turn.answer = tokenizer_.encode(text, plain);
        turn.ended = false;  // the next turn's markup ends it in the new format
    });
    unsaved_.clear();
}

}  // namespace foresay::app
