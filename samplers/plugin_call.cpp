#include "samplers/plugin_call.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <tuple>

namespace foresay::samplers {
namespace {

constexpr std::size_t kLongestText = 4096;

constexpr const char* kWhere[kPluginFunctions] = {
    "while it was loaded", "in create()",     "in destroy()",     "in state_create()", "in state_destroy()",
    "in state_begin()",    "in state_copy()", "in accept()",      "in process()",      "in test()",
    "in mask()",           "in forced()",     "outside any call",
};

thread_local const PluginSite* of_this_thread = nullptr;
thread_local bool prepared = false;

std::atomic<const PluginSite*> latest{nullptr};
std::atomic<std::uint64_t> begun{0};
std::atomic<void (*)()> prepare_thread{nullptr};
static_assert(std::atomic<const PluginSite*>::is_always_lock_free, "read in signal handlers");

struct Sites {
    std::string who, sampler, name;
    std::array<PluginSite, kPluginFunctions> each;
};

}  // namespace

const PluginSite* plugin_sites(std::string_view plugin, std::string_view sampler, std::atomic<std::uint32_t>* running) {
    using Key = std::tuple<std::string, std::string, std::atomic<std::uint32_t>*>;
    static std::mutex mutex;
    static auto& known = *new std::map<Key, Sites>();  // never destroyed: a plugin may crash while the program ends
    const std::lock_guard lock(mutex);
    const auto [place, added] = known.try_emplace(Key(plugin, sampler, running));
    Sites& sites = place->second;
    if (!added) return sites.each.data();
    const std::string path = one_line(plugin, kLongestText);
    sites.sampler = one_line(sampler, kLongestText);
    sites.who = (sampler.empty() ? "" : "sampler '" + sites.sampler + "' of ") + std::string("plugin '") + path + "'";
    sites.name = path.substr(path.rfind('/') + 1);
    if (sites.name.ends_with(".so")) sites.name.resize(sites.name.size() - 3);
    for (std::size_t i = 0; i < sites.each.size(); ++i) {
        sites.each[i] = {sites.who.c_str(), kWhere[i], sites.sampler.c_str(), sites.name.c_str(), running};
    }
    return sites.each.data();
}

PluginCall::PluginCall(const PluginSite* sites, PluginFunction function) noexcept
    : site_(sites + static_cast<int>(function)), outer_(of_this_thread) {
    if (void (*const prepare)() = prepared ? nullptr : prepare_thread.load()) {
        prepared = true;
        prepare();
    }
    if (site_->running != nullptr) site_->running->fetch_add(1, std::memory_order_relaxed);
    of_this_thread = site_;
    begun.fetch_add(1, std::memory_order_relaxed);
    latest.store(site_, std::memory_order_relaxed);
}

PluginCall::~PluginCall() {
    // Another thread's call may have begun since, and stays.
    const PluginSite* own = site_;
    latest.compare_exchange_strong(own, nullptr, std::memory_order_relaxed);
    of_this_thread = outer_;
    if (site_->running != nullptr) site_->running->fetch_sub(1, std::memory_order_relaxed);
}

const PluginSite* plugin_call_of_this_thread() noexcept { return of_this_thread; }

LatestCall latest_plugin_call() noexcept {
    return {latest.load(std::memory_order_relaxed), begun.load(std::memory_order_relaxed)};
}

void before_first_plugin_call(void (*prepare)()) noexcept { prepare_thread = prepare; }

std::string one_line(std::string_view text, std::size_t most) {
    std::string out(text.substr(0, most));
    for (std::size_t i = 0; i < out.size(); ++i) {
        const auto byte = static_cast<unsigned char>(out[i]);
        if (byte < 0x20 || byte == 0x7f) out[i] = '?';
        // U+0080 to U+009F in UTF-8: some terminals treat them as control characters, too.
        const bool c1 = byte == 0xc2 && i + 1 < out.size() && static_cast<unsigned char>(out[i + 1]) < 0xa0;
        if (c1) out.replace(i, 2, "?");
    }
    return out;
}

}  // namespace foresay::samplers
