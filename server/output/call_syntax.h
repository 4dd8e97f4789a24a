// server/output/call_syntax.h: the ways in which models write a call, each as a function of the text that may be one.
//
// Rules:    what is decided about a text stays so for every longer text that begins with it.
// Threads:  pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "server/output/output_format.h"
#include "server/request.h"

namespace foresay::server {

struct CallAttempt {
    enum class Status : std::uint8_t {
        none,      // no call begins here
        partial,   // more text decides
        complete,  // `bytes` of the text are `calls`; none: marks around calls
    };
    Status status = Status::none;
    std::size_t bytes = 0;
    std::vector<ToolCall> calls;
};

// The texts with which a call may begin.
std::span<const std::string_view> call_marks(OutputFamily family);
// Whether an answer, or what follows a call, may begin with a bare JSON object that is a call.
bool takes_bare_object(OutputFamily family);

// The call at the beginning of `text`, which starts with a mark, or with '{' where takes_bare_object() holds. `end`:
// nothing follows.
CallAttempt parse_call(OutputFamily family, std::string_view text, const std::vector<Tool>& tools, bool end);

}  // namespace foresay::server
