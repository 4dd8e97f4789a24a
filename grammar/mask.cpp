#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "grammar/characters.h"
#include "grammar/grammar_data.h"

namespace foresay::grammar {
namespace {

constexpr std::size_t kMostMaskBytes = std::size_t{32} << 20;
constexpr std::uint32_t kMostPlain = 33;      // characters that are looked ahead
constexpr std::size_t kMostPlainStates = 16;  // at one distance

// The bytes of plain characters: ranges of first bytes, and of the ones after them.
struct Sequence {
    std::uint8_t first[2];
    std::uint8_t second[2];
    int size;
};
constexpr Sequence kSequences[] = {
    {{0xC2, 0xDF}, {0x80, 0xBF}, 2}, {{0xE0, 0xE0}, {0xA0, 0xBF}, 3}, {{0xE1, 0xEC}, {0x80, 0xBF}, 3},
    {{0xED, 0xED}, {0x80, 0x9F}, 3}, {{0xEE, 0xEF}, {0x80, 0xBF}, 3}, {{0xF0, 0xF0}, {0x90, 0xBF}, 4},
    {{0xF1, 0xF3}, {0x80, 0xBF}, 4}, {{0xF4, 0xF4}, {0x80, 0x8F}, 4},
};

}  // namespace

GrammarData::GrammarData(std::shared_ptr<const Vocabulary> vocabulary, std::uint64_t most_work)
    : vocabulary_(std::move(vocabulary)), most_work_(most_work), machine_(kMostExpressions) {
    // Made first, so that the lexer's classes of bytes tell plain ones from others.
    plain_ = utf8(machine_.expressions(), {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x7E}, {0x80, 0x10FFFF}});
}

GrammarData::Turn::Turn(GrammarData& data) : data_(data), lock_(data.mutex_) {
    data.machine_.expressions().limit_work(data.most_work_,
                                           "this grammar is too complex: to find the tokens that may come next takes "
                                           "too long; use fewer alternatives, or fewer or smaller repetitions");
}

GrammarData::Turn::~Turn() { data_.machine_.expressions().limit_work(UINT64_MAX); }

bool GrammarData::may_follow(std::span<const Thread> threads, std::string_view bytes) {
    std::vector<Thread> copy(threads.begin(), threads.end());
    bool may_end = false;
    try {
        return follow(copy, bytes, may_end);
    } catch (const Error&) {
        if (machine_.expressions().work_refused()) throw;
        return false;
    }
}

bool GrammarData::may_come(std::span<const Thread> threads, const TokenText& token) {
    using Kind = TokenText::Kind;
    if (token.bytes.empty() || (token.kind != Kind::text && (token.kind != Kind::special || !free(threads))))
        return false;
    return may_follow(threads, token.bytes);
}

bool GrammarData::free(std::span<const Thread> threads) {
    return std::any_of(threads.begin(), threads.end(), [&](const Thread& t) { return machine_.lexer().free(t.lexer); });
}

bool GrammarData::follow(std::vector<Thread>& threads, std::string_view bytes, bool& may_end) {
    std::vector<Thread> after;
    for (const char c : bytes) {
        after.clear();
        machine_.expressions().spend_sixteenths(8 * threads.size());
        may_end = machine_.step(threads.data(), threads.size(), static_cast<std::uint8_t>(c), after);
        if (after.empty() && !may_end) return false;
        threads.swap(after);
    }
    return true;
}

const std::vector<std::uint32_t>& GrammarData::mask(std::span<const Thread> threads) {
    std::string key;
    key.reserve(threads.size() * 12);
    for (const Thread& thread : threads) {
        key.append(reinterpret_cast<const char*>(&thread.row->serial), sizeof thread.row->serial);
        key.append(reinterpret_cast<const char*>(&thread.lexer), sizeof thread.lexer);
    }
    if (const auto known = masks_.find(key); known != masks_.end()) return known->second;
    if (masks_.size() * vocabulary_->words() * 4 > kMostMaskBytes) masks_.clear();
    std::vector<std::uint32_t> bits(vocabulary_->words(), 0);
    make_mask(threads, bits);
    return masks_[std::move(key)] = std::move(bits);
}

