// server/keys.h: who may ask for what. Keys are kept as hashes in a file, which is read again when it changes.
//
// Layout:   a line is "sha256:HEX name=NAME rights=api|admin", then limits: running=N (requests at once), queued by the
//           server beyond; blanks separate. '#' begins a comment.
// Threads:  any.
// Errors:   the constructor throws Error naming file and line. A file that becomes wrong later changes nothing; the
//           problem is told once.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "server/http/message.h"

namespace foresay::server {

enum class Right : std::uint8_t { open, api, admin };  // open: no key is needed

struct Caller {
    std::string name;  // of the key; empty: none was needed
    Right right = Right::api;
    std::size_t most_running = 0;  // requests at once; 0: any number
};

class Keys {
public:
    // `file` empty: no keys; everyone has the right `api`. `complain` gets a sentence when the file becomes wrong.
    explicit Keys(std::filesystem::path file, std::function<void(const std::string&)> complain = {});
    ~Keys();

    bool required() const;
    // The caller of a request, by its headers. Throws ApiError: a key is missing or wrong, or lacks the right.
    Caller check(const HttpRequest& request, Right wanted);
    // A request of this caller runs until the result is destroyed. Throws ApiError when too many run.
    std::shared_ptr<void> begin(const Caller& caller);
    // Reads the file again now.
    void reload();

private:
    struct State;
    std::shared_ptr<State> state_;
};

// A new key, and the line of the file that knows it.
struct NewKey {
    std::string key, line;
};
NewKey make_key(const std::string& name, bool admin);

// Whether two texts are equal, in a time that says nothing about them.
bool same_secret(std::string_view a, std::string_view b);

}  // namespace foresay::server
