// The host side of sdk/sampler.h. make_plugin_factory() reads and checks a sampler's description; its factory makes an
// Instance, which owns the plugin's handle and the host struct that the plugin calls back. The stage and its states
// share the Instance and keep the library loaded. Every call into a plugin goes through call(), which names it for
// handlers of crashes; its status and what it reported on this thread become the text that StageState and Stage return.
#include "samplers/plugin_stage.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>

#include "base/error.h"
#include "kernels/noise.h"
#include "samplers/plugin_call.h"

namespace foresay::samplers {
namespace {

constexpr std::uint32_t kMaxParameters = 256;
constexpr std::size_t kMaxReport = 1000;  // bytes of a plugin's message that are kept

// What the call in progress on this thread has reported.
thread_local std::string reported;

std::string_view view(foresay_text text) {
    return text.data == nullptr ? std::string_view() : std::string_view(text.data, text.size);
}

// The host struct of one instance, and the vocabulary that it serves.
class HostServices {
public:
    HostServices(const Vocabulary& vocabulary, const std::string& name) : vocabulary_(vocabulary), name_(name) {
        host_.struct_size = sizeof host_;
        host_.self = this;
        host_.vocabulary_size = [](void* self) { return at(self).vocabulary_.size(); };
        host_.token_text = [](void* self, std::int32_t id) -> foresay_text {
            const Vocabulary& vocabulary = at(self).vocabulary_;
            if (id < 0 || id >= vocabulary.size()) return {"", 0};
            const std::string_view text = vocabulary.text(id);
            return {text.data(), text.size()};
        };
        host_.find_token = [](void* self, foresay_text text) {
            return at(self).vocabulary_.find({text.data, static_cast<std::size_t>(text.size)});
        };
        host_.log = [](void* self, std::uint32_t level, foresay_text text) {
            std::fprintf(stderr, "foresay: %ssampler '%s': %s\n", level == FORESAY_LOG_WARNING ? "warning: " : "",
                         at(self).name_.c_str(), one_line(view(text), kMaxReport).c_str());
        };
        host_.report = [](void*, foresay_text text) { reported = one_line(view(text), kMaxReport); };
    }
    HostServices(const HostServices&) = delete;
    HostServices& operator=(const HostServices&) = delete;
    const foresay_host* get() const { return &host_; }

private:
    static HostServices& at(void* self) { return *static_cast<HostServices*>(self); }
    const Vocabulary& vocabulary_;
    std::string name_;
    foresay_host host_{};
};

// Calls into a plugin: an empty text, or why the call failed, valid until the next one on this thread. A plugin must
// not throw; when it does, what it throws is caught here as long as no function on its way is noexcept.
template <typename Function>
std::string_view call(const PluginSite* sites, PluginFunction which, Function&& function) {
    reported.clear();
    const PluginCall in_progress(sites, which);
    try {
        if (function() == FORESAY_OK) return {};
        if (reported.empty()) reported = "it failed and gave no reason";
    } catch (const std::exception& error) {
        reported = "it threw an exception: " + one_line(error.what(), kMaxReport);
    } catch (...) {
        reported = "it threw an exception";
    }
    return reported;
}

// The same for functions that cannot fail. What they throw is only logged.
template <typename Function>
void call_to_destroy(const PluginSite* sites, PluginFunction which, Function&& function) {
    const std::string_view wrong = call(sites, which, [&] {
        function();
        return FORESAY_OK;
    });
    if (wrong.empty()) return;
    const PluginSite& site = sites[static_cast<int>(which)];
    std::fprintf(stderr, "foresay: warning: sampler '%s' %s: %s\n", site.sampler, site.where, reported.c_str());
}

// An instance and what it needs. The stage and its states share it, so they may be destroyed in any order.
struct Instance {
    const foresay_sampler& sampler;
    std::shared_ptr<const void> keep_alive;
    const PluginSite* sites;
    HostServices host;
    void* handle = nullptr;

