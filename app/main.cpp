// foresay: the program. Parses the command line, runs the command, and turns exceptions into exit statuses.
#include <exception>
#include <new>
#include <string>

#include "app/command_line/parser.h"
#include "app/hosts.h"
#include "app/interrupt.h"
#include "app/leave.h"
#include "app/log.h"
#include "app/output.h"
#include "base/error.h"
#include "core/config/diagnostic.h"

namespace foresay::app {
namespace {

constexpr int kDone = 0;
constexpr int kError = 1;
constexpr int kUsage = 2;  // the command line is invalid

int guarded(int argc, const char* const* argv) {
    try {
        const ParsedCommand parsed = parse_command_line(argc, argv);
        if (parsed.text) {
            print(*parsed.text);
            return kDone;
        }
        start_log();
        const HostsOfCommand hosts(parsed);
        return hosts.status ? *hosts.status : parsed.command->run();
    } catch (const OutputClosed&) {
        return kDone;  // the reader has closed the pipe: `| head`
    } catch (const UsageError& problem) {
        complain(std::string("foresay: ") + problem.what());
        return kUsage;
    } catch (const core::ConfigError& problem) {
        complain(problem.text("foresay: "));
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
    const int status = foresay::app::guarded(argc, argv);
    foresay::app::end_if_asked();
    foresay::app::leave_if_a_device_hangs(status);
    return status;
}
