// app/conversation/turn_tree.h: a conversation as a tree of turns, and branches that point into it. Plain data, without
// a model.
//
// A turn is never changed or removed: retrying, editing and undoing only move branches. A change is a value:
// app/journal saves the changes, and reading a session applies them again.
//
// Threads:  one caller at a time.
// Errors:   apply() throws Error for an invalid change, because changes also come from files. The tree is then
//           unchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace foresay::app {

struct Turn {
    enum class Finish : std::uint8_t { stop, length, cancelled };

    std::string said;                 // the user's message, as text without markup
    std::vector<std::int32_t> input;  // its tokens, with markup if the style has any
    // How many tokens of the conversation before it the prompt keeps, where a chat template writes what follows them
    // again, as those do that leave out earlier reasoning; nullopt: all.
    std::optional<std::int64_t> kept;
    // The beginning of the answer that was not sampled in this turn: what /edit kept, and what the user wrote.
    std::vector<std::int32_t> given;
    std::vector<std::uint8_t> given_sampled;  // per token: 1 if an earlier turn sampled it
    std::vector<std::int32_t> answer;         // the tokens sampled in this turn
    std::uint64_t seed = 0;
    std::uint64_t branch = 0;
    bool ended = false;  // the model ended its answer itself
    Finish finish = Finish::stop;
};

// Tokens, and per token whether it was generated (1) or given (0).
struct Document {
    std::vector<std::int32_t> tokens;
    std::vector<std::uint8_t> generated;

    void add(const std::vector<std::int32_t>& more, std::uint8_t kind);
    void keep(std::int64_t tokens);     // drops what follows the first `tokens`
    void add_prompt(const Turn& turn);  // its input and the given part of its answer, after what it keeps
    void add(const Turn& turn);         // the whole turn
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
    // The last turn of each branch, and which branch is current.
    struct State {
        std::vector<int> heads = {kRoot};
        std::size_t current = 0;
        bool operator==(const State&) const = default;
    };
    struct Change {
        std::vector<Node> added;  // appended to nodes()
        State state;              // after the change
        bool undo = false;        // undoes the last change; `state` must be the state before it
    };

    void apply(Change change);

    const std::vector<Node>& nodes() const { return nodes_; }
    const State& state() const { return state_; }
    int head() const { return state_.heads[state_.current]; }
    bool can_undo() const { return !past_.empty(); }
    // The change that undoes the last one. can_undo() must hold.
    Change undo() const;

    // Changes that build this tree from an empty one, including the states that undo() can return to.
    std::vector<Change> snapshot() const;
    // The turns from the first one to `head`.
    std::vector<const Turn*> line(int head) const;
    Document document(int head) const;
    const Turn& turn(int node) const { return nodes_[static_cast<std::size_t>(node)].turn; }
    int parent(int node) const { return nodes_[static_cast<std::size_t>(node)].parent; }

    // Calls `rewrite` on every node, parents before children, to change its tokens to another vocabulary.
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
