#include "core/text/stop_strings.h"

#include "base/error.h"

namespace foresay::core {

StopStrings::StopStrings(const std::vector<std::string>& stops) : nodes_(1) {
    std::size_t total = 0;
    for (const std::string& stop : stops) {
        if (stop.empty()) throw Error("a stop string is empty; leave it out or give it some text");
        total += stop.size();
        if (total > kMaxStopBytes)
            throw Error("the stop strings are longer than " + std::to_string(kMaxStopBytes) +
                        " bytes; use shorter ones");
    }
    for (std::size_t i = 0; i < stops.size(); ++i) {
        add(stops[i], static_cast<std::int32_t>(i));
        lengths_.push_back(stops[i].size());
    }
    link();
    // What may begin a stop string is held back until the text shows that it does not; then it comes at once.
    constexpr std::size_t kToken = 256;
    held_.reserve(total + kToken);
    out_.reserve(total + kToken);
}

std::int32_t StopStrings::child_of(std::int32_t node, unsigned char byte) const {
    std::int32_t child = nodes_[node].child;
    while (child >= 0 && nodes_[child].byte != byte) child = nodes_[child].sibling;
    return child;
}

void StopStrings::add(std::string_view stop, std::int32_t index) {
    std::int32_t node = 0;
    for (const char c : stop) {
        const auto byte = static_cast<unsigned char>(c);
        std::int32_t child = child_of(node, byte);
        if (child < 0) {
            child = static_cast<std::int32_t>(nodes_.size());
            Node fresh;
            fresh.byte = byte;
            fresh.depth = nodes_[node].depth + 1;
            fresh.sibling = nodes_[node].child;
            nodes_.push_back(fresh);
            nodes_[node].child = child;
        }
        node = child;
    }
    if (nodes_[node].stop < 0) nodes_[node].stop = index;
}

// Breadth first: a node's failure link is the longest proper suffix of its text that starts some stop string.
void StopStrings::link() {
    std::vector<std::int32_t> queue = {0};
    for (std::size_t i = 0; i < queue.size(); ++i) {
        const std::int32_t node = queue[i];
        for (std::int32_t child = nodes_[node].child; child >= 0; child = nodes_[child].sibling) {
            nodes_[child].fail = node == 0 ? 0 : advance(nodes_[node].fail, nodes_[child].byte);
            if (nodes_[child].stop < 0) nodes_[child].stop = nodes_[nodes_[child].fail].stop;
            queue.push_back(child);
        }
    }
}

std::int32_t StopStrings::advance(std::int32_t node, unsigned char byte) const {
    for (;;) {
        const std::int32_t child = child_of(node, byte);
        if (child >= 0) return child;
        if (node == 0) return 0;
        node = nodes_[node].fail;
    }
}

std::string_view StopStrings::push(std::string_view text) {
    out_.clear();
    if (stopped()) return out_;
    for (std::size_t i = 0; i < text.size(); ++i) {
        state_ = advance(state_, static_cast<unsigned char>(text[i]));
        if (nodes_[state_].stop < 0) continue;
        stopped_ = nodes_[state_].stop;
        held_.append(text.substr(0, i + 1));
        held_.resize(held_.size() - lengths_[static_cast<std::size_t>(stopped_)]);
        out_.swap(held_);
        held_.clear();
        shown_ += out_.size();
        return out_;
    }
    held_.append(text);
    const std::size_t safe = held_.size() - static_cast<std::size_t>(nodes_[state_].depth);
    out_.assign(held_, 0, safe);
    held_.erase(0, safe);
    shown_ += safe;
    return out_;
}

std::string_view StopStrings::flush() {
    out_.clear();
    if (stopped()) return out_;
    out_.swap(held_);
    held_.clear();
    shown_ += out_.size();
    state_ = 0;
    return out_;
}

void StopStrings::reset() {
    held_.clear();
    out_.clear();
    state_ = 0;
    stopped_ = -1;
    shown_ = 0;
}

}  // namespace foresay::core
