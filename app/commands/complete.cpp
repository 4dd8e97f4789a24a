// foresay complete: one completion, streamed to standard output.
#include <algorithm>

#include "app/commands/commands.h"
#include "app/files.h"
#include "app/interrupt.h"
#include "app/output.h"
#include "app/session.h"
#include "app/statistics.h"

namespace foresay::app {

namespace {

constexpr std::int32_t kDefaultTokens = 256;

std::string prompt_of(const Options& options) {
    if (options.prompt) return *options.prompt;
    return read_text(options.file, "the prompt");
}

}  // namespace

int run_complete(const Options& options) {
    const std::string prompt = prompt_of(options);
    SessionNeeds needs;
    needs.speculating = true;
    Session session(options, needs);
    speculative::Generator generator = session.make_generator();
    const std::vector<std::int32_t> tokens = session.tokenizer().encode(prompt);

    speculative::GenerateRequest request;
    request.input = tokens;
    request.max_tokens =
        static_cast<std::int32_t>(std::min<std::int64_t>(options.max_tokens.value_or(kDefaultTokens), 1 << 30));
    request.seed = session.config().seed;
    request.branch = session.config().branch;
    request.stop = options.stop;
    request.ignore_eos = options.ignore_eos;
    request.cancel = &interrupted();
    speculative::TokenCallback show;
    bool first = true;
    if (!options.json && options.token_ids) {
        show = [&](const speculative::TokenEvent& event) {
            if (!first) print(" ");
            print(std::to_string(event.token));
            first = false;
        };
    } else if (!options.json) {
        show = [](const speculative::TokenEvent& event) {
            if (!event.text.empty()) print(event.text);
        };
    }
    const speculative::GenerateResult result = generator.generate(request, show);
    session.report_stages(generator.chain());
    if (options.json) {
        const core::Config& config = session.config();
        print(completion_json(result, config.seed, config.branch, session.load_ms(), session.inflated()) + "\n");
    } else if (options.token_ids || stdout_is_terminal()) {
        print("\n");
    }
    return result.finish == speculative::FinishReason::cancelled ? kCancelled : 0;
}

}  // namespace foresay::app
