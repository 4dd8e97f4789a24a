// server/api/fields.h: the one table of what requests may hold. Checks, messages, docs/server-reference.md and
// /openapi.json come from it.
//
// A Shape is an object of a request: a body, a message, a tool. A Field has the kinds of values that it takes, their
// range, and what it does. null counts as absent everywhere. Members that no field names are ignored.
//
// Threads:  the table is immutable.
// Errors:   check_shape() throws ApiError with the dotted path of the field: messages[2].content.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "server/json.h"

namespace foresay::server {

enum Kinds : unsigned {
    kBoolean = 1,
    kInteger = 2,
    kNumber = 4,  // integers, too
    kString = 8,
    kObject = 16,
    kList = 32,
    kAny = 63,
};

struct Shape;

struct Field {
    std::string_view name;
    unsigned kinds = kAny;
    std::string_view doc;
    double least = -std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::infinity();
    std::vector<std::string_view> choices = {};  // of a string
    unsigned items = 0;                          // kinds of a list's items; 0: any
    const Shape* shape = nullptr;                // of an object, or of the items that are objects
    bool required = false;
    bool ignored = false;  // accepted, because it cannot change the text
    // For a field that sets a parameter of a sampler stage: both names, "top_k" and "k".
    std::string_view stage = {}, parameter = {};
    // Of such a field: a number with which it switches the stage off. Clients send those for everything that they know,
    // and a chain without the stage stays without it.
    double off = std::numeric_limits<double>::quiet_NaN();
    // Of such a field: it says how the stage acts, and not that it does.
    bool detail = false;
};

struct Shape {
    std::string_view name;
    std::vector<Field> fields;
    const Shape* base = nullptr;  // whose fields it has, too
    // Of objects that say their type in the member `type`: those that count here. Others are not looked at: they are
    // another server's, or are refused as what they are. Empty: all count.
    std::vector<std::string_view> types = {};
};

// Calls `visit` for each field, those of the bases included.
void visit_fields(const Shape& shape, const std::function<void(const Field&)>& visit);
const Field* find_field(const Shape& shape, std::string_view name);

// Checks kinds, ranges, choices and required fields of an object and of what it holds. `path`: of the object, empty for
// a body. Names that no field has are added to `unknown`.
void check_shape(const Shape& shape, const Json& object, const std::string& path = {},
                 std::vector<std::string>* unknown = nullptr);

// The shape as a JSON Schema, for /openapi.json.
Json schema_of(const Shape& shape);

// "a string or a list"
std::string kinds_text(unsigned kinds);
// Whether numbers of the field have a limit.
bool has_range(const Field& field);
// "from 0 to 1", "at least 0": of a field that has a limit.
std::string range_text(const Field& field);

}  // namespace foresay::server
