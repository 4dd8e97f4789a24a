// core/jinja/syntax.h: a parsed template.
//
// Nodes are plain data; core/jinja/parser.h makes them and core/jinja/interpreter.h runs them. Precedence and shapes
// are those of Jinja2 3.1.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/jinja/value.h"

namespace foresay::jinja {

struct Place {
    int line = 1, column = 1;  // from 1, in characters
};

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Body = std::vector<std::unique_ptr<Statement>>;

struct ArgumentList {
    std::vector<ExpressionPtr> positional;
    std::vector<std::pair<std::string, ExpressionPtr>> named;
    ExpressionPtr rest, named_rest;  // *rest, **named_rest
};

enum class Operation : std::uint8_t {
    add,
    subtract,
    multiply,
    divide,
    floor_divide,
    modulo,
    power,
    concatenate,
    negate,
    plus,
    logical_not,
    logical_and,
    logical_or,
    equal,
    not_equal,
    less,
    less_equal,
    greater,
    greater_equal,
    in,
    not_in,
};

struct Expression {
    enum class Kind : std::uint8_t {
        literal,    // value
        name,       // text
        list,       // children
        tuple,      // children
        dict,       // children: key, value, key, value, ...
        operation,  // operation, children
        compare,    // children[0], then operations[i] with children[i + 1]
        choice,     // children: condition, value, and perhaps the other value
        attribute,  // children[0] . text
        item,       // children[0] [ children[1] ]
        slice,      // inside an item: children: start, stop, step, each may be null
        call,       // children[0] ( arguments )
        filter,     // children[0] | text ( arguments ); children[0] is null for a filter block
        test,       // children[0] is [not] text ( arguments )
    };
    Kind kind = Kind::literal;
    Place place;
    Value value;
    std::string text;
    bool negated = false;
    Operation operation = Operation::add;
    std::vector<Operation> operations;
    std::vector<ExpressionPtr> children;
    ArgumentList arguments;
    int depth = 1;  // levels of nodes below and including this one
};

// A parameter of a macro or of a call block.
struct Parameter {
    std::string name;
    ExpressionPtr fallback;  // null: none
};

struct Branch {
    ExpressionPtr condition;
    Body body;
};

struct Statement {
    enum class Kind : std::uint8_t {
        text,          // text
        output,        // value
        choice,        // branches, otherwise
        loop,          // target in value, condition, body, otherwise
        set,           // target = value
        set_block,     // target = body, filtered by `value` when there is one
        macro,         // text (parameters) body
        call_block,    // value is the call; parameters and body are the caller
        filter_block,  // value is a filter without an operand; body
        with,          // targets and values, body
        scope,         // body, in a scope of its own
        stop_loop,
        next_turn,  // continue
    };
    Kind kind = Kind::text;
    Place place;
    std::string text;
    ExpressionPtr target;  // a name, a tuple of targets, or an attribute of a namespace
    ExpressionPtr value, condition;
    std::vector<Branch> branches;
    std::vector<std::pair<ExpressionPtr, ExpressionPtr>> bindings;
    std::vector<Parameter> parameters;
    bool recursive = false;
    bool extra_positional = false, extra_named = false;  // a macro that reads `varargs` or `kwargs`
    Body body, otherwise;
};

}  // namespace foresay::jinja
