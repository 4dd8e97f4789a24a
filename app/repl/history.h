// app/repl/history.h: the history of entries, for libedit.
//
// File:     $XDG_STATE_HOME/foresay/history, readable by its owner only, in libedit's format; entries keep their line
//           breaks. Each entry is appended at once, so that several processes share the file and nothing is lost.
// Errors:   none: without a file the history ends with the process. The first entry that cannot be written is
//           complained about.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "app/repl/blocks.h"
#include "app/repl/entry_search.h"

struct history;
struct HistEvent;

namespace foresay::app {

class EntryHistory {
public:
    // libedit sees long entries as labels of `blocks`.
    explicit EntryHistory(Blocks& blocks);
    ~EntryHistory();
    EntryHistory(const EntryHistory&) = delete;
    EntryHistory& operator=(const EntryHistory&) = delete;

    void remember(const std::string& entry);

    // The newest entry that contains `part`, among the `index`-th newest and older ones.
    std::optional<EntrySearch::Found> find(const std::string& part, std::size_t index) const;
    // How the line shows an entry: as it is, or as a label.
    std::string shown(const std::string& entry) const;

    // For EL_HIST, with the object as its first argument.
    static int look(void* self, HistEvent* event, int operation, ...);

private:
    void load();

    Blocks& blocks_;
    std::filesystem::path path_;
    struct ::history* entries_ = nullptr;
    std::string shown_;  // what libedit was given last
    std::string last_;
    bool warned_ = false;
};

}  // namespace foresay::app
