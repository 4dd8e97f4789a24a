// JSON Schema: goals (grammar/schema_merge.h) become rules, one for each goal, so that recursion needs no more than a
// name for it. null, booleans, numbers and strings become one lexeme; arrays and objects rules of their own kinds.
#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "base/error.h"
#include "grammar/front_ends.h"
#include "grammar/json_text.h"
#include "grammar/pattern.h"
#include "grammar/schema_merge.h"

namespace foresay::grammar {
namespace {

constexpr std::size_t kMostGoals = 20'000;
constexpr std::size_t kMostNameClasses = 64;  // of patternProperties that overlap

using Kind = JsonValue::Kind;
using Type = MergedSchema::Type;

class Compiler {
public:
    Compiler(Machine& machine, JsonValue schema, Whitespace whitespace)
        : machine_(machine), e_(machine.expressions()), document_(std::move(schema), e_), text_(e_, whitespace) {}

    Symbol compile() {
        const Symbol root = symbol(goal_of(&document_.root()));
        while (!queue_.empty()) {
            const auto [rule, merged] = std::move(queue_.front());
            queue_.pop_front();
            define(rule, merged);
        }
        check_disjoint();
        return root;
    }

private:
    // Two branches of a oneOf, and what a value that satisfies both would be.
    struct Overlap {
        const JsonValue* schema;
        std::size_t first, second;
        Symbol both;
    };

    std::uint32_t lexeme(Expression text) { return machine_.lexer().add(text_.lexeme(text)); }

    Symbol symbol(const Goal& goal) {
        MergedSchema merged = document_.merge(goal);
        e_.spend(10 * (1 + merged.goal.size()));
        if (merged.never || merged.types == 0) return {};
        const auto [known, fresh] = symbols_.try_emplace(merged.goal);
        if (!fresh) return known->second;
        if (symbols_.size() > kMostGoals)
            document_.refuse(document_.root(), "schema", "leads to more than 20000 combinations of its parts");
        const bool scalar =
            merged.choices.empty() && merged.values.empty() && (merged.types & (Type::array | Type::object)) == 0;
        if (scalar) {
            const Expression e = scalars(merged);
            return known->second = e_.matches_nothing(e) ? Symbol{} : Symbol::lexeme(lexeme(e));
        }
        const std::uint32_t rule = machine_.rules().add_rule();
        known->second = Symbol::rule(rule);
        queue_.emplace_back(rule, std::move(merged));
        return Symbol::rule(rule);
    }

    void add_alternative(std::uint32_t rule, Symbol symbol) {
        if (symbol.nothing()) return;
        Rules& rules = machine_.rules();
        auto [end, fresh] = ends_.try_emplace(rule, 0);
        if (fresh) {
            end->second = rules.add_state(rule);
            rules.set_final(end->second);
        }
        rules.add_edge(rules.first_state(rule), symbol, end->second);
    }

    void define(std::uint32_t rule, const MergedSchema& merged) {
        if (!merged.values.empty()) return define_values(rule, merged);
        if (!merged.choices.empty()) return define_choice(rule, merged, merged.choices.front());
        const Expression e = scalars(merged);
        if (!e_.matches_nothing(e)) add_alternative(rule, Symbol::lexeme(lexeme(e)));
        // A rule that is an array or an object alone needs no rule around it.
        if ((merged.types & Type::array) != 0) add_alternative(rule, array(merged));
        if ((merged.types & Type::object) != 0) add_alternative(rule, object(merged));
    }

    // ---- values
    void define_values(std::uint32_t rule, const MergedSchema& merged) {
        std::vector<const JsonValue*> found = list_of(*merged.values[0]);
        for (std::size_t i = 1; i < merged.values.size(); ++i) {
            const std::vector<const JsonValue*> other = list_of(*merged.values[i]);
            e_.spend(found.size() * other.size());
            std::erase_if(found, [&](const JsonValue* v) {
                return std::none_of(other.begin(), other.end(), [&](const JsonValue* o) { return equal(*v, *o); });
            });
        }
        Goal rest = merged.goal;
        for (SchemaPart& part : rest) part.without |= SchemaPart::kValues;
        rest = join(std::move(rest), {});
        std::vector<Expression> scalars;
        std::vector<std::string> texts;
        for (const JsonValue* value : found) {
            if (!conforms(*value, rest)) continue;
            if (value->is(Kind::array) || value->is(Kind::object)) {
                add_alternative(rule, literal(*value));
            } else if (value->is(Kind::string) && std::all_of(value->text.begin(), value->text.end(), [](char c) {
                           return is_plain(static_cast<std::uint8_t>(c));
                       })) {
                texts.push_back(value->text);  // written as they are
            } else {
                scalars.push_back(text_.scalar(*value));
            }
        }
        if (!texts.empty()) scalars.push_back(text_.quoted(e_.literals(std::move(texts))));
        if (!scalars.empty()) add_alternative(rule, Symbol::lexeme(lexeme(e_.alternatives(std::move(scalars)))));
    }

