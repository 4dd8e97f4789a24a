// foresay bench: measurements, one file each in app/bench.
#include "app/bench/bench.h"

#include "app/commands/commands.h"
#include "app/interrupt.h"
#include "base/error.h"

namespace foresay::app {

int run_bench(const Options& options) {
    struct Entry {
        std::string_view name;
        void (*run)(const Options&);
    };
    constexpr Entry entries[] = {{"decode", bench_decode},   {"verify", bench_verify},
                                 {"prefill", bench_prefill}, {"speculation", bench_speculation},
                                 {"kernels", bench_kernels}, {"replay", bench_replay},
                                 {"repl", bench_repl},       {"inflation", bench_inflation}};
    for (const Entry& entry : entries) {
        if (entry.name != options.bench) continue;
        try {
            entry.run(options);
        } catch (const Cancelled&) {
            return kCancelled;
        }
        return 0;
    }
    throw UsageError("there is no benchmark '" + options.bench + "'");
}

}  // namespace foresay::app
