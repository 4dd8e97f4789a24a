#include "grammar/machine.h"

#include <algorithm>

#include "base/error.h"

namespace foresay::grammar {
namespace {

constexpr std::size_t kMostItems = 200'000;
constexpr std::size_t kMostTableBytes = std::size_t{64} << 20;

std::uint64_t mix(std::uint64_t h, std::uint64_t v) {
    h = (h ^ v) * 0xFF51AFD7ED558CCDu;
    return h ^ h >> 32;
}

// A row may be the last one to hold a long chain of others, so they are released in a loop.
void release(Row* row) {
    std::vector<Row*> rows;
    const auto drop = [&](Row* r) {
        if (r != nullptr && r->references.fetch_sub(1, std::memory_order_acq_rel) == 1) rows.push_back(r);
    };
    drop(row);
    while (!rows.empty()) {
        Row* last = rows.back();
        rows.pop_back();
        for (const Row::Item& item : last->scans) drop(item.origin);
        for (const Row::Item& item : last->waits) drop(item.origin);
        delete last;
    }
}

bool item_less(const Row::Item& a, const Row::Item& b) {
    if (a.symbol != b.symbol) return a.symbol < b.symbol;
    if (a.target != b.target) return a.target < b.target;
    const std::uint64_t x = a.origin != nullptr ? a.origin->serial : 0;
    const std::uint64_t y = b.origin != nullptr ? b.origin->serial : 0;
    return x < y;
}

}  // namespace

RowPtr::RowPtr(Row* row) : row_(row) {
    if (row_ != nullptr) row_->references.fetch_add(1, std::memory_order_relaxed);
}

RowPtr::~RowPtr() {
    if (row_ != nullptr) release(row_);
}

void Machine::start(Symbol root) {
    rules_.finish();
    if (!rules_.productive(root)) throw Error("no text is valid under this grammar: its rules can never end");
    // A rule of its own around the root, so that there is one place where the text may end.
    const std::uint32_t rule = rules_.add_rule();
    accept_ = rules_.add_state(rule);
    rules_.add_edge(rules_.first_state(rule), root, accept_);
    lexer_.start();
    add(rules_.first_state(rule), nullptr);
    first_ = RowPtr(make_row(nullptr, 0));
}

bool Machine::step(const Thread* threads, std::size_t count, std::uint8_t byte, std::vector<Thread>& after) {
    ends_.clear();
    const std::size_t first = after.size();
    const auto push = [&](Thread thread) {  // two that began at equal rows may have become one
        const auto begin = after.begin() + static_cast<std::ptrdiff_t>(first);
        if (std::find(begin, after.end(), thread) == after.end()) after.push_back(thread);
    };
    for (std::size_t i = 0; i < count; ++i) {
        const Thread thread = threads[i];
        const std::uint32_t next = lexer_.next(thread.lexer, byte);
        if (next == Lexer::kDead) continue;
        if (lexer_.goes_on(next)) push({thread.row, next});
        const End end{thread.row, lexer_.accepted(next)};
        if (end.accepted != 0 && std::find(ends_.begin(), ends_.end(), end) == ends_.end()) ends_.push_back(end);
    }
    if (ends_.empty()) return false;
    Row* row = ends_.size() == 1 ? successor(ends_[0].row, ends_[0].accepted) : make_row(ends_.data(), ends_.size());
    if (row->lexer != Lexer::kDead) push({row, row->lexer});
    if (after.size() - first > kMostThreads)
        throw Error("this grammar is too ambiguous: a text can be read in more than 256 ways at once");
    return row->may_end;
}

Row* Machine::successor(Row* row, std::uint32_t accepted) {
    const std::pair<std::uint64_t, std::uint32_t> key{row->serial, accepted};
    if (const auto found = successors_.find(key); found != successors_.end()) return found->second;
    const End end{row, accepted};
    return successors_[key] = make_row(&end, 1);
}

void Machine::add(std::uint32_t state, Row* origin) {
    if (item_table_.size() < 2 * (items_.size() + 1)) {
        item_table_.assign(std::max<std::size_t>(64, item_table_.size() * 2), 0);
        for (std::size_t i = 0; i < items_.size(); ++i) {
            std::size_t slot = mix(items_[i].state, reinterpret_cast<std::uintptr_t>(items_[i].origin));
            while (item_table_[slot & (item_table_.size() - 1)] != 0) ++slot;
            item_table_[slot & (item_table_.size() - 1)] = static_cast<std::uint32_t>(i + 1);
        }
    }
    expressions_.spend_sixteenths(1);
    const std::size_t mask = item_table_.size() - 1;
    std::size_t slot = mix(state, reinterpret_cast<std::uintptr_t>(origin));
    for (; item_table_[slot & mask] != 0; ++slot) {
        if (items_[item_table_[slot & mask] - 1] == Start{state, origin}) return;
    }
    if (items_.size() >= kMostItems)
        throw Error("this grammar is too ambiguous: one place has more than 200000 readings");
    items_.push_back({state, origin});
    item_table_[slot & mask] = static_cast<std::uint32_t>(items_.size());
}

// The items in items_ are those that were added before (the start) or that the ends of lexemes lead to.
Row* Machine::make_row(const End* ends, std::size_t count) {
    struct Cleared {  // also after an error
        Machine& machine;
        ~Cleared() {
            machine.items_.clear();
            if (machine.item_table_.size() > 4096) machine.item_table_.resize(64);
            std::fill(machine.item_table_.begin(), machine.item_table_.end(), 0);
        }
    } cleared{*this};
    scans_.clear();
    waits_.clear();
    may_end_ = false;
    for (std::size_t i = 0; i < count; ++i) {
        const std::vector<Row::Item>& scans = ends[i].row->scans;
        for (const std::uint32_t lexeme : lexer_.accepted_lexemes(ends[i].accepted)) {
            auto scan = std::lower_bound(scans.begin(), scans.end(), lexeme,
                                         [](const Row::Item& item, std::uint32_t l) { return item.symbol < l; });
            for (; scan != scans.end() && scan->symbol == lexeme; ++scan)
                add(scan->target, scan->origin != nullptr ? scan->origin : ends[i].row);
        }
    }
    for (std::size_t i = 0; i < items_.size(); ++i) {
        const Start item = items_[i];
        if (item.state == accept_) may_end_ = true;
        // Rules that end where they began are empty: those were passed over when they were predicted.
        if (rules_.final(item.state) && item.origin != nullptr) complete(rules_.rule_of(item.state), item.origin);
        for (const Rules::Edge& edge : rules_.edges(item.state)) {
            if (!edge.symbol.is_rule()) {
                scans_.push_back({edge.symbol.index(), edge.target, item.origin});
                continue;
            }
            const std::uint32_t rule = edge.symbol.index();
            waits_.push_back({rule, edge.target, item.origin});
            add(rules_.first_state(rule), nullptr);
            if (rules_.nullable(rule)) add(edge.target, item.origin);
        }
    }
    expressions_.spend(items_.size() + scans_.size() + waits_.size());
    return intern();
}

void Machine::complete(std::uint32_t rule, Row* origin) {
    const auto begin = std::lower_bound(origin->waits.begin(), origin->waits.end(), rule,
                                        [](const Row::Item& item, std::uint32_t r) { return item.symbol < r; });
    auto end = begin;
    while (end != origin->waits.end() && end->symbol == rule) ++end;
    if (end - begin == 1 && begin->target != accept_ && rules_.ends(begin->target)) {
        const Row::Shortcut last = follow(origin, static_cast<std::size_t>(begin - origin->waits.begin()));
        for (const Row::Item& item : last.row->waits) {
            if (item.symbol == last.rule) add(item.target, item.origin != nullptr ? item.origin : last.row);
        }
        return;
    }
    for (auto item = begin; item != end; ++item) add(item->target, item->origin != nullptr ? item->origin : origin);
}

// From a wait that only ends its own rule, along such waits. All of the chain then lead to its last one at once.
Row::Shortcut Machine::follow(Row* row, std::size_t wait) {
    std::vector<std::pair<Row*, std::size_t>> chain;
    Row::Shortcut last;
    while (true) {
        if (row->shortcuts.empty()) row->shortcuts.resize(row->waits.size());
        if (row->shortcuts[wait].row != nullptr) {
            last = row->shortcuts[wait];
            break;
        }
        chain.emplace_back(row, wait);
        const Row::Item& item = row->waits[wait];
        last = {rules_.rule_of(item.target), item.origin != nullptr ? item.origin : row};
        std::size_t found = 0;
        std::size_t count = 0;
        for (std::size_t i = 0; i < last.row->waits.size(); ++i) {
            if (last.row->waits[i].symbol == last.rule) found = i, ++count;
        }
        if (count != 1 || last.row->waits[found].target == accept_ || !rules_.ends(last.row->waits[found].target) ||
            chain.size() > 1'000'000)
            break;
        row = last.row;
        wait = found;
    }
    for (const auto& [r, w] : chain) r->shortcuts[w] = last;
    return last;
}

Row* Machine::intern() {
    for (std::vector<Row::Item>* items : {&scans_, &waits_}) {
        std::sort(items->begin(), items->end(), item_less);
        items->erase(std::unique(items->begin(), items->end()), items->end());
    }
    std::uint64_t hash = may_end_ ? 1 : 0;
    for (const std::vector<Row::Item>* items : {&scans_, &waits_}) {
        for (const Row::Item& item : *items) {
            hash = mix(hash, static_cast<std::uint64_t>(item.symbol) << 32 | item.target);
            hash = mix(hash, item.origin != nullptr ? item.origin->serial : 0);
        }
        hash = mix(hash, items->size());
    }
    const auto [begin, end] = table_.equal_range(hash);
    for (auto entry = begin; entry != end; ++entry) {
        Row* row = entry->second.get();
        if (row->may_end == may_end_ && row->scans == scans_ && row->waits == waits_) return row;
    }
    auto* row = new Row;
    RowPtr owner(row);
    row->serial = ++serial_;
    row->may_end = may_end_;
    row->scans = scans_;
    row->waits = waits_;
    std::vector<std::uint32_t> lexemes;
    for (const Row::Item& item : scans_) {
        if (lexemes.empty() || lexemes.back() != item.symbol) lexemes.push_back(item.symbol);
    }
    for (const std::vector<Row::Item>* items : {&row->scans, &row->waits}) {
        for (const Row::Item& item : *items) {
            if (item.origin != nullptr) item.origin->references.fetch_add(1, std::memory_order_relaxed);
        }
    }
    row->lexer = lexer_.begin(lexemes);
    table_bytes_ += 200 + (scans_.size() + waits_.size()) * sizeof(Row::Item);
    table_.emplace(hash, std::move(owner));
    return row;
}

bool Machine::forget() {
    if (table_bytes_ < kMostTableBytes && successors_.size() < 1'000'000) return false;
    table_.clear();
    successors_.clear();
    table_bytes_ = 0;
    return true;
}

}  // namespace foresay::grammar
