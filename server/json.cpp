#include "server/json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"
#include "core/text/quoted.h"
#include "core/text/utf8.h"

namespace foresay::server {

namespace {

const Json kNull;
const std::string kEmpty;

// Builds a Json from the events of the library's parser.
class Builder {
public:
    using number_integer_t = nlohmann::json::number_integer_t;
    using number_unsigned_t = nlohmann::json::number_unsigned_t;
    using number_float_t = nlohmann::json::number_float_t;
    using string_t = nlohmann::json::string_t;
    using binary_t = nlohmann::json::binary_t;

    bool null() { return add(Json()); }
    bool boolean(bool value) { return add(value); }
    bool number_integer(number_integer_t value) { return add(static_cast<std::int64_t>(value)); }
    bool number_unsigned(number_unsigned_t value) { return add(static_cast<std::uint64_t>(value)); }
    bool number_float(number_float_t value, const string_t&) { return add(value); }
    bool string(string_t& value) { return add(std::move(value)); }
    bool binary(binary_t&) { return false; }
    bool start_object(std::size_t) { return open(Json::object()); }
    bool start_array(std::size_t) { return open(Json::list()); }
    bool key(string_t& name) {
        levels_.back().name = std::move(name);
        return true;
    }
    bool end_object() { return close(); }
    bool end_array() { return close(); }
    bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& problem) {
        const std::string text = problem.what();
        const std::size_t colon = text.find("syntax error");
        error = "at byte " + std::to_string(position) + ": " +
                (colon == std::string::npos ? text.substr(text.find("] ") + 2) : text.substr(colon));
        // The library goes on with what it has read last, which may be a whole prompt.
        for (const char* quoted : {"; last read: '", " parsing '"})
            error.resize(std::min(error.size(), error.find(quoted)));
        return false;
    }

    Json result;
    std::string error;

private:
    struct Level {
        Json value;
        std::string name;
    };
    bool add(Json value) {
        if (levels_.empty()) {
            result = std::move(value);
        } else if (levels_.back().value.is_list()) {
            levels_.back().value.push(std::move(value));
        } else {
            levels_.back().value.append(std::move(levels_.back().name), std::move(value));
        }
        return true;
    }
    bool open(Json value) {
        if (levels_.size() >= static_cast<std::size_t>(kJsonDepth)) {
            error = "it is nested deeper than ";
            error += std::to_string(kJsonDepth) + " levels";
            return false;
        }
        levels_.push_back({std::move(value), {}});
        return true;
    }
    bool close() {
        Json value = std::move(levels_.back().value);
        levels_.pop_back();
        if (value.is_object()) value.keep_last_of_each();
        return add(std::move(value));
    }
    std::vector<Level> levels_;
};

void append_number(double value, std::string& out) {
    if (!std::isfinite(value)) {
        out += "null";
        return;
    }
    std::array<char, 40> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    out.append(digits.data(), end);
}

}  // namespace

const Json& Json::operator[](std::string_view name) const {
    if (is_object()) {
        for (const Member& member : members()) {
            if (member.first == name) return member.second;
        }
    }
    return kNull;
}

const std::string& Json::text(std::string_view name) const {
    const Json& member = (*this)[name];
    return member.is_string() ? member.string() : kEmpty;
}

Json& Json::set(std::string_view name, Json value) {
    Object& members = std::get<Object>(data_);
    for (Member& member : members) {
        if (member.first != name) continue;
        member.second = std::move(value);
        return *this;
    }
    members.emplace_back(std::string(name), std::move(value));
    return *this;
}

void Json::push(Json value) { std::get<List>(data_).push_back(std::move(value)); }

// A member after all others, whatever its name.
void Json::append(std::string name, Json value) {
    std::get<Object>(data_).emplace_back(std::move(name), std::move(value));
}

// By a table of names: an object from outside may have millions of members.
void Json::keep_last_of_each() {
    Object& members = std::get<Object>(data_);
    if (members.size() < 2) return;
    std::unordered_map<std::string, std::size_t> places;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < members.size(); ++i) {
        const auto [place, added] = places.emplace(members[i].first, kept);
        if (!added) {
            members[place->second].second = std::move(members[i].second);
            continue;
        }
        if (kept != i) members[kept] = std::move(members[i]);
        ++kept;
    }
    members.resize(kept);
}

std::string json_quoted(std::string_view text) {
    std::string out;
    core::append_quoted(text, out);
    return out;
}

// For a string or a name: tokens of a model may be parts of characters.
static void append_valid(std::string_view text, std::string& out) {
    if (core::is_valid_utf8(text)) {
        core::append_quoted(text, out);
    } else {
        core::append_quoted(core::to_valid_utf8(text), out);
    }
}

void Json::append_to(std::string& out) const {
    switch (kind()) {
        case Kind::null:
            out += "null";
            break;
        case Kind::boolean:
            out += boolean() ? "true" : "false";
            break;
        case Kind::integer:
            out += std::to_string(integer());
            break;
        case Kind::large:
            out += std::to_string(large());
            break;
        case Kind::real:
            append_number(number(), out);
            break;
        case Kind::string:
            append_valid(string(), out);
            break;
        case Kind::list: {
            out += '[';
            bool first = true;
            for (const Json& item : items()) {
                if (!std::exchange(first, false)) out += ',';
                item.append_to(out);
            }
            out += ']';
            break;
        }
        case Kind::object: {
            out += '{';
            bool first = true;
            for (const Member& member : members()) {
                if (!std::exchange(first, false)) out += ',';
                append_valid(member.first, out);
                out += ':';
                member.second.append_to(out);
            }
            out += '}';
            break;
        }
    }
}

std::string Json::dump() const {
    std::string out;
    append_to(out);
    return out;
}

Json parse_json(std::string_view text) {
    Builder builder;
    if (!nlohmann::json::sax_parse(text, &builder))
        throw Error(builder.error.empty() ? "it is no JSON" : builder.error);
    return std::move(builder.result);
}

bool try_parse_json(std::string_view text, Json& out) {
    Builder builder;
    if (!nlohmann::json::sax_parse(text, &builder)) return false;
    out = std::move(builder.result);
    return true;
}

}  // namespace foresay::server
