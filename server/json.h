// server/json.h: JSON values: what clients send and what they get. Keeps the JSON library out of headers.
//
// Objects keep the order of their members; of several with one name, the last counts. Numbers without a fraction that
// fit are integers of 64 bits, or large ones where they need the bit of the sign; all others are reals.
// Threads:  values.
// Cost:     linear. Objects are lists: a lookup takes time linear in the number of members.
// Errors:   parse_json() throws Error: what is wrong and where.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace foresay::server {

class Json {
public:
    enum class Kind : std::uint8_t { null, boolean, integer, real, string, list, object, large };
    using Member = std::pair<std::string, Json>;
    using List = std::vector<Json>;
    using Object = std::vector<Member>;

    Json() = default;
    Json(std::nullptr_t) {}                                       // NOLINT
    Json(bool value) : data_(value) {}                            // NOLINT
    Json(int value) : data_(static_cast<std::int64_t>(value)) {}  // NOLINT
    Json(std::int64_t value) : data_(value) {}                    // NOLINT
    Json(std::uint64_t value) {                                   // NOLINT
        if (value > INT64_MAX) {
            data_ = value;
        } else {
            data_ = static_cast<std::int64_t>(value);
        }
    }
    Json(double value) : data_(value) {}                         // NOLINT
    Json(std::string value) : data_(std::move(value)) {}         // NOLINT
    Json(std::string_view value) : data_(std::string(value)) {}  // NOLINT
    Json(const char* value) : data_(std::string(value)) {}       // NOLINT
    Json(List value) : data_(std::move(value)) {}                // NOLINT
    static Json object(std::initializer_list<Member> members = {}) {
        Json json;
        json.data_ = Object(members);
        return json;
    }
    static Json list(std::initializer_list<Json> items = {}) { return List(items); }

    Kind kind() const { return static_cast<Kind>(data_.index()); }
    bool is(Kind kind) const { return this->kind() == kind; }
    bool is_null() const { return is(Kind::null); }
    bool is_string() const { return is(Kind::string); }
    bool is_list() const { return is(Kind::list); }
    bool is_object() const { return is(Kind::object); }
    bool is_number() const { return is(Kind::integer) || is(Kind::real) || is(Kind::large); }
    bool is_true() const { return is(Kind::boolean) && boolean(); }
    bool is_false() const { return is(Kind::boolean) && !boolean(); }

    // For values of the kind that the caller has checked.
    bool boolean() const { return std::get<bool>(data_); }
    std::int64_t integer() const { return std::get<std::int64_t>(data_); }
    std::uint64_t large() const { return std::get<std::uint64_t>(data_); }
    double number() const {
        if (is(Kind::large)) return static_cast<double>(large());
        return is(Kind::integer) ? static_cast<double>(integer()) : std::get<double>(data_);
    }
    const std::string& string() const { return std::get<std::string>(data_); }
    const List& items() const { return std::get<List>(data_); }
    const Object& members() const { return std::get<Object>(data_); }

    // The member; null when there is none or when this is no object.
    const Json& operator[](std::string_view name) const;
    bool has(std::string_view name) const { return !(*this)[name].is_null(); }
    // The member's text; empty when it is no string.
    const std::string& text(std::string_view name) const;

    // Sets or replaces a member of an object.
    Json& set(std::string_view name, Json value);
    void push(Json value);

    // For a parser: appends a member without looking for another of that name, and removes those afterwards.
    void append(std::string name, Json value);
    void keep_last_of_each();

    bool operator==(const Json&) const = default;

    // On one line, without blanks. Bytes that are no UTF-8 become U+FFFD.
    std::string dump() const;
    void append_to(std::string& out) const;

private:
    std::variant<std::monostate, bool, std::int64_t, double, std::string, List, Object, std::uint64_t> data_;
};

// A text as a JSON string, quotes included.
void append_quoted(std::string_view text, std::string& out);
std::string json_quoted(std::string_view text);

inline constexpr int kJsonDepth = 64;

// Refuses deeper nesting than kJsonDepth, numbers that are none, bytes that are no UTF-8.
Json parse_json(std::string_view text);
// The same, where a text that is no JSON is a normal outcome. False: it is none.
bool try_parse_json(std::string_view text, Json& out);

}  // namespace foresay::server
