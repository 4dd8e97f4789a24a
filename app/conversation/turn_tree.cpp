#include "app/conversation/turn_tree.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace foresay::app {

namespace {

constexpr std::size_t kMaxPast = 256;

}  // namespace

void Document::add(const std::vector<std::int32_t>& more, std::uint8_t kind) {
    tokens.insert(tokens.end(), more.begin(), more.end());
    generated.resize(tokens.size(), kind);
}

void Document::keep(std::int64_t count) {
    if (count >= static_cast<std::int64_t>(tokens.size())) return;
    tokens.resize(static_cast<std::size_t>(count));
    generated.resize(tokens.size());
}

void Document::add_prompt(const Turn& turn) {
    if (turn.kept) keep(*turn.kept);
    add(turn.input, 0);
    tokens.insert(tokens.end(), turn.given.begin(), turn.given.end());
    generated.insert(generated.end(), turn.given_sampled.begin(), turn.given_sampled.end());
}

void Document::add(const Turn& turn) {
    add_prompt(turn);
    add(turn.answer, 1);
}

void TurnTree::apply(Change change) {
    const std::size_t count = nodes_.size() + change.added.size();
    const State& state = change.state;
    if (count > kMaxTurns) throw Error("a conversation has at most " + std::to_string(kMaxTurns) + " turns");
    for (std::size_t i = 0; i < change.added.size(); ++i) {
        const Node& node = change.added[i];
        const bool fits = node.parent >= kRoot && node.parent < static_cast<int>(nodes_.size() + i);
        if (!fits) throw Error("a turn follows one that does not exist");
        if (node.turn.given.size() != node.turn.given_sampled.size())
            throw Error("a turn's given tokens are incomplete");
        if (node.turn.kept.value_or(0) < 0) throw Error("a turn keeps a negative number of tokens");
    }
    if (state.heads.empty() || state.heads.size() > kMaxBranches) {
        throw Error("a conversation has from 1 to " + std::to_string(kMaxBranches) + " branches");
    }
    const auto known = [&](int head) { return head >= kRoot && head < static_cast<int>(count); };
    if (!std::all_of(state.heads.begin(), state.heads.end(), known) || state.current >= state.heads.size()) {
        throw Error("a branch ends in a turn that does not exist");
    }
    if (change.undo && (past_.empty() || past_.back() != state || !change.added.empty())) {
        throw Error("an undo does not match the change before it");
    }
    for (Node& node : change.added) nodes_.push_back(std::move(node));
    if (change.undo) {
        past_.pop_back();
    } else {
        past_.push_back(std::move(state_));
        if (past_.size() > kMaxPast) past_.erase(past_.begin());
    }
    state_ = std::move(change.state);
}

TurnTree::Change TurnTree::undo() const {
    check(!past_.empty(), "there is nothing to undo");
    return {{}, past_.back(), true};
}

std::vector<TurnTree::Change> TurnTree::snapshot() const {
    std::vector<Change> changes;
    std::vector<State> states = past_;
    states.push_back(state_);
    // An empty tree has the initial state already. It is not first if kMaxPast has dropped it.
    for (std::size_t i = states.front() == State{} ? 1 : 0; i < states.size(); ++i) changes.push_back({{}, states[i]});
    if (!changes.empty()) changes.front().added = nodes_;
    return changes;
}

std::vector<const Turn*> TurnTree::line(int head) const {
    std::vector<const Turn*> turns;
    for (int node = head; node != kRoot; node = parent(node)) turns.push_back(&turn(node));
    std::reverse(turns.begin(), turns.end());
    return turns;
}

Document TurnTree::document(int head) const {
    Document document;
    for (const Turn* turn : line(head)) document.add(*turn);
    return document;
}

}  // namespace foresay::app