    Instance(const foresay_sampler& s, std::shared_ptr<const void> keep, const PluginSite* own_sites,
             const Vocabulary& vocabulary)
        : sampler(s), keep_alive(std::move(keep)), sites(own_sites), host(vocabulary, s.name) {}
    Instance(const Instance&) = delete;
    Instance& operator=(const Instance&) = delete;
    ~Instance() {
        if (handle != nullptr) call_to_destroy(sites, PluginFunction::destroy, [&] { sampler.destroy(handle); });
    }
};

class PluginState : public StageState {
public:
    explicit PluginState(std::shared_ptr<Instance> instance) : instance_(std::move(instance)) {
        const std::string_view wrong = call(instance_->sites, PluginFunction::state_create, [&] {
            return instance_->sampler.state_create(instance_->handle, &state_);
        });
        if (!wrong.empty())
            throw Error(std::string(instance_->sampler.name) + ": its state cannot be created: " + std::string(wrong));
    }
    ~PluginState() override {
        if (state_ == nullptr) return;
        call_to_destroy(instance_->sites, PluginFunction::state_destroy,
                        [&] { instance_->sampler.state_destroy(instance_->handle, state_); });
    }
    std::string_view reset() override {
        return call(instance_->sites, PluginFunction::state_reset,
                    [&] { return instance_->sampler.state_reset(instance_->handle, state_); });
    }
    std::string_view copy(const StageState& other) override {
        const void* from = static_cast<const PluginState&>(other).state_;
        return call(instance_->sites, PluginFunction::state_copy,
                    [&] { return instance_->sampler.state_copy(instance_->handle, state_, from); });
    }
    std::string_view accept(std::span<const std::int32_t> tokens, const float* log_probability) override {
        return call(instance_->sites, PluginFunction::accept, [&] {
            return instance_->sampler.accept(instance_->handle, state_, tokens.data(), tokens.size(), log_probability);
        });
    }
    const void* get() const { return state_; }

private:
    std::shared_ptr<Instance> instance_;
    void* state_ = nullptr;
};

// The C context that the plugin sees, followed by what its callbacks need.
struct CallContext : foresay_context {
    const StageContext* own = nullptr;
};

class PluginStage : public Stage {
public:
    PluginStage(std::shared_ptr<Instance> instance, const StageTraits& traits)
        : instance_(std::move(instance)), traits_(traits) {}
    std::unique_ptr<StageState> make_state() const override {
        if (traits_.memory == StageMemory::stateless) return nullptr;
        return std::make_unique<PluginState>(instance_);
    }
    bool whole_vocabulary() const override { return traits_.whole_vocabulary; }

