#include "app/repl/entry_search.h"

#include <utility>

#include "core/text/utf8.h"

namespace foresay::app {

namespace {

constexpr char32_t kControlG = 7, kBackspace = 8, kControlR = 18, kDelete = 127;
constexpr char32_t kFirstCharacter = 0x20;

}  // namespace

void EntrySearch::begin(std::string line) {
    active_ = true;
    missing_ = found_ = false;
    line_ = before_ = std::move(line);
    part_.clear();
    index_ = 0;
}

// Takes the next entry that contains part_; with `another`, one that differs from the current line.
void EntrySearch::look(std::size_t from, bool another) {
    std::optional<Found> next = find_(part_, from);
    while (next && another && next->entry == line_) next = find_(part_, next->index + 1);
    missing_ = !next;
    if (!next) return;
    found_ = true;
    line_ = std::move(next->entry);
    index_ = next->index;
}

EntrySearch::After EntrySearch::key(char32_t key) {
    if (key == kControlG) {
        active_ = false;
        line_ = before_;
        return After::abandoned;
    }
    if (key == kControlR) {
        if (!part_.empty() && !missing_) look(found_ ? index_ + 1 : 0, found_);
        return After::searching;
    }
    if (key == kBackspace || key == kDelete) {
        if (!part_.empty()) {
            part_.pop_back();
            part_.resize(core::valid_utf8_prefix(part_));
        }
        found_ = missing_ = false;
        line_ = before_;
        if (!part_.empty()) look(0, false);
        return After::searching;
    }
    if (key < kFirstCharacter) {
        active_ = false;
        return After::left;
    }
    core::append_utf8(key, part_);
    look(found_ ? index_ : 0, false);
    return After::searching;
}

std::string EntrySearch::prompt() const { return (missing_ ? "no older entry with '" : "search '") + part_ + "': "; }

}  // namespace foresay::app
