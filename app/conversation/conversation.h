// app/conversation/conversation.h: what is done with a conversation: answering, retrying, editing, branching, going
// back. The generator's cache follows: what two states share is never computed again.
//
// Life:     every operation is one change of the tree; take_unsaved() hands the changes to whoever saves them.
// Errors:   operations throw Error when the text does not fit the context or a stage fails; the conversation is then as
//           before.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/conversation/prompt.h"
#include "app/conversation/turn_tree.h"
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
    };
    struct Answer {
        speculative::GenerateResult result;
        std::int64_t input_tokens = 0;  // that had to be evaluated
        std::uint64_t seed = 0;
        std::uint64_t branch = 0;  // of the noise
        std::size_t line = 0;      // the branch of the conversation that ends with it
    };
    using Show = speculative::TokenCallback;

    // ---- turns
    // Says `text`, the attached files in front, and generates the answer.
    Answer answer(const std::string& text, const Limits& limits, const Show& show);
    // The last turn's answer again: with `seed` and branch 0, or with the turn's own seed and the next branch that was
    // not used yet for it. There must be a turn.
    Answer retry(std::optional<std::uint64_t> seed, const Limits& limits, const Show& show);
    // The last turn's answer, changed to `text` and continued. There must be a turn.
    Answer edit(const std::string& text, const Limits& limits, const Show& show);
    // Fills the hole between two texts, as the first turn of a new branch.
    Answer fill(const std::string& prefix, const std::string& suffix, const Limits& limits, const Show& show);
    // `count` answers side by side, each on a branch of its own: to `text`, with branches 0, 1, 2...; without a text to
    // what was said last, with the next branches that were not used yet. The first of them becomes the present one.
    std::vector<Answer> answers(const std::optional<std::string>& text, std::size_t count, const Limits& limits,
                                const speculative::BranchCallback& show);

    // ---- going back
    bool undo();   // takes back what was done last, or else the last file attached; false: nothing to take back
    void clear();  // an empty conversation
    bool can_undo() const { return !files_.empty() || tree_.can_undo(); }

    // ---- branches, numbered from 0
    std::size_t branch_count() const { return tree_.state().heads.size(); }
    std::size_t current_branch() const { return tree_.state().current; }
    std::vector<const Turn*> branch(std::size_t index) const { return tree_.line(tree_.state().heads[index]); }
    void switch_branch(std::size_t index);
    // A new branch that begins behind the first `turns` turns of the present one, which stays as it is.
    void new_branch(std::size_t turns);

    // ---- files that go in front of what is said next
    void attach(Attachment file) { files_.push_back(std::move(file)); }
    const std::vector<Attachment>& files() const { return files_; }
    // Tokens that the next input has because of them.
    std::int64_t file_tokens() const;

    // ---- what there is
    bool empty() const { return tree_.head() == TurnTree::kRoot; }
    std::vector<const Turn*> turns() const { return tree_.line(tree_.head()); }  // of the present branch
    const Turn& last() const { return tree_.turn(tree_.head()); }                // there must be one
    std::string answer_text(const Turn& turn) const;                             // given and drawn
    const TurnTree& tree() const { return tree_; }
    // The beginning of what answer(`text`) would evaluate: as much of it as is the same whatever more is written behind
    // `text`. Nothing is evaluated; safe beside other calls that only look.
    Document upcoming(const std::string& text) const;
    Document document() const { return tree_.document(tree_.head()); }
    std::int64_t tokens() const { return static_cast<std::int64_t>(document().tokens.size()); }
    const ChatStyle& style() const { return style_; }
    core::ChatFormat format() const { return style_.format; }
    void set_style(ChatStyle style) { style_ = std::move(style); }  // of the turns to come
    speculative::Generator& generator() { return *generator_; }
    const core::Tokenizer& tokenizer() const { return tokenizer_; }

    // The logits that each token of the last answer was drawn from, by its index in given + answer.
    void visit_answer(const std::function<void(std::size_t index, std::int32_t token, std::span<const float>)>& visit);

    // ---- saving
    // The changes since the last call, in order.
    std::vector<TurnTree::Change> take_unsaved() { return std::exchange(unsaved_, {}); }
    // A conversation as it was saved. Throws Error when its tokens are not this model's.
    void restore(TurnTree tree);
    // Another generator, perhaps of another model. Where its vocabulary is another one, every turn is spelt in it anew:
    // the conversation says the same, but that it would be drawn again is no longer promised, and take_unsaved() has
    // nothing to say: save a snapshot.
    void rebind(speculative::Generator& generator, const core::Tokenizer& tokenizer, ChatStyle style,
                bool same_vocabulary);

private:
    std::vector<std::int32_t> encode(const std::string& text) const;
    Answer generate(Turn& turn, int parent, const Limits& limits, const Show& show);
    // Positions the generator behind the turn's prompt; returns how many tokens have to be evaluated.
    std::int64_t prepare(const Turn& turn, int parent);
    void take(Turn& turn, const speculative::GenerateResult& result) const;
    void apply(TurnTree::Change change);
    void commit(Turn turn, int parent);
    std::uint64_t unused_branch(const Turn& turn, int parent) const;

    speculative::Generator* generator_;
    core::Tokenizer tokenizer_;
    ChatStyle style_;
    TurnTree tree_;
    std::vector<Attachment> files_;
    std::vector<TurnTree::Change> unsaved_;
};

}  // namespace foresay::app
