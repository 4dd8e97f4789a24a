// grammar/json_value.h: a JSON text as a tree, with numbers as they are written.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace foresay::grammar {

struct JsonValue {
    enum class Kind : unsigned char { null, boolean, number, string, array, object } kind = Kind::null;
    bool truth = false;                                      // boolean
    std::string text;                                        // number: as written; string: its value in UTF-8
    std::vector<JsonValue> items;                            // array
    std::vector<std::pair<std::string, JsonValue>> members;  // object: in order, each name once (the last one counts)

    // Made where the type is complete: a list of pairs with it needs that, for clang.
    JsonValue();
    JsonValue(const JsonValue&);
    JsonValue(JsonValue&&) noexcept;
    JsonValue& operator=(const JsonValue&);
    JsonValue& operator=(JsonValue&&) noexcept;
    ~JsonValue();

    bool is(Kind k) const { return kind == k; }
    const JsonValue* find(std::string_view name) const;  // null where there is none, or where this is no object
};

// Errors: Error with line and column. At most 256 levels.
JsonValue read_json(std::string_view text);

// Equal as JSON Schema says: numbers by value, objects in any order.
bool equal(const JsonValue& a, const JsonValue& b);

}  // namespace foresay::grammar
