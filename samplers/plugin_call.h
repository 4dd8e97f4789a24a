// samplers/plugin_call.h: which plugin's code is running, for crash handlers and for whatever else ends the program.
//
// Every call into a plugin is bracketed by a PluginCall that names its PluginSite: the plugin, the sampler and the
// function. Sites live until the process ends, so a handler may read one at any time.
//
// Threads:  any. The functions marked [signal] are safe in signal handlers.
// Cost:     a call costs a few relaxed atomic operations and no allocation.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace foresay::samplers {

enum class PluginFunction : std::uint8_t {
    load,  // the library is being loaded
    create,
    destroy,
    state_create,
    state_destroy,
    state_begin,
    state_copy,
    accept,
    process,
    test,
    mask,
    forced,
    none,  // its code runs without a call: a thread of its own
};
inline constexpr int kPluginFunctions = 13;

struct PluginSite {
    const char* who = "";    // "sampler 'x' of plugin '/p/y.so'"
    const char* where = "";  // "in process()"
    const char* sampler = "";
    const char* name = "";  // of the plugin: its file's name without .so
    // Counts the calls into the plugin that are in progress, for the crash marker; null: not counted.
    std::atomic<std::uint32_t>* running = nullptr;
};

// The sites of one sampler, one for each PluginFunction, or those of the library itself while `sampler` is empty.
// `plugin` is its path. Equal arguments give the same sites.
const PluginSite* plugin_sites(std::string_view plugin, std::string_view sampler, std::atomic<std::uint32_t>* running);

// A call into a plugin, while it lasts.
class PluginCall {
public:
    PluginCall(const PluginSite* sites, PluginFunction function) noexcept;
    ~PluginCall();
    PluginCall(const PluginCall&) = delete;
    PluginCall& operator=(const PluginCall&) = delete;

private:
    const PluginSite* site_;
    const PluginSite* outer_;
};

// [signal] The call in progress on this thread; null when there is none.
const PluginSite* plugin_call_of_this_thread() noexcept;

struct LatestCall {
    const PluginSite* site = nullptr;  // null: no call is in progress
    std::uint64_t number = 0;          // of calls begun so far: the same number later is the same call
};
// [signal] The call that began last on any thread, if it is in progress.
LatestCall latest_plugin_call() noexcept;

// `prepare` is called on each thread before its first call into a plugin, from then on. It must not throw.
void before_first_plugin_call(void (*prepare)()) noexcept;

// `text` as one line: at most `most` bytes, control characters replaced by '?'. What a plugin says goes through it, so
// that it cannot control a terminal.
std::string one_line(std::string_view text, std::size_t most);

}  // namespace foresay::samplers