const GrammarData::Steps& GrammarData::plain_steps(std::uint32_t state) {
    const auto [found, fresh] = steps_.try_emplace(state);
    Steps& steps = found->second;
    if (!fresh) return steps;
    Lexer& lexer = machine_.lexer();
    const auto enter = [&](std::uint32_t next, std::vector<std::uint32_t>& into) {
        steps.crosses = steps.crosses || lexer.accepts(next);
        if (!lexer.goes_on(next)) {
            steps.every = false;  // goes on at most in other lexemes: not looked at here
        } else if (std::find(into.begin(), into.end(), next) == into.end()) {
            into.push_back(next);
        }
    };
    // The states after the bytes of a range, each class of bytes once.
    const auto range = [&](std::uint32_t from, unsigned first, unsigned last, std::vector<std::uint32_t>& into) {
        std::bitset<256> seen;
        for (unsigned b = first; b <= last; ++b) {
            const auto byte = static_cast<std::uint8_t>(b);
            if (seen.test(lexer.class_of(byte))) continue;
            seen.set(lexer.class_of(byte));
            enter(lexer.next(from, byte), into);
        }
    };
    range(state, 0x20, 0x21, steps.states);
    range(state, 0x23, 0x5B, steps.states);
    range(state, 0x5D, 0x7E, steps.states);
    for (const Sequence& sequence : kSequences) {
        std::vector<std::uint32_t> from;
        range(state, sequence.first[0], sequence.first[1], from);
        for (int i = 1; i < sequence.size; ++i) {
            std::vector<std::uint32_t> into;
            std::vector<std::uint32_t>& target = i + 1 == sequence.size ? steps.states : into;
            for (const std::uint32_t s : from)
                range(s, i == 1 ? sequence.second[0] : 0x80, i == 1 ? sequence.second[1] : 0xBF, target);
            from.swap(into);
        }
    }
    return steps;
}

GrammarData::Reach GrammarData::reach(std::uint32_t state) {
    const auto known = reaches_.find(state);
    if (known != reaches_.end()) return known->second;
    Reach reach;
    if (machine_.lexer().takes_any(state, plain_)) {
        reach.every = Vocabulary::kEndless;
        reaches_.emplace(state, reach);
        return reach;
    }
    std::vector<std::uint32_t> at = {state};
    bool every = true;
    bool crosses = false;
    std::uint32_t distance = 0;
    for (; distance < kMostPlain; ++distance) {
        std::vector<std::uint32_t> next;
        for (const std::uint32_t s : at) {
            const Steps& steps = plain_steps(s);
            every = every && steps.every;
            crosses = crosses || steps.crosses;
            for (const std::uint32_t t : steps.states) {
                if (std::find(next.begin(), next.end(), t) == next.end()) next.push_back(t);
            }
        }
        if (every) reach.every = distance + 1;
        if (reach.every == 0 || (crosses && !every) || next.size() > kMostPlainStates) break;  // the rest is for a walk
        if (next.empty()) {
            reach.some = distance;
            break;
        }
        std::sort(next.begin(), next.end());
        if (next == at) {  // and so on for ever
            if (every) reach.every = Vocabulary::kEndless;
            break;
        }
        at.swap(next);
    }
    reaches_.emplace(state, reach);
    return reach;
}

