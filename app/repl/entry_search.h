// app/repl/entry_search.h: searching earlier entries by a part of their text, key by key: what Ctrl-R does.
//
// It knows nothing of terminals: keys go in, the line and the prompt that are to be shown come out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace foresay::app {

class EntrySearch {
public:
    struct Found {
        std::string entry;
        std::size_t index = 0;  // 0 is the newest entry
    };
    // The newest entry from `index` on, towards older ones, that holds `part`.
    using Find = std::function<std::optional<Found>(const std::string& part, std::size_t index)>;

    explicit EntrySearch(Find find) : find_(std::move(find)) {}

    void begin(std::string line);
    void end() { active_ = false; }
    bool active() const { return active_; }

    enum class After : std::uint8_t {
        searching,  // line() and prompt() are to be shown
        left,       // the search is over, line() stands, and the key is still to be obeyed
        abandoned,  // the search is over, and line() is what stood there before it
    };
    // A key; characters are added to what is looked for.
    After key(char32_t key);

    const std::string& line() const { return line_; }
    std::string prompt() const;

private:
    void look(std::size_t from, bool another);

    Find find_;
    bool active_ = false;
    bool missing_ = false;  // no entry holds part_
    std::string before_, line_, part_;
    std::size_t index_ = 0;  // of line_, where found_
    bool found_ = false;
};

}  // namespace foresay::app
