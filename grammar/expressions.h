// grammar/expressions.h: regular expressions over bytes, and their derivatives.
//
// The derivative of an expression by a byte matches what may follow that byte. Expressions are built with the rules of
// Brzozowski (J. Owens et al., "Regular-expression derivatives re-examined", 2009), so an expression has few different
// derivatives, and a state of an automaton is an expression. Equal expressions have equal ids.
//
// Besides the usual ones there are two leaves over the text of a decimal number: a comparison with a bound, and a
// multiple. Both assume that an intersection restricts the text to -?[0-9]+(\.[0-9]+)?.
//
// Threads:  one caller at a time.
// Cost:     a derivative is computed once for an expression and a byte.
// Errors:   Error where more expressions are needed than the limit allows, or very many for one derivative.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/parted_table.h"

namespace foresay::grammar {

using Expression = std::uint32_t;
using ByteSet = std::bitset<256>;

enum class Comparison : std::uint8_t { at_least, above, at_most, below };

// A decimal number without exponent: sign, and digits without leading or trailing zeros (whole may be empty for 0.x).
struct Decimal {
    bool negative = false;
    std::string whole;     // digits before the point
    std::string fraction;  // digits after it
    bool zero() const { return whole.empty() && fraction.empty(); }
    // Reads the text of a JSON number, with exponent. False: too many digits (more than 400).
    static bool read(std::string_view text, Decimal& value);
    std::string text() const;
    static int compare(const Decimal& a, const Decimal& b);  // < 0, 0, > 0
};

class Expressions {
public:
    static constexpr Expression kNone = 0;   // matches nothing
    static constexpr Expression kEmpty = 1;  // matches the empty text
    static constexpr Expression kAll = 2;    // matches every text
    static constexpr std::uint32_t kUnlimited = UINT32_MAX;

    // At most `limit` expressions are made; one takes about 60 bytes.
    explicit Expressions(std::size_t limit);

    Expression bytes(const ByteSet& set);
    Expression byte(std::uint8_t value);
    Expression literal(std::string_view text);
    // One of the texts. Common beginnings are shared.
    Expression literals(std::vector<std::string> texts);
    Expression concat(Expression first, Expression second);
    Expression concat(std::initializer_list<Expression> parts);
    Expression alternatives(std::vector<Expression> parts);
    Expression either(Expression a, Expression b) { return alternatives({a, b}); }
    Expression intersection(std::vector<Expression> parts);
    Expression complement(Expression inner);
    Expression repeat(Expression inner, std::uint32_t least, std::uint32_t most);
    Expression optional(Expression inner) { return either(kEmpty, inner); }
    Expression compare(Comparison comparison, const Decimal& bound);
    // A multiple of factor / 10^places. `factor` is in [1, 2^32), places at most 200.
    Expression multiple(std::uint64_t factor, std::uint32_t places);

    enum class Side : std::uint8_t { front, back };
    // What of `e` matters where any text of its characters may come on that side: [a-z]{2,9} is two letters there.
    Expression trim(Expression e, Side side);

    bool nullable(Expression e) const { return nodes_[e].nullable; }
    Expression derivative(Expression e, std::uint8_t value);
    // Whether the expression matches no text. An answer that takes more than 20,000 derivatives is "no".
    bool matches_nothing(Expression e);
    bool matches(Expression e, std::string_view text);
    // Whether any text of `characters` (an expression for one of them) can be written here and be gone on with. "No"
    // may also mean that it is not obvious.
    bool takes_any(Expression e, Expression characters);
    std::size_t size() const { return nodes_.size(); }
    // From now on at most so many steps: expressions that are asked for, derivatives, and what others spend, which is
    // all that can take long. Errors: Error with this sentence beyond it, until the next limit.
    void limit_work(std::uint64_t steps, const char* sentence = "") {
        work_left_ = work_limit_ = steps;
        sixteenths_ = 0;
        work_sentence_ = sentence;
        work_refused_ = false;
    }
    bool work_refused() const { return work_refused_; }
    void spend(std::uint64_t steps) {
        if (work_left_ < steps) refuse_work();
        work_left_ -= steps;
    }
    // The same for what takes about a sixteenth of a step.
    void spend_sixteenths(std::uint64_t count) {
        sixteenths_ += count;
        if (sixteenths_ < 16) return;
        spend(sixteenths_ / 16);
        sixteenths_ %= 16;
    }
    std::uint64_t work() const { return work_limit_ - work_left_; }  // steps since then

    // The bytes in classes that no expression made so far tells apart, and the lowest byte of each class.
    struct Classes {
        std::uint8_t of[256] = {};
        std::vector<std::uint8_t> representatives = {0};
    };
    const Classes& classes();

private:
    enum class Kind : std::uint8_t { none, empty, bytes, concat, either, both, no, repeat, compare, multiple };
    struct Node {
        Kind kind;
        bool nullable;
        bool hard;              // may match nothing without being kNone
        std::uint32_t a, b, c;  // meaning by kind
        // Set by add().
        enum class Ends : std::uint8_t {
            unknown,
            may,
            never
        } ends = Ends::unknown;      // as far as matches_nothing() knows
        std::uint32_t distance = 0;  // about how many bytes it takes to an end
        bool operator==(const Node& other) const {
            return kind == other.kind && a == other.a && b == other.b && c == other.c;
        }
    };

    Expression add(const Node& node);
    Expression add_list(Kind kind, std::vector<Expression>& parts);
    Expression find_literals(std::span<const std::string> sorted, std::size_t depth);
    Expression compute_derivative(Expression e, std::uint8_t value);
    Expression derive_compare(const Node& node, std::uint8_t value);
    Expression derive_multiple(const Node& node, std::uint8_t value);
    Expression add_compare(std::uint32_t bound, Comparison comparison, std::uint32_t state);
    Expression add_multiple(std::uint32_t factor, std::uint32_t rest, std::uint32_t phase);
    std::uint32_t distance(const Node& node) const;
    std::uint32_t compare_distance(const Node& node) const;
    static std::uint32_t multiple_distance(std::uint32_t factor, std::uint32_t rest, std::uint32_t phase);
    void split_classes(const ByteSet& set);
    bool finite(Expression e);
    bool ends_like_others(Expression e);
    bool loops(Expression e, Expression characters);

    [[noreturn]] void refuse_work();

    std::size_t limit_;
    std::uint64_t work_left_ = UINT64_MAX, work_limit_ = UINT64_MAX;
    std::uint64_t sixteenths_ = 0;  // that are not a step yet
    const char* work_sentence_ = "";
    bool work_refused_ = false;
    std::size_t step_limit_ = SIZE_MAX;  // of the derivative that is being computed
    std::vector<Node> nodes_;
    PartedTable<Expression> table_;
    std::vector<ByteSet> sets_;
    std::unordered_map<ByteSet, Expression> set_ids_;
    std::vector<Decimal> bounds_;
    // (Expression and byte) plus 1, and the derivative.
    PartedTable<std::pair<std::uint64_t, Expression>> derivatives_;
    std::unordered_map<Expression, bool> finite_;
    std::unordered_map<std::uint64_t, bool> takes_any_;
    std::vector<std::string> endings_;  // texts that led to an end lately, the newest last
    Classes classes_;                   // for as many sets as classes_of_ says
    std::size_t classes_of_ = 0;
    bool compares_ = false;           // an expression compares numbers, or asks for a multiple
    bool classes_of_digits_ = false;  // classes_ tells apart what those look at
};

}  // namespace foresay::grammar
