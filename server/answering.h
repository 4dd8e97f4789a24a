// server/answering.h: runs a request: its prompts become tokens, the backend generates, and the texts go to the writer
// of its protocol.
//
// Data flow: the backend's thread hands in tokens; an OutputMachine tells reasoning, content and calls apart; stop
//           strings are looked for in the content; the writer gives them their form.
// Life:     an answering lives until its last text has ended. The client's going cancels it.
// Threads:  answer() on any thread; it returns when the backend has the request.
// Errors:   answer() throws ApiError as long as nothing was sent; later ones go to the writer.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "server/api/writer.h"
#include "server/backend.h"
#include "server/keys.h"
#include "server/metrics.h"
#include "server/model.h"
#include "server/request.h"

namespace foresay::server {

struct AnswerContext {
    const ServedModel& model;
    Backend& backend;
    Metrics& metrics;
    std::string api;         // for the metrics: "chat", "messages"
    std::string id;          // hexadecimal
    std::string model_name;  // as the client called it
    Caller caller;           // requests of one take turns with those of others
    // Kept until the last text has ended; may be null.
    std::shared_ptr<Lease> lease;
    // Kept as long as anything refers to model and backend; may be null.
    std::shared_ptr<const void> keep;
};

void answer(AnswerContext context, GenerationRequest request, std::shared_ptr<AnswerWriter> writer);

}  // namespace foresay::server
