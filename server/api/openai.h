// server/api/openai.h: what other protocols share with OpenAI's.
#pragma once

#include <string>
#include <vector>

#include "server/api/protocol.h"

namespace foresay::server {

// {"message", "type", "param", "code"}
Json openai_error_body(const ApiError& error);
HttpResponse openai_error(const ApiError& error, const std::string& id);

}  // namespace foresay::server