    // `values` has lists of enum and single values of const: which one it is says the schema that has it.
    std::vector<const JsonValue*> list_of(const JsonValue& value) {
        if (!is_enum(value)) return {&value};
        std::vector<const JsonValue*> list;
        for (const JsonValue& item : value.items) list.push_back(&item);
        return list;
    }
    bool is_enum(const JsonValue& value) {
        if (!value.is(Kind::array)) return false;
        if (enums_.empty()) find_enums(document_.root());
        return enums_.count(&value) != 0;
    }
    void find_enums(const JsonValue& value) {
        for (const JsonValue& item : value.items) find_enums(item);
        for (const auto& [name, member] : value.members) {
            if (name == "enum") enums_.insert(&member);
            find_enums(member);
        }
    }

    Symbol literal(const JsonValue& value) {
        Rules& rules = machine_.rules();
        if (value.is(Kind::array)) {
            ArrayRule array = array_rule();
            for (const JsonValue& item : value.items) array.first.push_back(literal(item));
            array.least = array.most = static_cast<std::uint32_t>(array.first.size());
            const std::uint32_t rule = rules.add_rule();
            rules.define(rule, std::move(array));
            return Symbol::rule(rule);
        }
        if (value.is(Kind::object)) {
            ObjectRule object = object_rule();
            for (const auto& [name, member] : value.members) add_name(object, name, literal(member), true);
            const std::uint32_t rule = rules.add_rule();
            rules.define(rule, std::move(object));
            return Symbol::rule(rule);
        }
        return Symbol::lexeme(lexeme(text_.scalar(value)));
    }

    // Whether a value of an enum satisfies the rest of its schemas.
    bool conforms(const JsonValue& value, const Goal& goal) {
        const MergedSchema merged = document_.merge(goal);
        static constexpr unsigned kTypes[] = {Type::null,   Type::boolean, Type::number,
                                              Type::string, Type::array,   Type::object};
        if (merged.never || (merged.types & kTypes[static_cast<int>(value.kind)]) == 0) return false;
        for (const JsonValue* other : merged.values) {
            const std::vector<const JsonValue*> list = list_of(*other);
            if (std::none_of(list.begin(), list.end(), [&](const JsonValue* o) { return equal(*o, value); }))
                return false;
        }
        for (const MergedSchema::Choice& choice : merged.choices) {
            const auto holds =
                std::count_if(choice.list->items.begin(), choice.list->items.end(),
                              [&](const JsonValue& branch) { return conforms(value, goal_of(&branch)); });
            if (holds == 0 || (choice.one && holds > 1)) return false;
        }
        if (value.is(Kind::number)) {
            Decimal d;
            if (!Decimal::read(value.text, d)) return false;
            if (merged.integer && !d.fraction.empty()) return false;
            if (merged.bounds.empty() && merged.multiples.empty()) return true;
            return e_.matches(restricted_number(merged), d.text());
        }
        if (value.is(Kind::string)) {
            if (merged.only_types()) return true;
            // Judged as it is written; what cannot be judged so has a control character.
            return matches_written(string_content(merged), value.text);
        }
        if (value.is(Kind::array)) {
            if (value.items.size() < merged.least_items || value.items.size() > merged.most_items) return false;
            for (std::size_t i = 0; i < value.items.size(); ++i) {
                if (!conforms(value.items[i], item_goal(merged, i))) return false;
            }
        }
        if (value.is(Kind::object)) {
            if (value.members.size() < merged.least_properties || value.members.size() > merged.most_properties)
                return false;
            for (const std::string& name : merged.required) {
                if (value.find(name) == nullptr) return false;
            }
            for (const auto& [name, member] : value.members) {
                if (!conforms(member, member_goal(merged, name))) return false;
            }
        }
        return true;
    }

    bool matches_written(Expression content, std::string_view text) {
        return !e_.matches_nothing(e_.intersection({content, write(e_, text, Writing::json)}));
    }

