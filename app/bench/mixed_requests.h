// app/bench/mixed_requests.h: requests of every protocol that foresay serve speaks, for `bench serve --verify`:
// streamed and not, several answers, stop strings, temperatures, chains, plugins, predictions, grammars.
//
// Threads:  pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace foresay::app {

struct MixedRequest {
    std::string path, body;
    bool stream = false;
    bool leaves = false;  // the client goes when the answer has begun; nothing is compared
};

// A plugin in the server's chain, and an option of it that takes texts; empty: none.
struct MixedPlugin {
    std::string name, option;
};

// The request of a number: the same for every call.
MixedRequest mixed_request(std::size_t number, const MixedPlugin& plugin);
// The same, to be answered in another way: 0: as it is; 1: without speculation; 2: without what the cache holds.
MixedRequest varied(MixedRequest request, std::size_t variant);
// What the models wrote in the body of an answer: texts, reasoning and calls, in the order of the answers. Throws Error
// for a body that is no such answer, or that tells an error.
std::string texts_of(const MixedRequest& request, std::string_view body);

}  // namespace foresay::app