    std::string_view process(const StageState* state, const StageContext& context,
                             kernels::Candidates& candidates) const override {
        CallContext seen{};
        seen.struct_size = sizeof(foresay_context);
        seen.phase = context.phase == Phase::decide ? FORESAY_DECIDE : FORESAY_PROPOSE;
        seen.index = context.key.index;
        seen.history = context.history.data();
        seen.seed = context.key.seed;
        seen.random = [](const foresay_context* c, std::uint32_t counter) {
            const StageContext& own = *static_cast<const CallContext*>(c)->own;
            return kernels::stage_random(own.key, own.stage, counter);
        };
        seen.own = &context;
        foresay_candidates list{sizeof(foresay_candidates), static_cast<std::uint32_t>(candidates.count),
                                candidates.ids, candidates.logits};
        const void* own_state = state != nullptr ? static_cast<const PluginState*>(state)->get() : nullptr;
        const std::string_view wrong = call(instance_->sites, PluginFunction::process, [&] {
            return instance_->sampler.process(instance_->handle, own_state, &seen, &list);
        });
        if (!wrong.empty()) return wrong;
        if (list.count > static_cast<std::uint32_t>(candidates.count)) return "it returned more candidates than it got";
        candidates.count = static_cast<std::int32_t>(list.count);
        return {};
    }

private:
    std::shared_ptr<Instance> instance_;
    StageTraits traits_;
};

// --------------------------------------------------------------------------------------------------- descriptions

[[noreturn]] void broken(const std::string& origin, const std::string& what) {
    throw Error(origin + ": the plugin breaks the sampler contract: " + what +
                "; ask its author for a corrected build");
}

std::string checked_name(const char* text, const std::string& origin, const std::string& what) {
    if (text == nullptr) broken(origin, what + " is missing");
    const std::size_t length = strnlen(text, 65);
    const bool legal = length >= 1 && length <= 64 && std::all_of(text, text + length, [](char c) {
                           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
                       });
    if (!legal) broken(origin, what + " is not of 1 to 64 lower-case letters, digits and underscores");
    return {text, length};
}

std::string limited(const char* text) {
    return text == nullptr ? std::string() : one_line({text, strnlen(text, 500)}, 500);
}

ParameterValue from_value(const foresay_value& value) {
    switch (value.type) {
        case FORESAY_BOOLEAN:
            return value.integer != 0;
        case FORESAY_INTEGER:
            return value.integer;
        case FORESAY_REAL:
            return value.real;
        case FORESAY_TEXT:
        case FORESAY_CHOICE:
            return std::string(value.text.data, static_cast<std::size_t>(value.text.size));
        case FORESAY_INTEGER_LIST:
            return std::vector<std::int64_t>(value.integers, value.integers + value.count);
        case FORESAY_REAL_LIST:
            return std::vector<double>(value.reals, value.reals + value.count);
        default:
            break;
    }
    std::vector<std::string> texts;
    for (std::uint32_t i = 0; i < value.count; ++i) {
        texts.emplace_back(value.texts[i].data, static_cast<std::size_t>(value.texts[i].size));
    }
    return texts;
}

ParameterType parameter_type(std::uint32_t type) {
    switch (type) {
        case FORESAY_BOOLEAN:
            return ParameterType::boolean;
        case FORESAY_INTEGER:
            return ParameterType::integer;
        case FORESAY_REAL:
            return ParameterType::real;
        case FORESAY_TEXT:
            return ParameterType::text;
        case FORESAY_CHOICE:
            return ParameterType::choice;
        case FORESAY_TEXT_LIST:
            return ParameterType::text_list;
        case FORESAY_INTEGER_LIST:
            return ParameterType::integer_list;
        default:
            return ParameterType::real_list;
    }
}

ParameterSchema read_parameter(const foresay_parameter& p, const std::string& origin) {
    ParameterSchema schema;
    schema.name = checked_name(p.name, origin, "a parameter's name");
    const std::string what = "parameter '" + schema.name + "'";
    if (p.struct_size < sizeof p) broken(origin, what + " has a wrong struct_size");
    if (p.type < FORESAY_BOOLEAN || p.type > FORESAY_REAL_LIST) broken(origin, what + " has an unknown type");
    if (p.fallback.type != p.type) broken(origin, what + " has a default of another type");
    if (p.fallback.count > 100000 || p.fallback.text.size > 1000000) broken(origin, what + " has a huge default");
    schema.type = parameter_type(p.type);
    schema.doc = limited(p.doc);
    schema.fallback = from_value(p.fallback);
    if (std::isnan(p.min) || std::isnan(p.max)) broken(origin, what + " has a range that is not of numbers");
    if (p.min > p.max) broken(origin, what + " has a minimum above its maximum");
    if (p.min < p.max) {
        schema.min = p.min;
        schema.max = p.max;
    }
    if (p.type == FORESAY_CHOICE) {
        if (p.choice_count == 0 || p.choice_count > 1000 || p.choices == nullptr)
            broken(origin, what + " has no choices");
        for (std::uint32_t i = 0; i < p.choice_count; ++i) schema.choices.push_back(limited(p.choices[i]));
    }
    try {
        check_range("the default of " + what, schema, schema.fallback);
    } catch (const Error& problem) {
        broken(origin, problem.what());
    }
    return schema;
}

StageDescription read_description(const foresay_sampler& s, const std::string& origin) {
    StageDescription description;
    if (s.struct_size < sizeof s) broken(origin, "a sampler has a wrong struct_size");
    description.name = checked_name(s.name, origin, "a sampler's name");
    description.doc = limited(s.doc);
    if (s.create == nullptr || s.destroy == nullptr || s.process == nullptr) {
        broken(origin, "create, destroy or process is missing");
    }
    if (s.memory > FORESAY_FEEDBACK) broken(origin, "an unknown kind of memory");
    const bool stateful = s.memory != FORESAY_STATELESS;
    if (stateful && (!s.state_create || !s.state_destroy || !s.state_reset || !s.accept)) {
        broken(origin, "a stateful sampler without its state functions");
    }
    if ((s.flags & ~(FORESAY_RANDOMISED | FORESAY_MASKS_ONLY | FORESAY_WHOLE_VOCABULARY)) != 0) {
        broken(origin, "unknown flags");
    }
    description.traits.memory = static_cast<StageMemory>(s.memory);
    description.traits.randomised = (s.flags & FORESAY_RANDOMISED) != 0;
    description.traits.masks_only = (s.flags & FORESAY_MASKS_ONLY) != 0;
    description.traits.whole_vocabulary = (s.flags & FORESAY_WHOLE_VOCABULARY) != 0;
    description.traits.clonable = !stateful || s.state_copy != nullptr;
    if (s.parameter_count > kMaxParameters || (s.parameter_count > 0 && s.parameters == nullptr)) {
        broken(origin, "its parameter list is missing or too long");
    }
    // A library compiled against a later minor version has longer entries: the first one's size is the stride.
    const char* at = reinterpret_cast<const char*>(s.parameters);
    for (std::uint32_t i = 0; i < s.parameter_count; ++i, at += s.parameters->struct_size) {
        ParameterSchema schema = read_parameter(*reinterpret_cast<const foresay_parameter*>(at), origin);
        const bool twice = std::any_of(description.parameters.begin(), description.parameters.end(),
                                       [&](const ParameterSchema& other) { return other.name == schema.name; });
        if (twice) broken(origin, "two parameters are called '" + schema.name + "'");
        description.parameters.push_back(std::move(schema));
    }
    return description;
}

// Parameter values in the form of the C interface, and the texts that they point to.
class ValueTable {
public:
    explicit ValueTable(const StageDescription& description, std::span<const ParameterValue> parameters)
        : texts_(parameters.size()), values_(parameters.size()) {
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            std::visit([&](const auto& value) { put(values_[i], texts_[i], value); }, parameters[i]);
            values_[i].type = static_cast<std::uint32_t>(description.parameters[i].type) + 1;
        }
    }
    const foresay_value* data() const { return values_.data(); }

private:
    using Texts = std::vector<foresay_text>;
    static void put(foresay_value& to, Texts&, bool value) { to.integer = value ? 1 : 0; }
    static void put(foresay_value& to, Texts&, std::int64_t value) { to.integer = value; }
    static void put(foresay_value& to, Texts&, double value) { to.real = value; }
    static void put(foresay_value& to, Texts&, const std::string& value) { to.text = {value.data(), value.size()}; }
    static void put(foresay_value& to, Texts& texts, const std::vector<std::string>& value) {
        for (const std::string& text : value) texts.push_back({text.data(), text.size()});
        to.texts = texts.data();
        to.count = static_cast<std::uint32_t>(texts.size());
    }
    static void put(foresay_value& to, Texts&, const std::vector<std::int64_t>& value) {
        to.integers = value.data();
        to.count = static_cast<std::uint32_t>(value.size());
    }
    static void put(foresay_value& to, Texts&, const std::vector<double>& value) {
        to.reals = value.data();
        to.count = static_cast<std::uint32_t>(value.size());
    }
    std::vector<Texts> texts_;
    std::vector<foresay_value> values_;
};

static_assert(static_cast<std::uint32_t>(ParameterType::boolean) + 1 == FORESAY_BOOLEAN &&
              static_cast<std::uint32_t>(ParameterType::choice) + 1 == FORESAY_CHOICE &&
              static_cast<std::uint32_t>(ParameterType::text_list) + 1 == FORESAY_TEXT_LIST &&
              static_cast<std::uint32_t>(ParameterType::real_list) + 1 == FORESAY_REAL_LIST);

class PluginFactory : public StageFactory {
public:
    PluginFactory(const foresay_sampler& sampler, std::shared_ptr<const void> keep_alive, const std::string& origin,
                  std::atomic<std::uint32_t>* running)
        : sampler_(sampler),
          keep_alive_(std::move(keep_alive)),
          description_(read_description(sampler, origin)),
          sites_(plugin_sites(origin, description_.name, running)) {}
    const StageDescription& description() const override { return description_; }
    std::unique_ptr<Stage> create(std::span<const ParameterValue> parameters,
                                  const Vocabulary& vocabulary) const override {
        auto instance = std::make_shared<Instance>(sampler_, keep_alive_, sites_, vocabulary);
        const ValueTable values(description_, parameters);
        const std::string_view wrong = call(sites_, PluginFunction::create, [&] {
            return sampler_.create(instance->host.get(), values.data(), &instance->handle);
        });
        if (!wrong.empty()) throw Error(description_.name + ": " + std::string(wrong));
        return std::make_unique<PluginStage>(std::move(instance), description_.traits);
    }

private:
    const foresay_sampler& sampler_;
    std::shared_ptr<const void> keep_alive_;
    StageDescription description_;
    const PluginSite* sites_;
};

}  // namespace

std::shared_ptr<const StageFactory> make_plugin_factory(const foresay_sampler* sampler,
                                                        std::shared_ptr<const void> keep_alive,
                                                        const std::string& origin,
                                                        std::atomic<std::uint32_t>* running) {
    if (sampler == nullptr) broken(origin, "an empty entry in its list of samplers");
    return std::make_shared<PluginFactory>(*sampler, std::move(keep_alive), origin, running);
}

}  // namespace foresay::samplers