// The threads at depth 0 are in pool_, levels_[0].
void GrammarData::walk(const Trie& trie, std::uint32_t begin, std::uint32_t end, std::vector<std::uint32_t>& bits) {
    const TrieNode* nodes = trie.nodes().data();
    Lexer& lexer = machine_.lexer();
    for (std::uint32_t i = begin; i < end;) {
        const TrieNode node = nodes[i];
        const Level above = levels_[node.depth - 1];
        Level& level = levels_[node.depth];
        level.first = above.first + above.count;
        bool alive = false;
        if (above.count == 1) {  // the usual case: inside one lexeme
            const Thread thread = pool_[above.first];
            const std::uint32_t next = lexer.next(thread.lexer, node.byte);
            if (next == Lexer::kDead) {
                i = node.end;
                continue;
            }
            machine_.expressions().spend_sixteenths(1);
            if (!lexer.accepts(next)) {
                pool_.resize(level.first);
                pool_.push_back({thread.row, next});
                level.count = 1;
                alive = true;
            }
        }
        if (!alive) {
            machine_.expressions().spend_sixteenths(8 * above.count);
            pool_.resize(level.first);
            Thread threads[Machine::kMostThreads];  // pool_ grows while they are followed
            std::copy_n(pool_.begin() + static_cast<std::ptrdiff_t>(above.first), above.count, threads);
            try {
                const bool may_end = machine_.step(threads, above.count, node.byte, pool_);
                level.count = pool_.size() - level.first;
                alive = may_end || level.count > 0;
            } catch (const Error&) {  // too ambiguous: accept() would fail, too
                if (machine_.expressions().work_refused()) throw;
            }
        }
        if (!alive) {
            i = node.end;
            continue;
        }
        if (node.token >= 0) bits[static_cast<std::size_t>(node.token) / 32] |= 1u << (node.token % 32);
        i = level.count == 0 ? node.end : i + 1;
    }
}

void GrammarData::walk_all(const Trie& trie, std::vector<std::uint32_t>& bits) {
    if (trie.nodes().empty()) return;
    Lexer& lexer = machine_.lexer();
    const Level above = levels_[0];
    bool alive[256] = {};  // by class of the first byte
    for (unsigned b = 0; b < 256; ++b) {
        const auto byte = static_cast<std::uint8_t>(b);
        for (std::size_t t = 0; t < above.count && !alive[lexer.class_of(byte)]; ++t)
            alive[lexer.class_of(byte)] = lexer.next(pool_[above.first + t].lexer, byte) != Lexer::kDead;
        const std::uint32_t first = trie.first(byte);
        if (alive[lexer.class_of(byte)] && first < trie.nodes().size())
            walk(trie, first, trie.nodes()[first].end, bits);
    }
}

void GrammarData::make_mask(std::span<const Thread> threads, std::vector<std::uint32_t>& bits) {
    const Vocabulary& vocabulary = *vocabulary_;
    std::uint32_t every = 0;
    std::uint32_t some = 0;
    for (const Thread& thread : threads) {
        const Reach r = reach(thread.lexer);
        every = std::max(every, r.every);
        some = std::max(some, r.some);
    }
    pool_.assign(threads.begin(), threads.end());
    levels_[0] = {0, threads.size()};
    if (every == 0) {
        walk_all(vocabulary.all(), bits);
    } else {
        for (const Vocabulary::Group& group : vocabulary.groups()) {
            if (group.least > 0 && group.most <= every) {
                for (std::size_t w = 0; w < bits.size(); ++w) bits[w] |= group.bits[w];
            } else if (group.least == 0 || group.least <= some) {
                walk_all(group.trie, bits);
            }
        }
    }
    for (const std::int32_t id : vocabulary.long_tokens()) {
        if (!may_follow(threads, vocabulary.token(id).bytes)) continue;
        bits[static_cast<std::size_t>(id) / 32] |= 1u << (id % 32);
    }
    for (const auto& [first, second] : vocabulary.twins()) {
        if ((bits[static_cast<std::size_t>(first) / 32] >> (first % 32) & 1) != 0)
            bits[static_cast<std::size_t>(second) / 32] |= 1u << (second % 32);
    }
}

}  // namespace foresay::grammar
