#include "server/grammars.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace foresay::server {

void Grammars::set(samplers::ChainSpec& spec, const std::string& language, const std::string& text) {
    // Before all others: a plugin may look at the likeliest tokens alone, and those that the grammar allows need not be
    // among them.
    if (std::none_of(spec.begin(), spec.end(), [](const auto& stage) { return stage.name == "grammar"; }))
        spec.insert(spec.begin(), samplers::StageSpec{.name = "grammar", .parameters = {}, .factory = nullptr});
    const auto stage = std::ranges::find(spec, "grammar", &samplers::StageSpec::name);
    // A configured grammar's options are not this one's: each has its default, the work that it may take, too.
    stage->parameters = {{"language", language}, {"text", text}};
}

std::string Grammars::refusal(const std::string& language, const std::string& text) {
    if (text.size() > kMostBytes)
        return "the grammar has " + std::to_string(text.size()) + " bytes; " + std::to_string(kMostBytes) +
               " are allowed";
    const std::string key = language + ":" + text;
    {
        const std::lock_guard lock(mutex_);
        const auto known = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.key == key; });
        if (known != entries_.end()) {
            entries_.splice(entries_.begin(), entries_, known);
            return entries_.front().refusal;
        }
    }
    Entry entry{key, {}, nullptr};
    try {
        samplers::ChainSpec spec;
        set(spec, language, text);
        entry.chain = engine_.make_chain(spec);
    } catch (const Error& problem) {
        entry.refusal = problem.what();
        constexpr std::string_view kStage = "grammar: ";
        if (const std::size_t at = entry.refusal.find(kStage); at != std::string::npos)
            entry.refusal.erase(0, at + kStage.size());
    }
    std::string refusal = entry.refusal;
    const std::lock_guard lock(mutex_);
    entries_.push_front(std::move(entry));
    if (entries_.size() > kKept) entries_.pop_back();
    return refusal;
}

}  // namespace foresay::server
