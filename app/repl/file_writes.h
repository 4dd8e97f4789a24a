// app/repl/file_writes.h: the files that a conversation's commands write: shown as a diff, agreed to, and taken back by
// /undo.
//
// Errors:   Error naming the file; it is then unchanged.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "app/edits/target_file.h"

namespace foresay::app {

class Repl;

struct WriteOptions {
    bool yes = false;      // --yes: write without asking
    bool outside = false;  // --outside: the file may be outside the working folder
};
// Takes a word if it is one of the options above.
bool take_write_option(const std::string& word, WriteOptions& options);

class FileWrites {
public:
    struct Write {
        TargetFile before;
        std::string after;
        std::filesystem::path backup;
        std::size_t changes = 0, attached = 0;  // of the conversation, when the file was written
        bool refused = false;                   // /undo without a file passes over it
    };

    void add(Write write) { writes_.push_back(std::move(write)); }
    // The last write, if nothing was changed in the conversation since; nullptr otherwise.
    Write* newest(Repl& repl);
    // The last write of a file. Errors: there is none.
    Write& last_of(const std::string& name);
    // Gives the file its earlier text back, or deletes it if there was none. Returns what was done, as a sentence.
    // Errors: the file has changed since it was written.
    std::string take_back(Write& write);

private:
    std::vector<Write> writes_;  // the oldest first
};

// Errors if the user cannot be asked and has not agreed beforehand. `command`: "/write".
void require_consent(Repl& repl, const std::string& command, const WriteOptions& options);

// Shows how `after` differs from the file, asks, keeps a backup, writes the file, and says so. False: nothing was
// written, because nothing differs or the user does not want it.
bool propose_write(Repl& repl, const TargetFile& file, const std::string& after, const WriteOptions& options);

// Asks a question on a terminal whose keys arrive one by one. True only for the key y.
bool ask_at_terminal(const std::string& question);

}  // namespace foresay::app
