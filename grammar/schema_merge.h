// grammar/schema_merge.h: JSON Schemas that a value must satisfy together, merged into one list of restrictions.
//
// A goal is a set of schemas. merge() follows $ref and allOf and collects what all of them say. What it leaves to the
// compiler are choices: a list of anyOf or oneOf, one of which must hold as well; the compiler asks again with each.
//
// Errors: Error that names the keyword and the JSON pointer of its schema, for whatever restricts and is not
// understood.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "grammar/expressions.h"
#include "grammar/json_value.h"

namespace foresay::grammar {

// A schema, and which of its keywords have been dealt with.
struct SchemaPart {
    static constexpr std::uint8_t kAnyOf = 1, kOneOf = 2, kValues = 4;
    static constexpr std::uint8_t kReferences = 8;  // $ref and allOf: what they name is in the goal
    const JsonValue* schema = nullptr;
    std::uint8_t without = 0;
    auto operator<=>(const SchemaPart&) const = default;
};

using Goal = std::vector<SchemaPart>;  // sorted, each once

inline Goal goal_of(const JsonValue* schema) { return {{schema, 0}}; }
Goal join(Goal a, const Goal& b);

struct MergedSchema {
    enum Type : unsigned { null = 1, boolean = 2, number = 4, string = 8, array = 16, object = 32, every = 63 };
    unsigned types = every;
    bool integer = false;         // numbers must be integers
    bool strict_integer = false;  // written without a point
    bool never = false;           // a schema `false`
    Goal goal;                    // with $ref and allOf replaced by what they name

    struct Choice {
        SchemaPart part;
        bool one = false;  // oneOf: exactly one
        const JsonValue* list = nullptr;
    };
    std::vector<Choice> choices;
    std::vector<const JsonValue*> values;  // lists of enum, and values of const
    std::vector<std::pair<Comparison, Decimal>> bounds;
    std::vector<std::pair<std::uint64_t, std::uint32_t>> multiples;  // of factor / 10^places
    std::uint32_t least_characters = 0, most_characters = UINT32_MAX;
    std::vector<std::string> patterns;  // searched
    std::vector<std::string> formats;   // patterns of the whole text
    struct Items {
        const JsonValue* first = nullptr;  // a list
        const JsonValue* rest = nullptr;   // a schema
    };
    std::vector<Items> items;
    std::uint32_t least_items = 0, most_items = UINT32_MAX;
    struct Properties {
        const JsonValue* named = nullptr;
        const JsonValue* patterns = nullptr;
        const JsonValue* additional = nullptr;
    };
    std::vector<Properties> properties;
    std::vector<std::string> required;  // sorted, each once
    std::uint32_t least_properties = 0, most_properties = UINT32_MAX;
    const JsonValue* least_properties_of = nullptr;  // the schema that says so

    bool only_types() const;  // nothing but types, and values
};

class SchemaDocument {
public:
    // What merging takes counts as work of `expressions`.
    SchemaDocument(JsonValue root, Expressions& expressions);

    const JsonValue& root() const { return root_; }
    MergedSchema merge(const Goal& goal) const;
    [[noreturn]] void refuse(const JsonValue& schema, std::string_view keyword, const std::string& why) const;

private:
    void add(const SchemaPart& part, MergedSchema& merged, std::set<const JsonValue*>& seen) const;
    void add_keyword(const JsonValue& schema, const std::string& name, const JsonValue& value,
                     MergedSchema& merged) const;
    void add_types(const JsonValue& schema, const JsonValue& value, MergedSchema& merged) const;
    void add_object(const JsonValue& schema, MergedSchema& merged) const;
    const JsonValue& resolve(const JsonValue& schema, const JsonValue& reference) const;
    std::uint32_t count(const JsonValue& schema, std::string_view keyword, const JsonValue& value) const;
    Decimal decimal(const JsonValue& schema, std::string_view keyword, const JsonValue& value) const;
    void index(const JsonValue& value);
    std::string pointer_to(const JsonValue& schema) const;

    JsonValue root_;
    Expressions& expressions_;
    std::map<std::string, const JsonValue*> anchors_;
    std::string id_;                // of the root
    bool reference_alone_ = false;  // the keywords beside a $ref do not count (before 2019-09)
    bool has_references_ = false;
    bool strict_integers_ = false;  // 3.0 is none (before draft 6)
    mutable std::size_t work_ = 0;  // schemas merged so far
};

}  // namespace foresay::grammar
