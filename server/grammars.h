// server/grammars.h: grammars that requests bring, compiled once and kept by their text.
//
// A grammar of a stranger may be hostile, so its size and the work of compiling it are limited; docs/server.md lists
// the limits.
// Life:     the engine outlives it.
// Threads:  any.
// Cost:     a text that is known costs a look-up; a new one is compiled, in less than a second whatever it holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "engine/engine.h"
#include "samplers/chain.h"

namespace foresay::server {

class Grammars {
public:
    static constexpr std::size_t kMostBytes = std::size_t{256} << 10;

    explicit Grammars(const engine::Engine& engine) : engine_(engine) {}

    // Why the grammar cannot be used, as one sentence; empty: it can, and a chain with it is made without compiling it
    // again. `language`: of the stage grammar.
    std::string refusal(const std::string& language, const std::string& text);
    // Puts the grammar into a chain.
    static void set(samplers::ChainSpec& spec, const std::string& language, const std::string& text);

private:
    static constexpr std::size_t kKept = 16;
    struct Entry {
        std::string key, refusal;
        std::shared_ptr<samplers::Chain> chain;  // keeps the compiled grammar
    };

    const engine::Engine& engine_;
    std::mutex mutex_;
    std::list<Entry> entries_;  // the last one used in front
};

}  // namespace foresay::server