    // ---- choices
    void define_choice(std::uint32_t rule, const MergedSchema& merged, const MergedSchema::Choice& choice) {
        Goal rest = merged.goal;
        for (SchemaPart& part : rest) {
            if (part == choice.part) part.without |= choice.one ? SchemaPart::kOneOf : SchemaPart::kAnyOf;
        }
        const std::vector<JsonValue>& list = choice.list->items;
        std::vector<Goal> branches;
        for (const JsonValue& branch : list) {
            branches.push_back(join(rest, goal_of(&branch)));
            add_alternative(rule, symbol(branches.back()));
        }
        if (!choice.one) return;
        for (std::size_t i = 0; i < list.size(); ++i) {
            for (std::size_t k = i + 1; k < list.size(); ++k) {
                if (told_apart(branches[i], branches[k])) continue;
                overlaps_.push_back({choice.part.schema, i, k, symbol(join(branches[i], branches[k]))});
            }
        }
    }

    // The usual ways to tell two branches apart, without making rules for what both would allow.
    bool told_apart(const Goal& a, const Goal& b) {
        const MergedSchema x = document_.merge(a);
        const MergedSchema y = document_.merge(b);
        if (x.never || y.never || (x.types & y.types) == 0) return true;
        if ((x.types & y.types) != Type::object) return false;
        for (const std::string& name : x.required) {
            if (!std::binary_search(y.required.begin(), y.required.end(), name)) continue;
            const MergedSchema one = document_.merge(member_goal(x, name));
            const MergedSchema other = document_.merge(member_goal(y, name));
            if (one.never || other.never || (one.types & other.types) == 0) return true;
            for (const JsonValue* u : one.values) {
                for (const JsonValue* v : other.values) {
                    const std::vector<const JsonValue*> us = list_of(*u);
                    const std::vector<const JsonValue*> vs = list_of(*v);
                    const bool apart = std::none_of(us.begin(), us.end(), [&](const JsonValue* p) {
                        return std::any_of(vs.begin(), vs.end(), [&](const JsonValue* q) { return equal(*p, *q); });
                    });
                    if (apart) return true;
                }
            }
        }
        return false;
    }

    void check_disjoint() {
        if (overlaps_.empty()) return;
        machine_.rules().finish();
        for (const Overlap& overlap : overlaps_) {
            if (!machine_.rules().productive(overlap.both)) continue;
            document_.refuse(*overlap.schema, "oneOf",
                             "cannot be told apart: a value may satisfy its entries " + std::to_string(overlap.first) +
                                 " and " + std::to_string(overlap.second) + " at once; use anyOf, or a const in each");
        }
    }

    // ---- scalars
    Expression scalars(const MergedSchema& merged) {
        std::vector<Expression> parts;
        if ((merged.types & Type::null) != 0) parts.push_back(e_.literal("null"));
        if ((merged.types & Type::boolean) != 0) parts.push_back(e_.literals({"true", "false"}));
        if ((merged.types & Type::number) != 0) {
            const bool plain = merged.bounds.empty() && merged.multiples.empty();
            parts.push_back(plain && !merged.integer ? text_.number() : restricted_number(merged));
        }
        if ((merged.types & Type::string) != 0) {
            const bool plain = merged.patterns.empty() && merged.formats.empty();
            const Expression content =
                plain ? merged.least_characters > merged.most_characters
                            ? Expressions::kNone
                            : text_.characters(merged.least_characters, limit(merged.most_characters))
                      : string_content(merged);
            // An intersection that matches nothing would be a string that cannot be closed.
            if (!e_.matches_nothing(content)) parts.push_back(text_.quoted(content));
        }
        return e_.alternatives(std::move(parts));
    }

    static std::uint32_t limit(std::uint32_t most) { return most == UINT32_MAX ? Expressions::kUnlimited : most; }

    Expression restricted_number(const MergedSchema& merged) {
        const JsonText::Fraction fraction = !merged.integer         ? JsonText::Fraction::any
                                            : merged.strict_integer ? JsonText::Fraction::none
                                                                    : JsonText::Fraction::zero;
        e_.spend(20 * (merged.bounds.size() + merged.multiples.size()));
        std::vector<Expression> parts = {text_.plain_number(fraction)};
        for (const auto& [comparison, bound] : merged.bounds) parts.push_back(e_.compare(comparison, bound));
        for (const auto& [factor, places] : merged.multiples) parts.push_back(e_.multiple(factor, places));
        std::vector<Expression> all = {e_.intersection(std::move(parts))};
        // Exponents where no bound lies between 0 and 1, so that they need not be compared.
        for (const bool negative : {false, true}) {
            const auto holds = [&](const auto& bound) {
                static const Decimal kZero, kOne{false, "1", {}}, kMinusOne{true, "1", {}};
                const bool lower = bound.first == Comparison::at_least || bound.first == Comparison::above;
                return lower ? Decimal::compare(bound.second, negative ? kMinusOne : kZero) <= 0
                             : Decimal::compare(bound.second, negative ? kZero : kOne) >= 0;
            };
            if (!merged.integer && merged.multiples.empty() &&
                std::all_of(merged.bounds.begin(), merged.bounds.end(), holds))
                all.push_back(text_.small_number(negative));
        }
        return e_.alternatives(std::move(all));
    }

