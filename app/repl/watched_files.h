// app/repl/watched_files.h: files whose present text the context holds: a file that has changed is attached again
// before the next message.
//
// What was read becomes part of the turn's input, like any given text, and is saved with it. Which turn holds which
// text is known for the turns of this process; after a session was resumed, every watched file is attached once more.
//
// Errors:   Error for a file that cannot be read or does not fit the context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace foresay::app {

class Conversation;
class Repl;

// Attaches a file and returns how many tokens it adds. Errors: it cannot be read, or does not fit the context; it is
// left out then.
std::int64_t attach_file(Repl& repl, const std::filesystem::path& path);

class WatchedFiles {
public:
    // Returns false if the file is watched already.
    bool add(const std::filesystem::path& path);
    // Errors: the file is not watched.
    void remove(const std::filesystem::path& path);
    const std::vector<std::filesystem::path>& files() const { return files_; }

    // Attaches the files whose present text the current branch does not hold, and says so. A file that cannot be read
    // is reported and left out.
    void attach_changed(Repl& repl);
    // The turns from `first` on hold what attach_changed() attached.
    void sent(const Conversation& conversation, std::size_t first);

private:
    using Versions = std::map<std::string, std::uint64_t>;  // a hash of the text, by path
    const std::uint64_t* held(const Conversation& conversation, const std::string& path) const;

    std::vector<std::filesystem::path> files_;
    struct Sent {
        std::uint64_t said = 0;  // a hash of the turn's text: after /load the number may be that of another turn
        Versions versions;
    };
    Versions attached_;                    // since the last sent()
    std::map<std::size_t, Sent> by_turn_;  // by the turn's number in the tree
};

}  // namespace foresay::app
