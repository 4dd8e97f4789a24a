// app/conversation/turn_tree.h: a conversation as a tree of turns, and branches that point into it. Plain data: nothing
// here knows of a model.
//
// A turn is never changed or removed: retrying, editing and undoing move branches. A change is a value of its own, so
// that what is saved (app/journal) is what is done, and reading it back is doing it again.
//
// Threads:  one caller at a time.
// Errors:   apply() throws Error for a change that does not fit: changes come from files, too. The tree is then as
//           before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace foresay::app {

struct Turn {
    enum class Finish : std::uint8_t { stop, length, cancelled };

    std::string said;                 // what was said, as text, without markup
    std::vector<std::int32_t> input;  // its tokens, with markup if the style has any
    // The beginning of the answer when it was not drawn in this turn: what /edit kept and what it wrote.
    std::vector<std::int32_t> given;
    std::vector<std::uint8_t> given_drawn;  // per token: 1 when an earlier turn drew it
    std::vector<std::int32_t> answer;       // tokens that were drawn and stay in the conversation
    std::uint64_t seed = 0;
    std::uint64_t branch = 0;
    bool ended = false;  // the model closed its answer itself
    Finish finish = Finish::stop;
};

// Tokens, and per token whether it was generated (1) or given (0).
struct Document {
    std::vector<std::int32_t> tokens;
    std::vector<std::uint8_t> generated;

    void add(const std::vector<std::int32_t>& more, std::uint8_t kind);
    void add_prompt(const Turn& turn);  // its input and what was given of its answer
    void add(const Turn& turn);         // all of it
};

class TurnTree {
public:
    static constexpr int kRoot = -1;  // the empty conversation
    static constexpr std::size_t kMaxBranches = 1024;
    static constexpr std::size_t kMaxTurns = 1 << 20;

    struct Node {
        Turn turn;
        int parent = kRoot;
    };
    // Where the branches stand, and which one is the present.
    struct State {
        std::vector<int> heads = {kRoot};
        std::size_t current = 0;
        bool operator==(const State&) const = default;
    };
    struct Change {
        std::vector<Node> added;  // their indices follow those that are there
        State state;              // afterwards
        bool undo = false;        // goes back to the state before the last change; `state` says which that is
    };

    void apply(Change change);

    const std::vector<Node>& nodes() const { return nodes_; }
    const State& state() const { return state_; }
    int head() const { return state_.heads[state_.current]; }
    bool can_undo() const { return !past_.empty(); }
    // The change that undoes the last one. There must be one.
    Change undo() const;

    // Changes that make this tree from an empty one, what can be undone included.
    std::vector<Change> snapshot() const;
    // The turns up to and with `head`, from the first on.
    std::vector<const Turn*> line(int head) const;
    Document document(int head) const;
    const Turn& turn(int node) const { return nodes_[static_cast<std::size_t>(node)].turn; }
    int parent(int node) const { return nodes_[static_cast<std::size_t>(node)].parent; }

    // The turns are rewritten in order, each by `rewrite`, which sees those before it: for another vocabulary.
    template <class Rewrite>
    void rewrite(Rewrite&& rewrite) {
        for (Node& node : nodes_) rewrite(node);
    }

private:
    std::vector<Node> nodes_;
    State state_;
    std::vector<State> past_;  // for undo, the oldest first
};

}  // namespace foresay::app
