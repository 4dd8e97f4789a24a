#include "grammar/expressions.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <unordered_set>

#include "base/error.h"

namespace foresay::grammar {
namespace {

constexpr std::size_t kMostPerDerivative = 50'000;
constexpr std::size_t kMostEndings = 4;
constexpr std::size_t kLongestEnding = 40;
constexpr std::size_t kMostPerSearch = 20'000;  // derivatives, of a search for an end
constexpr std::uint32_t kFar = 1u << 28;

}  // namespace

Expressions::Expressions(std::size_t limit) : limit_(limit) {
    nodes_.push_back({Kind::none, false, false, 0, 0, 0});
    nodes_.push_back({Kind::empty, true, false, 0, 0, 0});
    nodes_.push_back({Kind::no, true, false, kNone, 0, 0});
}

// ------------------------------------------------------------------------------------------------------- construction

void Expressions::refuse_work() {
    work_left_ = 0;
    work_refused_ = true;
    throw Error(work_sentence_);
}

Expression Expressions::add(const Node& node) {
    spend(1);
    const auto hash_of = [](const Node& n) {
        const auto mix = PartedTable<Expression>::mix;
        return mix(mix(static_cast<std::uint64_t>(n.kind) << 32 | n.a) ^ (static_cast<std::uint64_t>(n.b) << 32 | n.c));
    };
    const std::uint64_t hash = hash_of(node);
    if (const Expression* known = table_.find(hash, [&](Expression e) { return nodes_[e] == node; })) return *known;
    if (nodes_.size() >= limit_ || nodes_.size() >= step_limit_)
        throw Error(
            "this grammar is too complex: its expressions need too many states; use fewer or smaller repetitions");
    nodes_.push_back(node);
    const auto id = static_cast<Expression>(nodes_.size() - 1);
    nodes_[id].distance = node.nullable ? 0 : distance(node);
    table_.insert(hash, id, [&](Expression e) { return hash_of(nodes_[e]); });
    return id;
}

Expression Expressions::bytes(const ByteSet& set) {
    if (set.none()) return kNone;
    const auto [found, fresh] = set_ids_.try_emplace(set, 0);
    if (fresh) {
        sets_.push_back(set);
        found->second = add({Kind::bytes, false, false, static_cast<std::uint32_t>(sets_.size() - 1), 0, 0});
    }
    return found->second;
}

Expression Expressions::byte(std::uint8_t value) {
    ByteSet set;
    set.set(value);
    return bytes(set);
}

Expression Expressions::literal(std::string_view text) {
    Expression e = kEmpty;
    for (std::size_t i = text.size(); i-- > 0;) e = concat(byte(static_cast<std::uint8_t>(text[i])), e);
    return e;
}

Expression Expressions::literals(std::vector<std::string> texts) {
    std::sort(texts.begin(), texts.end());
    texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
    if (texts.empty()) return kNone;
    return find_literals(texts, 0);
}

// The depth of the recursion is at most the number of texts: a stretch that all share is taken at once.
Expression Expressions::find_literals(std::span<const std::string> sorted, std::size_t depth) {
    if (sorted.size() == 1) return literal(std::string_view(sorted[0]).substr(depth));
    const std::string& first = sorted.front();
    const std::string& last = sorted.back();
    std::size_t common = depth;
    while (common < first.size() && common < last.size() && first[common] == last[common]) ++common;
    std::vector<Expression> parts;
    std::size_t begin = 0;
    if (first.size() == common) {
        parts.push_back(kEmpty);
        begin = 1;
    }
    while (begin < sorted.size()) {
        std::size_t end = begin + 1;
        while (end < sorted.size() && sorted[end][common] == sorted[begin][common]) ++end;
        const Expression head = byte(static_cast<std::uint8_t>(sorted[begin][common]));
        parts.push_back(concat(head, find_literals(sorted.subspan(begin, end - begin), common + 1)));
        begin = end;
    }
    Expression e = alternatives(std::move(parts));
    for (std::size_t i = common; i-- > depth;) e = concat(byte(static_cast<std::uint8_t>(first[i])), e);
    return e;
}

Expression Expressions::concat(Expression first, Expression second) {
    if (first == kNone || second == kNone) return kNone;
    if (first == kEmpty) return second;
    if (second == kEmpty) return first;
    if (first == kAll && second == kAll) return kAll;
    const Node& a = nodes_[first];
    const Node& b = nodes_[second];
    return add({Kind::concat, a.nullable && b.nullable, a.hard || b.hard, first, second, 0});
}

Expression Expressions::concat(std::initializer_list<Expression> parts) {
    Expression e = kEmpty;
    for (auto part = std::rbegin(parts); part != std::rend(parts); ++part) e = concat(*part, e);
    return e;
}

Expression Expressions::add_list(Kind kind, std::vector<Expression>& parts) {
    // Lists are kept as chains of pairs, from the end: the same list is the same expression, without a table of its
    // own.
    Expression e = parts.back();
    for (std::size_t i = parts.size() - 1; i-- > 0;) {
        const Node& a = nodes_[parts[i]];
        const Node& b = nodes_[e];
        e = add({kind, kind == Kind::both ? a.nullable && b.nullable : a.nullable || b.nullable,
                 kind == Kind::both || a.hard || b.hard, parts[i], e, 0});
    }
    return e;
}

Expression Expressions::alternatives(std::vector<Expression> parts) {
    std::vector<Expression> flat;
    ByteSet set;
    for (Expression e : parts) {
        for (; nodes_[e].kind == Kind::either; e = nodes_[e].b) flat.push_back(nodes_[e].a);
        flat.push_back(e);
    }
    spend(flat.size());
    std::size_t kept = 0;
    bool other_nullable = false;
    for (const Expression e : flat) {
        if (e == kAll) return kAll;
        if (e == kNone) continue;
        if (nodes_[e].kind == Kind::bytes) {
            set |= sets_[nodes_[e].a];
            continue;
        }
        other_nullable = other_nullable || (e != kEmpty && nodes_[e].nullable);
        flat[kept++] = e;
    }
    flat.resize(kept);
    if (set.any()) flat.push_back(bytes(set));
    if (other_nullable) flat.erase(std::remove(flat.begin(), flat.end(), kEmpty), flat.end());
    std::sort(flat.begin(), flat.end());
    flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
    if (flat.empty()) return kNone;
    return add_list(Kind::either, flat);
}

Expression Expressions::intersection(std::vector<Expression> parts) {
    std::vector<Expression> flat;
    for (Expression e : parts) {
        for (; nodes_[e].kind == Kind::both; e = nodes_[e].b) flat.push_back(nodes_[e].a);
        flat.push_back(e);
    }
    spend(flat.size());
    std::sort(flat.begin(), flat.end());
    flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
    std::size_t kept = 0;
    ByteSet set;
    set.set();
    bool has_bytes = false;
    bool all_nullable = true;
    for (const Expression e : flat) {
        if (e == kNone) return kNone;
        if (e == kAll) continue;
        all_nullable = all_nullable && nodes_[e].nullable;
        if (nodes_[e].kind == Kind::bytes) {
            set &= sets_[nodes_[e].a];
            has_bytes = true;
            continue;
        }
        flat[kept++] = e;
    }
    flat.resize(kept);
    if (has_bytes) flat.push_back(bytes(set));
    std::sort(flat.begin(), flat.end());
    if (flat.empty()) return kAll;
    if (flat.front() == kNone) return kNone;
    if (flat.front() == kEmpty) return all_nullable ? kEmpty : kNone;
    return add_list(Kind::both, flat);
}

Expression Expressions::complement(Expression inner) {
    if (nodes_[inner].kind == Kind::no) return nodes_[inner].a;
    if (inner == kNone) return kAll;
    return add({Kind::no, !nodes_[inner].nullable, true, inner, 0, 0});
}

Expression Expressions::repeat(Expression inner, std::uint32_t least, std::uint32_t most) {
    if (most == 0 || inner == kEmpty) return kEmpty;
    if (inner == kNone) return least == 0 ? kEmpty : kNone;
    if (inner == kAll) return kAll;
    const Node& node = nodes_[inner];
    if (node.nullable) least = 0;
    if (node.kind == Kind::repeat && node.b == 0 && node.c == kUnlimited) return inner;
    if (least == 1 && most == 1) return inner;
    if (least == 0 && most == 1) return optional(inner);
    return add({Kind::repeat, least == 0, node.hard, inner, least, most});
}

Expression Expressions::trim(Expression e, Side side) {
    const Node node = nodes_[e];
    if (node.nullable) return kEmpty;
    if (node.kind == Kind::repeat) {
        const Expression once = trim(node.a, side);
        if (node.b == node.c && once == node.a) return e;
        const Expression others = repeat(node.a, node.b - 1, node.b - 1);
        return side == Side::front ? concat(once, others) : concat(others, once);
    }
    if (node.kind != Kind::concat && node.kind != Kind::either) return e;
    std::vector<Expression> parts;  // chains lean to the right and may be long
    Expression rest = e;
    for (; nodes_[rest].kind == node.kind; rest = nodes_[rest].b) parts.push_back(nodes_[rest].a);
    parts.push_back(rest);
    spend(parts.size());
    if (node.kind == Kind::either) {
        for (Expression& part : parts) part = trim(part, side);
        return alternatives(std::move(parts));
    }
    std::size_t first = 0;
    std::size_t last = parts.size() - 1;
    std::size_t& at = side == Side::front ? first : last;
    while (nodes_[parts[at]].nullable) side == Side::front ? ++at : --at;  // not all are, or e would be
    parts[at] = trim(parts[at], side);
    Expression trimmed = parts[last];
    for (std::size_t i = last; i-- > first;) trimmed = concat(parts[i], trimmed);
    return trimmed;
}

// -------------------------------------------------------------------------------------------------------- derivatives

Expression Expressions::derivative(Expression e, std::uint8_t value) {
    switch (nodes_[e].kind) {
        case Kind::none:
        case Kind::empty:
            return kNone;
        case Kind::bytes:
            return sets_[nodes_[e].a].test(value) ? kEmpty : kNone;
        default:
            break;
    }
    if (e == kAll) return kAll;
    spend(1);
    const std::uint64_t key = (static_cast<std::uint64_t>(e) << 8 | value) + 1;
    using Known = std::pair<std::uint64_t, Expression>;
    const auto hash_of = [](const Known& known) { return PartedTable<Known>::mix(known.first); };
    const std::uint64_t hash = hash_of({key, kNone});
    if (const Known* known = derivatives_.find(hash, [&](const Known& k) { return k.first == key; }))
        return known->second;
    struct Limited {  // the outermost call sets the limit
        std::size_t& limit;
        const bool outer;
        Limited(std::size_t& l, std::size_t value) : limit(l), outer(l == SIZE_MAX) {
            if (outer) limit = value;
        }
        ~Limited() {
            if (outer) limit = SIZE_MAX;
        }
    } limited(step_limit_, nodes_.size() + kMostPerDerivative);
    const Expression result = compute_derivative(e, value);
    derivatives_.insert(hash, {key, result}, hash_of);
    return result;
}

// Nodes are copied: nodes_ grows while the parts are derived.
Expression Expressions::compute_derivative(Expression e, std::uint8_t value) {
    const Node node = nodes_[e];
    std::vector<Expression> parts;
    switch (node.kind) {
        case Kind::concat:
            // A chain is walked, not descended into, for as long as its parts may be empty.
            while (true) {
                const Node link = nodes_[e];
                if (link.kind != Kind::concat) {
                    parts.push_back(derivative(e, value));
                    break;
                }
                parts.push_back(concat(derivative(link.a, value), link.b));
                if (!nodes_[link.a].nullable) break;
                e = link.b;
            }
            return alternatives(std::move(parts));
        case Kind::either:
        case Kind::both:
            while (nodes_[e].kind == node.kind) {
                const Node link = nodes_[e];
                parts.push_back(derivative(link.a, value));
                if (node.kind == Kind::both && parts.back() == kNone) return kNone;
                e = link.b;
            }
            parts.push_back(derivative(e, value));
            return node.kind == Kind::either ? alternatives(std::move(parts)) : intersection(std::move(parts));
        case Kind::no:
            return complement(derivative(node.a, value));
        case Kind::repeat: {
            const Expression rest =
                repeat(node.a, node.b == 0 ? 0 : node.b - 1, node.c == kUnlimited ? kUnlimited : node.c - 1);
            return concat(derivative(node.a, value), rest);
        }
        case Kind::compare:
            return derive_compare(node, value);
        case Kind::multiple:
            return derive_multiple(node, value);
        default:
            break;
    }
    bug("a leaf has no derivative here");
}

bool Expressions::matches(Expression e, std::string_view text) {
    for (const char c : text) {
        e = derivative(e, static_cast<std::uint8_t>(c));
        if (e == kNone) return false;
    }
    return nullable(e);
}

// Whether it matches only so many texts.
bool Expressions::finite(Expression e) {
    const auto known = finite_.find(e);
    if (known != finite_.end()) return known->second;
    const Node node = nodes_[e];
    bool result = false;
    switch (node.kind) {
        case Kind::none:
        case Kind::empty:
        case Kind::bytes:
            result = true;
            break;
        case Kind::repeat:
            result = node.c != kUnlimited && finite(node.a);
            break;
        case Kind::concat:
        case Kind::either: {
            // Chains lean to the right and may be long.
            result = true;
            Expression rest = e;
            for (; result && nodes_[rest].kind == node.kind; rest = nodes_[rest].b) result = finite(nodes_[rest].a);
            result = result && finite(rest);
            break;
        }
        default:
            break;
    }
    finite_.emplace(e, result);
    return result;
}

// Whether it is X*, and each of the characters is a text of X.
bool Expressions::loops(Expression e, Expression characters) {
    const Node node = nodes_[e];
    if (e == kAll) return true;
    return node.kind == Kind::repeat && node.b == 0 && node.c == kUnlimited &&
           matches_nothing(intersection({characters, complement(node.a)}));
}

bool Expressions::takes_any(Expression e, Expression characters) {
    const std::uint64_t key = static_cast<std::uint64_t>(e) << 32 | characters;
    if (const auto known = takes_any_.find(key); known != takes_any_.end()) return known->second;
    bool result = false;
    const Node node = nodes_[e];
    if (node.kind == Kind::both) {
        // Loops go on as they are; what a finite set takes away leaves enough.
        result = true;
        Expression rest = e;
        const auto allows = [&](Expression part) {
            return loops(part, characters) || (nodes_[part].kind == Kind::no && finite(nodes_[part].a));
        };
        for (; result && nodes_[rest].kind == Kind::both; rest = nodes_[rest].b) result = allows(nodes_[rest].a);
        result = result && allows(rest);
    } else if (node.kind == Kind::concat) {
        result = takes_any(node.a, characters) && !matches_nothing(node.b);
    } else if (node.kind == Kind::either) {
        Expression rest = e;
        for (; !result && nodes_[rest].kind == Kind::either; rest = nodes_[rest].b)
            result = takes_any(nodes_[rest].a, characters);
        result = result || takes_any(rest, characters);
    } else {
        result = loops(e, characters);
    }
    takes_any_.emplace(key, result);
    return result;
}

// Whether a text that led to an end elsewhere, or the rest of one, leads to one here. An expression that counts has a
// new state for each character, all of which end alike.
bool Expressions::ends_like_others(Expression e) {
    for (std::size_t i = endings_.size(); i-- > 0;) {
        for (std::size_t begin = 0; begin < endings_[i].size(); ++begin) {
            Expression place = e;
            std::size_t at = begin;
            while (place != kNone && !nodes_[place].nullable && at < endings_[i].size())
                place = derivative(place, static_cast<std::uint8_t>(endings_[i][at++]));
            if (place == kNone || !nodes_[place].nullable) continue;
            nodes_[e].ends = Node::Ends::may;
            return true;
        }
    }
    return false;
}

// An estimate, exact for what has neither an intersection nor a complement.
std::uint32_t Expressions::distance(const Node& node) const {
    const auto of = [&](Expression e) { return nodes_[e].distance; };
    switch (node.kind) {
        case Kind::concat:
        case Kind::both:  // the sum: a byte that brings both parts closer is better than one for one of them
            return std::min(of(node.a) + of(node.b), kFar);
        case Kind::either:
            return std::min(of(node.a), of(node.b));
        case Kind::repeat:
            return static_cast<std::uint32_t>(
                std::min<std::uint64_t>(std::uint64_t{of(node.a)} * node.b, std::uint64_t{kFar}));
        case Kind::compare:
            return compare_distance(node);
        case Kind::multiple:
            return multiple_distance(node.a, node.b, node.c);
        default:
            return 1;
    }
}

// Searches for a derivative that may end, closest ones first. What is found holds for all that was passed when nothing
// ends.
bool Expressions::matches_nothing(Expression e) {
    using Ends = Node::Ends;
    if (!nodes_[e].hard) return e == kNone;
    if (nodes_[e].nullable) return false;
    if (nodes_[e].ends != Ends::unknown) return nodes_[e].ends == Ends::never;
    if (ends_like_others(e)) return false;
    struct Place {
        Expression expression;
        std::size_t parent;  // from which place it was reached, over which byte
        std::uint8_t over;
        std::size_t depth;
        std::size_t next;  // the class of bytes that is followed next
    };
    std::vector<Place> places = {{e, 0, 0, 0, 0}};
    std::unordered_set<Expression> seen = {e};
    using Entry = std::pair<std::size_t, std::size_t>;  // the lower the better; a place
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
    // A step towards an end counts as much as four back. Without any that leads there, the search is breadth first.
    const auto push = [&](std::size_t place) {
        queue.emplace(places[place].depth + std::size_t{4} * nodes_[places[place].expression].distance, place);
    };
    push(0);
    const std::vector<std::uint8_t> bytes = classes().representatives;
    for (std::size_t steps = 0; !queue.empty();) {
        const std::size_t from = queue.top().second;
        queue.pop();
        const Place place = places[from];
        for (std::size_t c = place.next; c < bytes.size(); ++c) {
            if (++steps > kMostPerSearch) {
                nodes_[e].ends = Ends::may;  // not to be searched for again
                return false;
            }
            const Expression next = derivative(place.expression, bytes[c]);
            if (next == kNone || nodes_[next].ends == Ends::never) continue;
            if (nodes_[next].ends == Ends::may || !nodes_[next].hard || nodes_[next].nullable) {
                std::string ending(1, static_cast<char>(bytes[c]));
                for (std::size_t on = from;; on = places[on].parent) {
                    nodes_[places[on].expression].ends = Ends::may;
                    if (on == 0) break;
                    ending += static_cast<char>(places[on].over);
                }
                if (nodes_[next].nullable && ending.size() <= kLongestEnding) {
                    endings_.emplace_back(ending.rbegin(), ending.rend());
                    if (endings_.size() > kMostEndings) endings_.erase(endings_.begin());
                }
                return false;
            }
            if (!seen.insert(next).second) continue;
            spend(2);
            places.push_back({next, from, bytes[c], place.depth + 1, 0});
            push(places.size() - 1);
            if (nodes_[next].distance < nodes_[place.expression].distance) {  // this one first, the other bytes later
                places[from].next = c + 1;
                push(from);
                break;
            }
        }
    }
    for (const Place& dead : places) nodes_[dead.expression].ends = Ends::never;
    return true;
}

// Each set that is new since the last call splits the classes that it cuts.
const Expressions::Classes& Expressions::classes() {
    for (; classes_of_ < sets_.size(); ++classes_of_) split_classes(sets_[classes_of_]);
    if (compares_ && !classes_of_digits_) {
        classes_of_digits_ = true;
        for (const char c : std::string_view("-.0123456789"))
            split_classes(ByteSet().set(static_cast<std::uint8_t>(c)));
    }
    return classes_;
}

void Expressions::split_classes(const ByteSet& set) {
    const std::size_t count = classes_.representatives.size();
    if (count == 256) return;
    spend(16);
    // Classes are numbered by their lowest byte.
    int inside[256], outside[256];
    std::fill(inside, inside + count, -1);
    std::fill(outside, outside + count, -1);
    Classes next;
    next.representatives.clear();
    for (std::size_t b = 0; b < 256; ++b) {
        int& number = (set.test(b) ? inside : outside)[classes_.of[b]];
        if (number < 0) {
            number = static_cast<int>(next.representatives.size());
            next.representatives.push_back(static_cast<std::uint8_t>(b));
        }
        next.of[b] = static_cast<std::uint8_t>(number);
    }
    if (next.representatives.size() > count) classes_ = std::move(next);
}

}  // namespace foresay::grammar
