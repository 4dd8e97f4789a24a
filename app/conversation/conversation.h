// app/conversation/conversation.h: the operations of a conversation: answer, retry, edit, branch, undo. Tokens that two
// states of it share stay in the generator's KV cache and are not evaluated again.
//
// In the style complete a conversation is one document: entries and answers are appended to it (prompt.h says how).
//
// Life:     every operation is one change of the tree; take_unsaved() returns the changes for saving.
// Errors:   operations throw Error when the text does not fit the context or a sampler stage fails; the conversation
//           is then unchanged.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/conversation/answer_recorder.h"
#include "app/conversation/prompt.h"
#include "app/conversation/turn_tree.h"
#include "app/edits/hole.h"
#include "speculative/generator.h"

namespace foresay::app {

class Conversation {
public:
    // `generator` must outlive the conversation or its next rebind().
    Conversation(speculative::Generator& generator, const core::Tokenizer& tokenizer, ChatStyle style);

    struct Limits {
        std::int32_t max_tokens = 256;  // 0: to the end of the context
        std::uint64_t seed = 0;
        std::uint64_t branch = 0;
        const std::atomic<bool>* cancel = nullptr;
        // Called with the text that each token of reasoning completes; of several answers, with that of the first.
        std::function<void(std::string_view)> reasoning = {};
    };
    // Of an answer that has reasoning, result.text and what Show gets is the content alone.
    struct Answer {
        speculative::GenerateResult result;
        std::string reasoning = {};
        std::int64_t input_tokens = 0;  // evaluated before the first token
        std::uint64_t seed = 0;
        std::uint64_t branch = 0;  // of the seed
        std::size_t line = 0;      // the branch of the conversation that ends with it
    };
    using Show = speculative::TokenCallback;

    // ---- turns
    // Adds `text`, after the attached files, and generates the answer.
    Answer answer(const std::string& text, const Limits& limits, const Show& show);
    // Generates the last answer again: from `seed` and branch 0, or from the turn's own seed and its next unused
    // branch. There must be a turn.
    Answer retry(std::optional<std::uint64_t> seed, const Limits& limits, const Show& show);
    // Replaces the last answer by `text` and continues it. There must be a turn.
    Answer edit(const std::string& text, const Limits& limits, const Show& show);
    // Continues the last answer where it stopped, with the tokens that a longer limit would have given. There must be a
    // turn. Throws Error if the model ended that answer.
    Answer more(const Limits& limits, const Show& show);
    // Generates the text between `prefix` and `suffix`, as the first turn of a new branch. The text of the answer, and
    // of its retries, ends where the hole does (app/edits/hole.h).
    Answer fill(const std::string& prefix, const std::string& suffix, const Limits& limits, const Show& show);
    // Generates `count` answers side by side, each on its own branch: to `text`, or to the last message again, from the
    // next unused branches of the seed. The first that does not fail becomes the current branch. An answer that a stage
    // of the chain ends keeps what it has, and result.error; when all fail, the first error is thrown. When cancelled,
    // answers without a token are dropped; the result is empty if nothing is left. A new message may stay without an
    // answer.
    std::vector<Answer> answers(const std::optional<std::string>& text, std::size_t count, const Limits& limits,
                                const speculative::BranchCallback& show);

    // ---- going back
    bool undo();   // detaches the last file, or undoes the last change; false: nothing to undo
    void clear();  // starts an empty conversation
    bool can_undo() const { return !files_.empty() || tree_.can_undo(); }

    // ---- branches, numbered from 0
    std::size_t branch_count() const { return tree_.state().heads.size(); }
    std::size_t current_branch() const { return tree_.state().current; }
    std::vector<const Turn*> branch(std::size_t index) const { return tree_.line(tree_.state().heads[index]); }
    void switch_branch(std::size_t index);
    // A new branch that begins after the first `turns` turns of the current one, which stays as it is.
    void new_branch(std::size_t turns);

    // ---- files that come before the next message
    void attach(Attachment file) { files_.push_back(std::move(file)); }
    const std::vector<Attachment>& files() const { return files_; }
    // How many tokens the files add to the next message.
    std::int64_t file_tokens() const;

