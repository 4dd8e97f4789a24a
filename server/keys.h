// server/keys.h: who may ask for what. Keys are kept as hashes in a file, which is read again when it changes.
//
// Layout:   a line is "sha256:HEX name=NAME rights=api|admin", then limits: running=N (requests at once) and
//           tokens_per_minute=N (of prompts and answers); blanks separate. '#' begins a comment.
// Threads:  any.
// Errors:   the constructor throws Error naming file and line. A file that becomes wrong later changes nothing; the
//           problem is told once.
#pragma once

#include <cstddef>
#include <cstdint>
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
    double tokens_per_minute = 0;  // 0: any number
};

// A request that runs, and what it costs its key.
// Threads:  any.
class Lease {
public:
    virtual ~Lease() = default;
    virtual void charge(std::int64_t tokens) = 0;
};

class Keys {
public:
    // `file` empty: no keys; everyone has the right `api`. `complain` gets a sentence when the file becomes wrong.
    explicit Keys(std::filesystem::path file, std::function<void(const std::string&)> complain = {});
    ~Keys();

    bool required() const;
    // The caller of a request, by its headers. Throws ApiError: a key is missing or wrong, or lacks the right.
    Caller check(const HttpRequest& request, Right wanted);
    // A request of this caller runs until the result is destroyed; null: nothing is counted. Throws ApiError when too
    // many run, or when its tokens of the last minute are used up.
    std::shared_ptr<Lease> begin(const Caller& caller);
    // Reads the file again now.
    void reload();

private:
    struct State;
    class Running;
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
