// server/workers.h: a few threads for what would hold up the network: JSON, templates, tokens.
//
// Life:     the destructor waits for what is running and drops the rest.
// Threads:  any thread may post.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace foresay::server {

class Workers {
public:
    Workers(std::size_t threads, std::size_t queue);
    ~Workers();
    // What the destructor does; nothing is taken any more.
    void finish();
    // False: too much is waiting already.
    bool post(std::function<void()> work);

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace foresay::server
