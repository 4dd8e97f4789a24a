// core/jinja/template.h: chat templates, the subset of Jinja2 that models use, rendered as transformers renders them.
//
// Set-up:   trim_blocks and lstrip_blocks, `break` and `continue`, `generation` blocks (whose body is rendered), no
//           autoescape; lists and dicts cannot be changed, as in an immutable sandbox. Besides Jinja2's own there are
//           the filter `tojson` as transformers has it, and the functions raise_exception and strftime_now.
// Marks:    what the template writes and what comes from the variables is told apart byte by byte (core/jinja/text.h),
//           so that the text of a message never becomes a special token.
// Safety:   a template is untrusted: it reaches nothing but its variables; depth, steps, memory and output are limited.
// Threads:  a Template may be rendered from several threads at once.
// Cost:     linear in the steps that the template takes; some 10 us for a short conversation.
// Errors:   TemplateError, one sentence with line and column of the template.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "core/jinja/text.h"
#include "core/jinja/value.h"

namespace foresay::jinja {

// The template is wrong, or what it was given. `line` is 0 until the place is known.
class TemplateError : public Error {
public:
    explicit TemplateError(const std::string& message, int line = 0, int column = 0);
    const std::string& message() const { return message_; }
    int line() const { return line_; }

private:
    std::string message_;
    int line_;
};

struct Limits {
    std::int64_t steps = 1'000'000;       // expressions and statements evaluated
    std::int64_t bytes = 256 << 20;       // of all strings, lists and dicts that are made
    std::size_t output_bytes = 16 << 20;  // of the rendered text
    std::size_t source_bytes = 1 << 20;   // of a template
    int depth = 100;                      // nested expressions, statements, calls and values
};

class Template {
public:
    // Parses `source`.
    explicit Template(std::string_view source, const Limits& limits = {});
    ~Template();
    Template(Template&&) noexcept;
    Template& operator=(Template&&) noexcept;

    // Renders with the given variables. `now`: what strftime_now() formats, in local time of the caller's choosing.
    Text render(const Dict& variables, const std::tm& now = {}) const;

    // Whether the source names this variable or attribute anywhere: what a template can do is recognised so.
    bool mentions(std::string_view name) const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace foresay::jinja
