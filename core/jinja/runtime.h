// core/jinja/runtime.h: what one rendering has besides its variables: limits, objects, and the calls that filters make.
//
// Life:     one for each rendering; the objects that it owns end with it.
// Threads:  one caller.
// Errors:   TemplateError when a limit is reached.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/jinja/object.h"
#include "core/jinja/syntax.h"
#include "core/jinja/template.h"

namespace foresay::jinja {

class Runtime {
public:
    Runtime(const Limits& limits, const std::tm& now) : limits_(limits), now_(now) {}

    // Counts one step.
    void step();
    // Counts the steps of looking at so many bytes or items one after the other.
    void scan(std::size_t count);
    // The same for all of a string, or all items of a list.
    void scan(const Value& value);
    // Counts bytes that are about to be made.
    void charge(std::size_t bytes);
    void charge(const Text& text) { charge(text.size()); }
    // Refuses values that are nested too deeply.
    Value checked(Value value) const;

    template <class T, class... Arguments>
    T* make(Arguments&&... arguments) {
        charge(sizeof(T) + 64);
        auto object = std::make_unique<T>(std::forward<Arguments>(arguments)...);
        T* pointer = object.get();
        objects_.push_back(std::move(object));
        return pointer;
    }

    const Limits& limits() const { return limits_; }
    const std::tm& now() const { return now_; }

private:
    Limits limits_;
    std::tm now_;
    std::int64_t steps_ = 0, bytes_ = 0;
    std::vector<std::unique_ptr<Object>> objects_;
};

// ---- operations (operations.cpp)

// Calls whatever can be called.
Value call_value(const Value& callee, const CallArguments& arguments);
Value operate(Runtime& runtime, Operation operation, const Value& left, const Value& right);
bool contains(const Value& container, const Value& item);
// What a loop goes over: items of a list, keys of a dict, characters of a string; undefined is empty.
std::vector<Value> iterate(Runtime& runtime, const Value& value);
// object.name and object[key], as Jinja2 looks them up: undefined when there is none.
Value attribute(Runtime& runtime, const Value& object, const std::string& name);
Value item(Runtime& runtime, const Value& object, const Value& key);
Value slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop, const Value& step);
// Throws when the value is undefined.
void require_defined(const Value& value);

// ---- by name (filters.cpp, tests.cpp, methods.cpp, functions.cpp)

using Filter = Value (*)(Runtime& runtime, const Value& value, const CallArguments& arguments);
using Test = bool (*)(Runtime& runtime, const Value& value, const CallArguments& arguments);
using Method = Value (*)(Runtime& runtime, const Value& self, const CallArguments& arguments);

Filter find_filter(std::string_view name);           // null: there is none
Filter find_sequence_filter(std::string_view name);  // those of filters_sequence.cpp
Test find_test(std::string_view name);
// A method of the value's type; throws for one that would change the value.
Method find_method(const Value& self, std::string_view name);
// range, dict, namespace, raise_exception, ...: by name, made for this rendering. Nothing: no such function.
Object* find_function(Runtime& runtime, std::string_view name);

// ---- arguments

// The argument at `place` or by name; nullptr: not given.
const Value* argument(const CallArguments& arguments, std::size_t place, std::string_view name);
// Refuses more positional arguments than `most`, and names that are not in `names`.
void check_arguments(const char* what, const CallArguments& arguments, std::size_t most,
                     std::initializer_list<std::string_view> names);
const Text& text_of(const char* what, const Value& value);
std::int64_t whole_of(const char* what, const Value& value);

// JSON as transformers' tojson writes it (json.cpp). indent < 0: one line.
Text dump_json(Runtime& runtime, const Value& value, int indent, bool sort_keys, const std::string& item_separator,
               const std::string& key_separator, bool ascii);

}  // namespace foresay::jinja
