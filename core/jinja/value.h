// core/jinja/value.h: the values of a template: Python's, as far as templates use them.
//
// Kinds:    undefined, none, bool, int (64 bits), float, string, list, tuple, dict, and objects: namespaces, macros,
//           functions, the variable `loop`. Lists, tuples and dicts never change once made; dicts keep insertion order.
// Life:     strings, lists and dicts are shared and immutable. Objects belong to the rendering that made them
//           (core/jinja/interpreter.h), so values that hold one must not outlive it.
// Threads:  immutable values may be read from any thread.
// Cost:     copies are cheap (a pointer). Lookup in a dict is O(1) for strings.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "core/jinja/text.h"

namespace foresay::jinja {

class Value;
class Object;

struct Undefined {
    std::string why;  // the error of using it as if it were defined
};

struct List;
class Dict;

enum class Kind : std::uint8_t { undefined, none, boolean, integer, real, string, list, dict, object };

class Value {
public:
    Value() : data_(None()) {}
    Value(bool value) : data_(value) {}                                         // NOLINT
    Value(std::int64_t value) : data_(value) {}                                 // NOLINT
    Value(double value) : data_(value) {}                                       // NOLINT
    Value(Text text) : data_(std::make_shared<const Text>(std::move(text))) {}  // NOLINT
    Value(const char* text) : Value(Text(text)) {}                              // NOLINT
    Value(std::string text) : Value(Text(std::move(text))) {}                   // NOLINT
    Value(List list);                                                           // NOLINT
    Value(Dict dict);                                                           // NOLINT
    Value(Object* object) : data_(object) {}                                    // NOLINT
    static Value undefined(std::string why);

    Kind kind() const { return static_cast<Kind>(data_.index()); }
    bool is(Kind kind) const { return this->kind() == kind; }
    bool is_number() const { return is(Kind::integer) || is(Kind::real) || is(Kind::boolean); }
    bool is_tuple() const;
    bool is_generator() const;

    bool boolean() const { return std::get<bool>(data_); }
    std::int64_t integer() const { return std::get<std::int64_t>(data_); }
    const Text& text() const { return *std::get<std::shared_ptr<const Text>>(data_); }
    const List& list() const { return *std::get<std::shared_ptr<const List>>(data_); }
    const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
    Object* object() const { return std::get<Object*>(data_); }
    const std::string& why_undefined() const { return std::get<std::shared_ptr<const Undefined>>(data_)->why; }

    // For a bool, an int or a float.
    double number() const;
    // For a bool or an int; nothing otherwise.
    std::optional<std::int64_t> whole() const;

    bool truth() const;
    int depth() const;

private:
    struct None {};
    std::variant<std::shared_ptr<const Undefined>, None, bool, std::int64_t, double, std::shared_ptr<const Text>,
                 std::shared_ptr<const List>, std::shared_ptr<const Dict>, Object*>
        data_;
};

struct List {
    std::vector<Value> items;
    bool tuple = false;
    // What Jinja2 makes lazily (map, select, items of a dict): it can be gone over once, and is no sequence.
    bool generator = false;
    std::string fails;              // of a generator: why going over it fails; empty: it does not
    mutable std::size_t taken = 0;  // of a generator: items that were gone over
    int depth = 1;  // levels of lists and dicts; making one that is too deep is refused (core/jinja/interpreter.h)
};

class Dict {
public:
    using Entry = std::pair<Value, Value>;

    const Value* find(const Value& key) const;
    const Value* find_text(std::string_view key) const;
    // Sets or replaces, keeping the place of a key that is there.
    void set(const Value& key, const Value& value);
    const std::vector<Entry>& entries() const { return entries_; }
    int depth() const { return depth_; }

private:
    std::size_t place_of(const Value& key) const;

    std::vector<Entry> entries_;
    std::unordered_map<std::string, std::size_t> by_text_;
    int depth_ = 1;
};

// a == b as Python has it: numbers by value, lists and dicts by their contents, objects by identity.
bool equal(const Value& a, const Value& b);
// a is b, for what templates compare so: None, bools and objects by identity, all else by value and kind.
bool same(const Value& a, const Value& b);
// Order of numbers, strings and lists: negative, 0 or positive. Nothing when Python would refuse to compare.
std::optional<int> compare(const Value& a, const Value& b);

// Python's names of types, as its messages have them: "str", "NoneType", "dict".
std::string type_name(const Value& value);
// str(value). Undefined is the empty text.
Text to_text(const Value& value);
// repr(value).
Text to_repr(const Value& value);
// repr of a float: the shortest decimal that reads back.
std::string float_text(double value);

}  // namespace foresay::jinja
