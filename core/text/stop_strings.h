// core/text/stop_strings.h: watches a stream of text for stop strings and holds back what may become one.
//
// The stream stops at the first byte that completes a stop string (the longest, if several end there). The text is cut
// before that string. The result does not depend on how the stream is divided into pushes.
//
// Layout:   returned views point into the object and are valid until its next call.
// Threads:  one caller at a time.
// Cost:     amortised O(1) per byte, whatever the number of stop strings; allocates nothing once its buffer has grown.
// Errors:   an empty stop string, or more than kMaxStopBytes of them, throws Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace foresay::core {

inline constexpr std::size_t kMaxStopBytes = 1 << 16;

class StopStrings {
public:
    StopStrings() : StopStrings(std::vector<std::string>{}) {}
    explicit StopStrings(const std::vector<std::string>& stops);

    // Feeds `text` and returns the text that is now safe to show. After a stop: nothing.
    std::string_view push(std::string_view text);
    // Ends the stream and returns the text held back. After a stop: nothing.
    std::string_view flush();
    // Starts a new stream.
    void reset();

    bool empty() const { return lengths_.empty(); }
    bool stopped() const { return stopped_ >= 0; }
    std::int32_t stopped_by() const { return stopped_; }  // index of the stop string, or -1
    std::size_t shown_bytes() const { return shown_; }    // where the stop occurred, once stopped
    std::size_t held_back_bytes() const { return stopped() ? 0 : held_.size(); }

private:
    // A trie with failure links (Aho-Corasick). The depth of the state is the number of bytes to hold back.
    struct Node {
        std::int32_t child = -1, sibling = -1;  // first child; next child of the same parent
        std::int32_t fail = 0;
        std::int32_t depth = 0;
        std::int32_t stop = -1;  // the longest stop string that ends here
        unsigned char byte = 0;
    };
    std::int32_t child_of(std::int32_t node, unsigned char byte) const;
    std::int32_t advance(std::int32_t node, unsigned char byte) const;
    void add(std::string_view stop, std::int32_t index);
    void link();

    std::vector<Node> nodes_;
    std::vector<std::size_t> lengths_;
    std::string held_;  // not yet shown
    std::string out_;
    std::int32_t state_ = 0;
    std::int32_t stopped_ = -1;
    std::size_t shown_ = 0;
};

}  // namespace foresay::core
