// grammar/grammar_data.h: a compiled grammar with what is computed lazily, and how masks are made.
//
// The place after a text is a set of threads (grammar/machine.h). A mask is a walk of the vocabulary's trie with the
// threads after each byte. Most tokens are not walked: where any plain character may follow for k characters, the
// plain tokens of up to k characters are allowed, and where none may follow after k, longer ones are not.
//
// Threads:  hold mutex(): a Turn does.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "grammar/machine.h"
#include "grammar/vocabulary.h"

namespace foresay::grammar {

class GrammarData {
public:
    using Thread = Machine::Thread;
    static constexpr std::size_t kMostExpressions = 1'000'000;

    // A turn may take `most_work` steps.
    GrammarData(std::shared_ptr<const Vocabulary> vocabulary, std::uint64_t most_work);

    // While one lives, its thread alone uses the data. What takes too long within it ends with an Error: all that
    // are generated beside this text wait for it.
    class Turn {
    public:
        explicit Turn(GrammarData& data);
        ~Turn();
        Turn(const Turn&) = delete;
        Turn& operator=(const Turn&) = delete;

    private:
        GrammarData& data_;
        std::lock_guard<std::mutex> lock_;
    };

    Machine& machine() { return machine_; }
    const Vocabulary& vocabulary() const { return *vocabulary_; }

    // The tokens of text that may come after `threads`, made once for a place; valid until the next call.
    const std::vector<std::uint32_t>& mask(std::span<const Thread> threads);
    // Whether special tokens may come.
    bool free(std::span<const Thread> threads);
    // Follows bytes from `threads`, which become those after them. False: they may not come.
    bool follow(std::vector<Thread>& threads, std::string_view bytes, bool& may_end);
    // Whether a token of text, or a special one, may come. Errors: Error where that takes too long.
    bool may_come(std::span<const Thread> threads, const TokenText& token);
    // Drops what has become large. Only rows that a RowPtr holds are left.
    void forget() {
        if (machine_.forget()) masks_.clear();
    }

private:
    // For how many plain characters every one may follow, and after how many none does; kEndless: no limit known.
    struct Reach {
        std::uint32_t every = 0;
        std::uint32_t some = Vocabulary::kEndless;
    };
    // The states after one plain character.
    struct Steps {
        bool every = true;     // each may follow
        bool crosses = false;  // some lexeme may end within it
        std::vector<std::uint32_t> states;
    };

    // Whether the threads can go on with the bytes. What is too ambiguous cannot: accept() fails there, too.
    bool may_follow(std::span<const Thread> threads, std::string_view bytes);
    void make_mask(std::span<const Thread> threads, std::vector<std::uint32_t>& bits);
    void walk(const Trie& trie, std::uint32_t begin, std::uint32_t end, std::vector<std::uint32_t>& bits);
    void walk_all(const Trie& trie, std::vector<std::uint32_t>& bits);
    const Steps& plain_steps(std::uint32_t state);
    Reach reach(std::uint32_t state);

    std::shared_ptr<const Vocabulary> vocabulary_;
    const std::uint64_t most_work_;
    std::mutex mutex_;
    Machine machine_;
    Expression plain_ = Expressions::kNone;  // one plain character
    std::unordered_map<std::string, std::vector<std::uint32_t>> masks_;
    std::unordered_map<std::uint32_t, Steps> steps_;
    std::unordered_map<std::uint32_t, Reach> reaches_;

    // During a walk: the threads at each depth, one after the other.
    struct Level {
        std::size_t first = 0;
        std::size_t count = 0;
    };
    std::vector<Thread> pool_;
    Level levels_[257];
};

}  // namespace foresay::grammar
