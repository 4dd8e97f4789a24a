// grammar/machine.h: an Earley recognizer over lexemes, byte by byte.
//
// A row stands for a place between two lexemes: which lexemes may come next there, and which rules wait for another
// rule to end. Rows are immutable, counted and shared; equal rows are one row as long as the table keeps them, so a
// list that repeats comes back to the row it had. A thread is a row and how far a lexeme has come that began there.
// Where a lexeme may end and may go on, there are two threads, and both are followed: there is no longest match.
//
// A rule that ends with another (right recursion) is passed over when it ends (J. Leo, "A general context-free parsing
// algorithm running in linear time on every LR(k) grammar", 1991), so that long right-recursive lists stay cheap.
//
// Threads:  one caller at a time; only copies and the destruction of RowPtr may happen on any thread.
// Errors:   Error where a grammar is too complex or too ambiguous.
#pragma once

#include <atomic>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/rules.h"

namespace foresay::grammar {

struct Row;

// A counted pointer to a row.
class RowPtr {
public:
    RowPtr() = default;
    explicit RowPtr(Row* row);
    RowPtr(const RowPtr& other) : RowPtr(other.row_) {}
    RowPtr(RowPtr&& other) noexcept : row_(std::exchange(other.row_, nullptr)) {}
    RowPtr& operator=(RowPtr other) noexcept {
        std::swap(row_, other.row_);
        return *this;
    }
    ~RowPtr();
    Row* get() const { return row_; }
    Row* operator->() const { return row_; }

private:
    Row* row_ = nullptr;
};

struct Row {
    // `symbol` leads to state `target` of a rule that began at `origin`; null: at this row.
    struct Item {
        std::uint32_t symbol = 0;  // a lexeme or a rule
        std::uint32_t target = 0;
        Row* origin = nullptr;
        bool operator==(const Item&) const = default;
    };
    // For an end that only ends the rule that waits for it: the last one of that chain.
    struct Shortcut {
        std::uint32_t rule = 0;
        Row* row = nullptr;
    };
    std::atomic<std::uint32_t> references{0};
    std::uint64_t serial = 0;  // never used again, unlike an address
    std::uint32_t lexer = 0;   // its first state
    bool may_end = false;
    std::vector<Item> scans;          // by lexeme
    std::vector<Item> waits;          // by rule
    std::vector<Shortcut> shortcuts;  // one for each wait, computed when first used; not counted: an ancestor
};

class Machine {
public:
    struct Thread {
        Row* row = nullptr;
        std::uint32_t lexer = 0;
        bool operator==(const Thread&) const = default;
    };
    static constexpr std::size_t kMostThreads = 256;

    explicit Machine(std::size_t expressions) : expressions_(expressions), lexer_(expressions_), rules_(expressions_) {}

    Expressions& expressions() { return expressions_; }
    Lexer& lexer() { return lexer_; }
    Rules& rules() { return rules_; }

    // After the rules: `root` is what the whole text must be. Errors: Error where no text is.
    void start(Symbol root);
    Row* first_row() const { return first_.get(); }

    // Follows a byte from a set of threads. Appends the threads after it to `after`, and says whether the text may end
    // there. No thread and no end: the byte may not come. The rows live until forget().
    bool step(const Thread* threads, std::size_t count, std::uint8_t byte, std::vector<Thread>& after);

    // Drops the table of rows when it has become large. True: rows that no RowPtr holds are gone.
    bool forget();
    std::size_t rows() const { return table_.size(); }

private:
    struct Start {
        std::uint32_t state;
        Row* origin;
        bool operator==(const Start&) const = default;
    };
    struct End {
        Row* row;
        std::uint32_t accepted;
        bool operator==(const End&) const = default;
    };

    Row* successor(Row* row, std::uint32_t accepted);
    Row* make_row(const End* ends, std::size_t count);
    void add(std::uint32_t state, Row* origin);
    void complete(std::uint32_t rule, Row* origin);
    Row::Shortcut follow(Row* row, std::size_t wait);
    Row* intern();

    Expressions expressions_;
    Lexer lexer_;
    Rules rules_;
    RowPtr first_;
    std::uint32_t accept_ = 0;  // the state that the whole text leads to
    std::uint64_t serial_ = 0;
    std::unordered_multimap<std::uint64_t, RowPtr> table_;
    std::size_t table_bytes_ = 0;
    struct PairHash {
        std::size_t operator()(const std::pair<std::uint64_t, std::uint32_t>& key) const {
            std::uint64_t h = (key.first * 0x9E3779B97F4A7C15u) ^ key.second * 0xFF51AFD7ED558CCDu;
            return h ^ h >> 32;
        }
    };
    std::unordered_map<std::pair<std::uint64_t, std::uint32_t>, Row*, PairHash> successors_;

    // The row that is being made.
    std::vector<Start> items_;
    std::vector<std::uint32_t> item_table_;  // open addressing: index in items_ plus 1
    std::vector<Row::Item> scans_;
    std::vector<Row::Item> waits_;
    bool may_end_ = false;
    std::vector<End> ends_;
};

}  // namespace foresay::grammar