    Expression string_content(const MergedSchema& merged) {
        if (merged.least_characters > merged.most_characters) return Expressions::kNone;
        std::vector<Expression> parts;
        for (const std::string& pattern : merged.patterns)
            parts.push_back(read_pattern(e_, pattern, Match::search, Writing::json));
        for (const std::string& format : merged.formats)
            parts.push_back(read_pattern(e_, format, Match::whole, Writing::json));
        if (parts.empty() || merged.least_characters > 0 || merged.most_characters != UINT32_MAX)
            parts.push_back(text_.written(merged.least_characters, limit(merged.most_characters)));
        return e_.intersection(std::move(parts));
    }

    // ---- arrays
    ArrayRule array_rule() {
        ArrayRule array;
        array.open = lexeme(e_.byte('['));
        array.close = lexeme(e_.byte(']'));
        array.comma = lexeme(e_.byte(','));
        return array;
    }

    static Goal item_goal(const MergedSchema& merged, std::size_t i) {
        Goal goal;
        for (const MergedSchema::Items& items : merged.items) {
            if (items.first != nullptr && i < items.first->items.size()) {
                goal = join(std::move(goal), goal_of(&items.first->items[i]));
            } else if (items.rest != nullptr) {
                goal = join(std::move(goal), goal_of(items.rest));
            }
        }
        return goal;
    }

    Symbol array(const MergedSchema& merged) {
        ArrayRule array = array_rule();
        std::size_t first = 0;
        for (const MergedSchema::Items& items : merged.items) {
            if (items.first != nullptr) first = std::max(first, items.first->items.size());
        }
        for (std::size_t i = 0; i < first; ++i) array.first.push_back(symbol(item_goal(merged, i)));
        array.rest = symbol(item_goal(merged, first));
        array.least = merged.least_items;
        array.most = merged.most_items;
        const std::uint32_t rule = machine_.rules().add_rule();
        machine_.rules().define(rule, std::move(array));
        return Symbol::rule(rule);
    }

    // ---- objects
    ObjectRule object_rule() {
        ObjectRule object;
        object.open = lexeme(e_.byte('{'));
        object.close = lexeme(e_.byte('}'));
        return object;
    }

    void add_name(ObjectRule& object, std::string_view name, Symbol value, bool required) {
        const Expression text = write(e_, name, Writing::json);
        object.names.push_back({machine_.lexer().add(text_.name(text, true)),
                                machine_.lexer().add(text_.name(text, false)), value, required});
    }

    bool name_matches(const std::string& pattern, std::string_view name) {
        return matches_written(name_pattern(pattern), name);
    }

    Expression name_pattern(const std::string& pattern) {
        const auto [found, fresh] = name_patterns_.try_emplace(pattern, 0);
        if (fresh) found->second = read_pattern(e_, pattern, Match::search, Writing::json);
        return found->second;
    }

    Goal member_goal(const MergedSchema& merged, const std::string& name) {
        Goal goal;
        for (const MergedSchema::Properties& properties : merged.properties) {
            bool found = false;
            if (properties.named != nullptr) e_.spend(1 + properties.named->members.size() / 16);
            if (const JsonValue* schema = properties.named != nullptr ? properties.named->find(name) : nullptr) {
                goal = join(std::move(goal), goal_of(schema));
                found = true;
            }
            if (properties.patterns != nullptr) {
                for (const auto& [pattern, schema] : properties.patterns->members) {
                    if (!name_matches(pattern, name)) continue;
                    goal = join(std::move(goal), goal_of(&schema));
                    found = true;
                }
            }
            if (!found && properties.additional != nullptr)
                goal = join(std::move(goal), goal_of(properties.additional));
        }
        return goal;
    }

    // Names that `properties` does not list, by which patterns they match.
    struct NameClass {
        Expression names;
        std::set<std::string> patterns;
    };