    // ---- contents
    bool empty() const { return tree_.head() == TurnTree::kRoot; }
    std::vector<const Turn*> turns() const { return tree_.line(tree_.head()); }  // of the current branch
    const Turn& last() const { return tree_.turn(tree_.head()); }                // there must be one
    std::string answer_text(const Turn& turn) const;                             // given and sampled, without reasoning
    std::string reasoning_text(const Turn& turn) const;                          // empty: none
    const TurnTree& tree() const { return tree_; }
    // The beginning of the prompt of answer(`text`), as far as typing more after `text` is unlikely to change it.
    // Evaluates nothing; may run concurrently with other const calls.
    Document upcoming(const std::string& text) const;
    // The text of the last `most` tokens before the answer to `said`, or without it before the last answer; of a fill,
    // what comes before the hole.
    std::string text_before(const std::optional<std::string>& said, std::size_t most) const;
    Document document() const { return tree_.document(tree_.head()); }
    std::int64_t tokens() const { return static_cast<std::int64_t>(document().tokens.size()); }
    // In the style complete: whether the document ends within a line, and the text of that line.
    bool line_open() const;
    std::string open_line() const;
    // How many changes there were so far, undos among them.
    std::size_t changes() const { return changes_; }
    const ChatStyle& style() const { return style_; }
    core::ChatFormat format() const { return style_.format; }
    void set_style(ChatStyle style) { style_ = std::move(style); }  // of the turns to come
    speculative::Generator& generator() { return *generator_; }
    const core::Tokenizer& tokenizer() const { return tokenizer_; }

    // The logits that each token of the last answer was sampled from, by its index in given + answer.
    using VisitLogits = std::function<void(std::size_t index, std::int32_t token, std::span<const float>)>;
    void visit_answer(const VisitLogits& visit);
    // The same for `count` tokens from index `first` on.
    void visit_answer(std::size_t first, std::size_t count, const VisitLogits& visit);

    // ---- saving
    // `recorder` must outlive the conversation; null: none.
    void set_recorder(AnswerRecorder* recorder) { recorder_ = recorder; }
    // Returns the changes since the last call, in order.
    std::vector<TurnTree::Change> take_unsaved() { return std::exchange(unsaved_, {}); }
    // Replaces the conversation by a saved one. Throws Error if it has tokens outside the model's vocabulary.
    void restore(TurnTree tree);
    // Switches to another generator, perhaps of another model. With another vocabulary every turn is tokenised again:
    // the text stays, but a replay need not reproduce it. take_unsaved() then returns nothing; save a snapshot.
    void rebind(speculative::Generator& generator, const core::Tokenizer& tokenizer, ChatStyle style,
                bool same_vocabulary);

private:
    // What a message adds: Turn::kept and Turn::input.
    struct Input {
        std::optional<std::int64_t> kept;
        std::vector<std::int32_t> tokens;
    };
    // Throws Error, before all of it becomes tokens, when `text` with the attached files is longer than the context.
    Input encode(const std::string& text) const;
    // The same for a text whose least_tokens() fit the context.
    Input encode_bounded(const std::string& text) const;
    // By the chat template: the messages up to `parent`, and the user's `said`.
    Input encode_by_template(int parent, const std::string& said) const;
    std::size_t content_begin(const Turn& turn, const std::vector<std::int32_t>& answer) const;
    static void take_input(Turn& turn, Input input);
    core::AnswerParts parts(const Turn& turn) const;
    // A number of tokens that `text` with the attached files has at least.
    std::int64_t least_tokens(const std::string& text) const;
    std::string said(const std::string& text) const;  // Turn::said of the next turn
    Answer generate(Turn& turn, int parent, const Limits& limits, const Show& show,
                    const std::optional<Surroundings>& around = std::nullopt,
                    std::span<const std::int32_t> prediction = {});
    // Moves the generator to the end of the turn's prompt. Returns how many tokens it still has to evaluate.
    std::int64_t prepare(const Turn& turn, int parent);
    void take(Turn& turn, const speculative::GenerateResult& result) const;
    // Cuts an answer where the hole ends, by tokens in `turn` and by characters in `result`.
    void take_filled(Turn& turn, speculative::GenerateResult& result, const Hole& hole) const;
    // What is around the hole that the turn fills; nullopt: it fills none.
    std::optional<Surroundings> around(int node) const;
    void apply(TurnTree::Change change);
    void commit(Turn turn, int parent);
    // `holes`: of each answer, if they fill holes.
    void commit_side_by_side(Turn turn, int parent, bool new_message, std::vector<Answer>& answers,
                             const std::vector<Hole>& holes);
    // Tells the recorder that answers to `turn` are generated, from these branches of its seed. The first becomes the
    // end of the current branch, if `on_current`; every other one gets a new branch.
    AnswerRecording record(const Turn& turn, int parent, const std::vector<std::uint64_t>& branches,
                           bool on_current) const;
    AnswerRecording record(const Turn& turn, int parent) const { return record(turn, parent, {turn.branch}, true); }
    void require_room_for_branches(std::size_t count) const;
    std::uint64_t unused_branch(const Turn& turn, int parent) const;

    speculative::Generator* generator_;
    core::Tokenizer tokenizer_;
    ChatStyle style_;
    TurnTree tree_;
    std::vector<Attachment> files_;
    std::vector<TurnTree::Change> unsaved_;
    AnswerRecorder* recorder_ = nullptr;
    std::map<int, Surroundings> holes_;  // by node, of the turns filled since the program began
    std::size_t changes_ = 0;
};

}  // namespace foresay::app
