// foresay: the program. Parses, dispatches, and turns what was thrown into an exit status.
#include <exception>
#include <new>
#include <string>

#include "app/commands/commands.h"
#include "app/interrupt.h"
#include "app/log.h"
#include "app/options.h"
#include "app/output.h"
#include "base/error.h"
#include "core/config/diagnostic.h"

namespace foresay::app {
namespace {

constexpr int kDone = 0;
constexpr int kError = 1;  // the world is wrong
constexpr int kUsage = 2;  // the command line is wrong

int run(const Options& options) {
    switch (options.command) {
        case Command::chat:
            return run_chat(options);
        case Command::complete:
            return run_complete(options);
        case Command::bench:
            return run_bench(options);
        case Command::perplexity:
            return run_perplexity(options);
        case Command::logits:
            return run_logits(options);
        case Command::tokenize:
            return run_tokenize(options);
        case Command::inspect:
            return run_inspect(options);
        case Command::config_check:
            return run_config_check(options);
        case Command::config_show:
            return run_config_show(options);
        case Command::config_schema:
            return run_config_schema(options);
        case Command::config_reference:
            return run_config_reference(options);
        case Command::completion:
            return run_completion(options);
        case Command::manual:
            return run_manual(options);
        case Command::plugin_list:
            return run_plugin_list(options);
        case Command::plugin_show:
            return run_plugin_show(options);
        case Command::session_list:
            return run_session_list(options);
        case Command::session_show:
            return run_session_show(options);
        case Command::session_replay:
            return run_session_replay(options);
        case Command::session_delete:
            return run_session_delete(options);
        case Command::repl_reference:
            return run_repl_reference(options);
    }
    return kUsage;
}

int guarded(int argc, const char* const* argv) {
    try {
        const ParsedOptions parsed = parse_options(argc, argv);
        if (parsed.text) {
            print(*parsed.text);
            return kDone;
        }
        start_log();
        return run(parsed.options);
    } catch (const OutputClosed&) {
        return kDone;  // the reader has all it wanted
    } catch (const UsageError& problem) {
        complain(std::string("foresay: ") + problem.what());
        return kUsage;
    } catch (const core::ConfigError& problem) {
        complain(problem.what());  // begins with file:line:column, as editors like it
        return kError;
    } catch (const Error& problem) {
        complain(std::string("foresay: ") + problem.what());
        return interrupted() ? kCancelled : kError;
    } catch (const std::bad_alloc&) {
        say("foresay: out of memory; use a smaller model or a smaller --context\n");
        return kError;
    } catch (const std::exception& problem) {
        complain(std::string("foresay: ") + problem.what());
        return kError;
    }
}

}  // namespace
}  // namespace foresay::app

int main(int argc, char** argv) {
    foresay::app::catch_signals();
    return foresay::app::guarded(argc, argv);
}