    std::vector<NameClass> other_names(const MergedSchema& merged, const std::vector<std::string>& names) {
        std::vector<Expression> excluded;
        std::vector<std::string> plain;
        for (const std::string& name : names) {
            if (std::all_of(name.begin(), name.end(), [](char c) { return is_plain(static_cast<std::uint8_t>(c)); })) {
                plain.push_back(name);
            } else {
                excluded.push_back(write(e_, name, Writing::json));
            }
        }
        if (!plain.empty()) excluded.push_back(e_.literals(std::move(plain)));
        std::set<std::string> patterns;
        for (const MergedSchema::Properties& properties : merged.properties) {
            if (properties.patterns == nullptr) continue;
            for (const auto& [pattern, schema] : properties.patterns->members) patterns.insert(pattern);
        }
        const bool any = excluded.empty() && patterns.empty();
        std::vector<NameClass> classes(1);
        classes[0].names = any ? text_.characters(0, Expressions::kUnlimited)
                               : e_.intersection({text_.written(0, Expressions::kUnlimited),
                                                  e_.complement(e_.alternatives(std::move(excluded)))});
        for (const std::string& pattern : patterns) {
            const Expression matches = name_pattern(pattern);
            std::vector<NameClass> split;
            for (const NameClass& c : classes) {
                NameClass with{e_.intersection({c.names, matches}), c.patterns};
                with.patterns.insert(pattern);
                const NameClass without{e_.intersection({c.names, e_.complement(matches)}), c.patterns};
                for (const NameClass& part : {with, without}) {
                    if (!e_.matches_nothing(part.names)) split.push_back(part);
                }
            }
            if (split.size() > kMostNameClasses)
                document_.refuse(*merged.goal.front().schema, "patternProperties",
                                 "has too many patterns that overlap");
            classes = std::move(split);
        }
        return classes;
    }

    Symbol object(const MergedSchema& merged) {
        ObjectRule object = object_rule();
        std::vector<std::string> names;
        std::set<std::string> known;
        e_.spend(8 * merged.required.size());
        for (const MergedSchema::Properties& properties : merged.properties) {
            if (properties.named == nullptr) continue;
            e_.spend(8 * properties.named->members.size());
            for (const auto& [name, schema] : properties.named->members) {
                if (known.insert(name).second) names.push_back(name);
            }
        }
        for (const std::string& name : merged.required) {
            if (known.insert(name).second) names.push_back(name);
        }
        for (const std::string& name : names) {
            const bool required = std::binary_search(merged.required.begin(), merged.required.end(), name);
            add_name(object, name, symbol(member_goal(merged, name)), required);
        }
        for (const NameClass& c : other_names(merged, names)) {
            Goal goal;
            for (const MergedSchema::Properties& properties : merged.properties) {
                bool found = false;
                if (properties.patterns != nullptr) {
                    for (const auto& [pattern, schema] : properties.patterns->members) {
                        if (c.patterns.count(pattern) == 0) continue;
                        goal = join(std::move(goal), goal_of(&schema));
                        found = true;
                    }
                }
                if (!found && properties.additional != nullptr)
                    goal = join(std::move(goal), goal_of(properties.additional));
            }
            const Symbol value = symbol(goal);
            if (value.nothing()) continue;
            object.others.push_back({machine_.lexer().add(text_.name(c.names, true)),
                                     machine_.lexer().add(text_.name(c.names, false)), value});
        }
        object.least = merged.least_properties;
        object.most = merged.most_properties;
        if (object.least > object.names.size() + object.others.size() && !object.others.empty())
            document_.refuse(*merged.least_properties_of, "minProperties",
                             "asks for more names than can be told apart: list them in properties");
        const std::uint32_t rule = machine_.rules().add_rule();
        machine_.rules().define(rule, std::move(object));
        return Symbol::rule(rule);
    }

    Machine& machine_;
    Expressions& e_;
    SchemaDocument document_;
    JsonText text_;
    std::map<Goal, Symbol> symbols_;
    std::deque<std::pair<std::uint32_t, MergedSchema>> queue_;
    std::map<std::uint32_t, std::uint32_t> ends_;
    std::vector<Overlap> overlaps_;
    std::set<const JsonValue*> enums_;
    std::map<std::string, Expression> name_patterns_;
};

}  // namespace

Symbol read_json_schema(Machine& machine, JsonValue schema, Whitespace whitespace) {
    return Compiler(machine, std::move(schema), whitespace).compile();
}

Symbol read_json_schema(Machine& machine, std::string_view text, Whitespace whitespace) {
    return read_json_schema(machine, read_json(text), whitespace);
}

}  // namespace foresay::grammar
