// server/error.h: what is wrong with a request, without the form in which a protocol says it.
//
// Errors:   an ApiError's text is one sentence for the client: what, where, what to do.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/error.h"

namespace foresay::server {

enum class Problem : std::uint8_t {
    invalid,         // 400: the request is wrong, and stays wrong
    authentication,  // 401
    permission,      // 403
    not_found,       // 404
    method,          // 405
    timeout,         // 408
    too_large,       // 413, 414, 431
    misdirected,     // 421
    busy,            // 429: come again
    failed,          // 500: the same request fails again
    unsupported,     // 501
    unavailable,     // 503: come again
};
int status_of(Problem problem);

class ApiError : public Error {
public:
    ApiError(Problem problem, const std::string& message, std::string code = {}, std::string param = {})
        : Error(message),
          problem(problem),
          status(status_of(problem)),
          code(std::move(code)),
          param(std::move(param)) {}

    Problem problem;
    int status;
    std::string code;                 // "context_length_exceeded"; may be empty
    std::string param;                // the field, as a dotted path: "messages[2].content"; may be empty
    int retry_after = 0;              // seconds; 0: none
    std::int64_t prompt_tokens = 0;   // of context_length_exceeded; of a very long prompt, so many at least
    std::int64_t context_length = 0;  // of the same
};

// To a request that comes while the server stops or changes its model.
inline ApiError stopping() {
    ApiError error(Problem::unavailable, "the server is stopping or changes its model; come again", "shutting_down");
    error.retry_after = 5;
    return error;
}

// To requests for embeddings, of all protocols.
inline ApiError no_embeddings() {
    return {Problem::unsupported, "this server has no embeddings: its model generates text", "unsupported"};
}

// The value of the field `param` is of a wrong type, or not among those that are allowed.
inline ApiError wrong_type(const std::string& param, const std::string& message) {
    return {Problem::invalid, message, "invalid_type", param};
}
inline ApiError wrong_value(const std::string& param, const std::string& message) {
    return {Problem::invalid, message, "invalid_value", param};
}
inline ApiError missing(const std::string& param) {
    return {Problem::invalid, "'" + param + "' is missing", "missing_required_parameter", param};
}

}  // namespace foresay::server
