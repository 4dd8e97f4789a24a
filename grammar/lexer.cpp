#include "grammar/lexer.h"

#include <cstring>

#include "base/error.h"

namespace foresay::grammar {
namespace {

constexpr std::size_t kMostEntries = std::size_t{16} << 20;  // of the table, and of what is left of lexemes

constexpr std::size_t kUsualEntries = std::size_t{1} << 20;

template <typename T>
std::string key_of(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace

std::uint32_t Lexer::add(Expression expression, bool free) {
    const std::uint64_t key = std::uint64_t{expression} * 2 + (free ? 1 : 0);
    const auto [found, fresh] = ids_.try_emplace(key, static_cast<std::uint32_t>(lexemes_.size()));
    if (fresh) {
        lexemes_.push_back(expression);
        free_.push_back(free);
    }
    return found->second;
}

void Lexer::start() {
    classes_ = expressions_.classes();
    info_.assign(1, {});
    table_.assign(classes(), kDead);
    lists_.assign(1, {});
}

std::uint32_t Lexer::begin(std::span<const std::uint32_t> lexemes) {
    std::vector<Rest> rests;
    for (const std::uint32_t lexeme : lexemes) rests.emplace_back(lexeme, lexemes_[lexeme]);
    return rests.empty() ? kDead : find(rests, {});
}

std::uint32_t Lexer::build(std::uint32_t state, std::uint8_t byte_class) {
    const std::uint8_t byte = classes_.representatives[byte_class];
    const Info info = info_[state];
    std::vector<Rest> rests;
    std::vector<std::uint32_t> accepted;
    for (std::uint32_t i = 0; i < info.count; ++i) {
        const auto [lexeme, left] = rests_[info.first + i];
        const Expression next = expressions_.derivative(left, byte);
        if (next == Expressions::kNone) continue;
        if (expressions_.nullable(next)) accepted.push_back(lexeme);
        if (next != Expressions::kEmpty && !expressions_.matches_nothing(next)) rests.emplace_back(lexeme, next);
    }
    const std::uint32_t next = rests.empty() && accepted.empty() ? kDead : find(rests, accepted);
    table_[state * classes() + byte_class] = next;
    return next;
}

std::uint32_t Lexer::find(const std::vector<Rest>& rests, const std::vector<std::uint32_t>& accepted) {
    const auto [list, fresh_list] = list_ids_.try_emplace(key_of(accepted), static_cast<std::uint32_t>(lists_.size()));
    if (accepted.empty()) {
        list->second = 0;
    } else if (fresh_list) {
        lists_.push_back(accepted);
    }
    std::string key = key_of(rests);
    key.append(reinterpret_cast<const char*>(&list->second), sizeof list->second);
    const auto [found, fresh] = states_.try_emplace(std::move(key), static_cast<std::uint32_t>(info_.size()));
    if (!fresh) return found->second;
    if (table_.size() + classes() > kMostEntries || rests_.size() + rests.size() > kMostEntries)
        throw Error("this grammar is too complex: its automaton needs more than " + std::to_string(info_.size()) +
                    " states; use fewer or smaller repetitions");
    Info info{static_cast<std::uint32_t>(rests_.size()), static_cast<std::uint32_t>(rests.size()), list->second};
    for (const Rest& rest : rests) {
        info.goes_on = true;
        info.free = info.free || free_[rest.first];
    }
    // What is large is not copied each time that it doubles: memory that is not used costs nothing.
    if (table_.size() > kUsualEntries) table_.reserve(kMostEntries);
    rests_.insert(rests_.end(), rests.begin(), rests.end());
    info_.push_back(info);
    table_.resize(table_.size() + classes(), kUnknown);
    return found->second;
}

}  // namespace foresay::grammar
