// app/repl/entry_search.h: Ctrl-R: incremental search of earlier entries.
//
// Knows nothing of terminals: keys go in, and the line and the prompt to show come out.
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
    // The newest entry that contains `part`, at `index` or older.
    using Find = std::function<std::optional<Found>(const std::string& part, std::size_t index)>;

    explicit EntrySearch(Find find) : find_(std::move(find)) {}

    void begin(std::string line);
    void end() { active_ = false; }
    bool active() const { return active_; }

    enum class After : std::uint8_t {
        searching,  // show line() and prompt()
        left,       // the search has ended with line(); the caller must still act on the key
        abandoned,  // the search has ended, and line() is the line from before it
    };
    // Handles a key. Characters extend the text to search for.
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
