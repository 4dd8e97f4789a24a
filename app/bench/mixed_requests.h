// app/bench/mixed_requests.h: requests of every protocol that foresay serve speaks, for `bench serve --verify`:
// streamed and not, several answers, stop strings, temperatures, chains, plugins, predictions, grammars, calls of
// tools.
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
// The same, to be answered in another way: an odd variant is streamed where the request is not, and the other way
// round; 2 and 3 are without speculation, 4 and 5 without what the cache holds.
constexpr std::size_t kVariants = 6;
MixedRequest varied(MixedRequest request, std::size_t variant);
// What the body of an answer says, as JSON that depends neither on the protocol's words nor on how the answer was cut:
// of each text the content, the reasoning, the calls with their arguments, why it ended, and what was told of its
// tokens (ids, log probabilities); the numbers of tokens; the seed. Throws Error for a body that is no such answer, or
// that tells an error.
std::string answer_of(const MixedRequest& request, std::string_view body);

}  // namespace foresay::app
