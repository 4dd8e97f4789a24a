// The host side of sdk/sampler.h. A factory has a sampler's description (plugin_description.h) and makes an Instance,
// which owns the plugin's handle and the host struct that the plugin calls back. The stage and its states share the
// Instance and keep the library loaded. Every call into a plugin goes through call(), which names it for handlers of
// crashes; its status and what it reported on this thread become the text that StageState and Stage return.
#include "samplers/plugin_stage.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "kernels/math.h"
#include "kernels/noise.h"
#include "kernels/sampling.h"
#include "kernels/sampling_steps.h"
#include "samplers/float_state.h"
#include "samplers/parameter_file.h"
#include "samplers/plugin_call.h"
#include "samplers/plugin_description.h"

namespace foresay::samplers {
namespace {

constexpr std::size_t kMaxReport = 1000;  // bytes of a plugin's message that are kept

// What the call in progress on this thread has reported.
thread_local std::string reported;

std::string_view view(foresay_text text) {
    return text.data == nullptr ? std::string_view() : std::string_view(text.data, text.size);
}

const foresay_math kMath = {sizeof(foresay_math), 0, [](float x) { return kernels::math::exp(x); },
                            [](float x) { return kernels::math::log(x); },
                            [](const float* logits, std::uint32_t count) {
                                std::uint64_t sum = 0;
                                for (std::uint32_t i = 0; i < count; ++i)
                                    sum += kernels::fixed_weight(logits[i], logits[0]);
                                return logits[0] + kernels::log_of_fixed(sum);
                            }};

foresay_text text_of(std::string_view text) { return {text.data() != nullptr ? text.data() : "", text.size()}; }

bool is_main(PluginFunction which) {
    return which == PluginFunction::create || which == PluginFunction::destroy ||
           which == PluginFunction::state_create || which == PluginFunction::state_destroy;
}

// Calls into a plugin: an empty text, or why the call failed, valid until the next one on this thread. A plugin must
// not throw; when it does, what it throws is caught here as long as no function on its way is noexcept.
template <typename Function>
std::string_view call(const PluginSite* sites, PluginFunction which, Function&& function) {
    std::unique_lock<std::mutex> alone(main_calls(), std::defer_lock);
    if (is_main(which)) alone.lock();
    reported.clear();
    const FloatState before;
    bool failed = true;
    {
        const PluginCall in_progress(sites, which);
        try {
            failed = function() != FORESAY_OK;
            if (failed && reported.empty()) reported = "it failed and gave no reason";
        } catch (const std::exception& error) {
            reported = "it threw an exception: " + one_line(error.what(), kMaxReport);
        } catch (...) {
            reported = "it threw an exception";
        }
    }
    if (FloatState() != before) {
        before.restore();
        reported = std::string("it changed the floating-point state ") + sites[static_cast<int>(which)].where +
                   ", which the text depends on";
        failed = true;
    }
    return failed ? std::string_view(reported) : std::string_view();
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

// The host struct of one instance, and the vocabulary that it serves.
class HostServices {
public:
    HostServices(const Vocabulary& vocabulary, std::string name) : vocabulary_(vocabulary), name_(std::move(name)) {
        for (std::int32_t id = 0; id < vocabulary.size(); ++id) {
            if (vocabulary.ends_text(id)) ends_.push_back(id);
        }
        host_.struct_size = sizeof host_;
        host_.self = this;
        host_.vocabulary_size = [](void* self) { return at(self).vocabulary_.size(); };
        host_.token_kind = [](void* self, std::int32_t id) -> std::uint32_t {
            if (!at(self).known(id)) return FORESAY_TOKEN_UNUSED;
            if (!at(self).vocabulary_.control_text(id).empty()) return FORESAY_TOKEN_CONTROL;
            return at(self).vocabulary_.text(id).empty() ? FORESAY_TOKEN_UNUSED : FORESAY_TOKEN_TEXT;
        };
        host_.token_text = [](void* self, std::int32_t id) {
            return text_of(at(self).known(id) ? at(self).vocabulary_.text(id) : std::string_view());
        };
        host_.control_text = [](void* self, std::int32_t id) {
            return text_of(at(self).known(id) ? at(self).vocabulary_.control_text(id) : std::string_view());
        };
        host_.find_token = [](void* self, foresay_text text) { return at(self).vocabulary_.find(view(text)); };
        host_.find_control = [](void* self, foresay_text text) {
            return at(self).vocabulary_.find_control(view(text));
        };
        host_.end_tokens = [](void* self, const std::int32_t** ids) {
            *ids = at(self).ends_.data();
            return static_cast<std::uint32_t>(at(self).ends_.size());
        };
        host_.tokenize = [](void* self, foresay_text text, std::int32_t* ids, std::uint64_t room) -> std::int64_t {
            const auto tokens = guarded_tokens(at(self).vocabulary_, view(text));
            if (!tokens) return -1;
            std::copy_n(tokens->begin(), std::min<std::uint64_t>(room, tokens->size()), ids);
            return static_cast<std::int64_t>(tokens->size());
        };
        host_.model_name = [](void* self) { return text_of(at(self).vocabulary_.model_name()); };
        host_.log = [](void* self, std::uint32_t level, foresay_text text) {
            std::fprintf(stderr, "foresay: %ssampler '%s': %s\n", level == FORESAY_LOG_WARNING ? "warning: " : "",
                         at(self).name_.c_str(), one_line(view(text), kMaxReport).c_str());
        };
        host_.report = [](void*, foresay_text text) { reported = one_line(view(text), kMaxReport); };
        host_.extension = [](void*, foresay_text name) -> const void* {
            return view(name) == FORESAY_MATH_EXTENSION ? &kMath : nullptr;
        };
    }
    HostServices(const HostServices&) = delete;
    HostServices& operator=(const HostServices&) = delete;
    const foresay_host* get() const { return &host_; }

private:
    static HostServices& at(void* self) { return *static_cast<HostServices*>(self); }
    // No exception may reach the plugin.
    static std::optional<std::vector<std::int32_t>> guarded_tokens(const Vocabulary& vocabulary,
                                                                   std::string_view text) noexcept {
        try {
            return vocabulary.tokens(text);
        } catch (const std::exception&) {
            return std::nullopt;
        }
    }
    bool known(std::int32_t id) const { return id >= 0 && id < vocabulary_.size(); }
    const Vocabulary& vocabulary_;
    std::string name_;
    std::vector<std::int32_t> ends_;
    foresay_host host_{};
};

// An instance and what it needs. The stage and its states share it, so they may be destroyed in any order.
struct Instance {
    const foresay_sampler sampler;
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
        if (wrong.empty()) return;
        state_ = nullptr;  // what a failed call leaves is the sampler's
        throw Error(std::string(instance_->sampler.name) + ": its state cannot be created: " + std::string(wrong));
    }
    ~PluginState() override {
        if (state_ == nullptr) return;
        call_to_destroy(instance_->sites, PluginFunction::state_destroy,
                        [&] { instance_->sampler.state_destroy(instance_->handle, state_); });
    }
    std::string_view begin(std::span<const std::int32_t> history, std::size_t answer) override {
        return call(instance_->sites, PluginFunction::state_begin, [&] {
            return instance_->sampler.state_begin(instance_->handle, state_, history.data(), history.size(), answer);
        });
    }
    std::string_view copy(const StageState& other) override {
        const void* from = static_cast<const PluginState&>(other).state_;
        return call(instance_->sites, PluginFunction::state_copy,
                    [&] { return instance_->sampler.state_copy(instance_->handle, state_, from); });
    }
    std::string_view accept(const AcceptedToken& accepted) override {
        const foresay_token token{sizeof token,
                                  accepted.supposed ? FORESAY_SUPPOSED : FORESAY_DRAWN,
                                  accepted.id,
                                  0,
                                  accepted.log_probability,
                                  accepted.received_log_probability};
        return call(instance_->sites, PluginFunction::accept,
                    [&] { return instance_->sampler.accept(instance_->handle, state_, &token); });
    }
    const void* get() const { return state_; }

private:
    std::shared_ptr<Instance> instance_;
    void* state_ = nullptr;
};

class PluginStage : public Stage {
public:
    PluginStage(std::shared_ptr<Instance> instance, const StageTraits& traits)
        : instance_(std::move(instance)), traits_(traits) {}
    StageKind kind() const override {
        const bool remembers_probabilities = traits_.memory == StageMemory::feedback;
        if (instance_->sampler.mask != nullptr && !remembers_probabilities) return StageKind::mask;
        return tests() ? StageKind::test : StageKind::process;
    }
    bool tests() const override {
        return instance_->sampler.test != nullptr && traits_.memory != StageMemory::feedback;
    }
    std::unique_ptr<StageState> make_state() const override {
        if (traits_.memory == StageMemory::stateless) return nullptr;
        return std::make_unique<PluginState>(instance_);
    }
    bool whole_vocabulary() const override { return traits_.whole_vocabulary; }

    std::string_view process(const StageState* state, const StageContext& context,
                             kernels::Candidates& candidates) const override {
        foresay_candidates list{sizeof(foresay_candidates), static_cast<std::uint32_t>(candidates.count),
                                candidates.ids, candidates.logits};
        const std::string_view wrong =
            ask(PluginFunction::process, state, context, [&](void* handle, const void* own, const auto* seen) {
                return instance_->sampler.process(handle, own, seen, &list);
            });
        if (!wrong.empty()) return wrong;
        if (list.count > static_cast<std::uint32_t>(candidates.count)) return "it returned more candidates than it got";
        candidates.count = static_cast<std::int32_t>(list.count);
        return {};
    }
    std::string_view test(const StageState* state, const StageContext& context, std::span<const std::int32_t> ids,
                          std::span<std::uint8_t> keep) const override {
        return ask(PluginFunction::test, state, context, [&](void* handle, const void* own, const auto* seen) {
            return instance_->sampler.test(handle, own, seen, ids.data(), static_cast<std::uint32_t>(ids.size()),
                                           keep.data());
        });
    }
    std::string_view mask(const StageState* state, const StageContext& context,
                          std::span<std::uint32_t> bits) const override {
        return ask(PluginFunction::mask, state, context, [&](void* handle, const void* own, const auto* seen) {
            return instance_->sampler.mask(handle, own, seen, bits.data(), bits.size());
        });
    }
    const foresay_sampler& sampler() const { return instance_->sampler; }
    const void* extension(std::string_view name) const {
        const auto extension = instance_->sampler.extension;
        return extension != nullptr ? extension(text_of(name)) : nullptr;
    }
    std::optional<std::string> self_test() const {
        const auto* test = static_cast<const foresay_self_test*>(extension(FORESAY_SELF_TEST_EXTENSION));
        if (test == nullptr || test->run == nullptr) return std::nullopt;
        return std::string(
            call(instance_->sites, PluginFunction::create, [&] { return test->run(instance_->host.get()); }));
    }

    bool forces() const override { return instance_->sampler.forced != nullptr; }
    std::string_view forced(const StageState* state, const StageContext& context,
                            std::string_view& bytes) const override {
        foresay_text text{"", 0};
        const std::string_view wrong =
            ask(PluginFunction::forced, state, context, [&](void* handle, const void* own, const auto* seen) {
                return instance_->sampler.forced(handle, own, seen, &text);
            });
        bytes = view(text);
        return wrong;
    }

private:
    // function(instance, state, context), as a call into the plugin.
    template <typename Function>
    std::string_view ask(PluginFunction which, const StageState* state, const StageContext& context,
                         Function&& function) const {
        foresay_context seen{};
        seen.struct_size = sizeof seen;
        seen.phase = context.phase == Phase::decide ? FORESAY_DECIDE : FORESAY_PROPOSE;
        seen.index = context.key.index;
        seen.history = context.history.data();
        seen.answer = context.answer;
        seen.seed = context.key.seed;
        seen.branch = context.key.branch;
        seen.random = [](const foresay_context* c, std::uint32_t counter) {
            const StageContext& own = *static_cast<const StageContext*>(c->host);
            return kernels::stage_random(own.key, own.stage, counter);
        };
        seen.host = &context;
        const void* own_state = state != nullptr ? static_cast<const PluginState*>(state)->get() : nullptr;
        return call(instance_->sites, which, [&] { return function(instance_->handle, own_state, &seen); });
    }

    std::shared_ptr<Instance> instance_;
    StageTraits traits_;
};

// Parameter values in the form of the C interface, and the texts that they point to.
class ValueTable {
public:
    explicit ValueTable(const StageDescription& description, std::span<const ParameterValue> parameters)
        : texts_(parameters.size()), contents_(parameters.size()), values_(parameters.size()) {
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            if (description.parameters[i].type == ParameterType::file) {
                put_file(i, std::get<std::string>(parameters[i]),
                         description.name + "." + description.parameters[i].name);
            } else {
                std::visit([&](const auto& value) { put(values_[i], texts_[i], value); }, parameters[i]);
            }
            values_[i].type = static_cast<std::uint32_t>(description.parameters[i].type) + 1;
        }
    }
    const foresay_value* data() const { return values_.data(); }

private:
    using Texts = std::vector<foresay_text>;
    void put_file(std::size_t i, const std::string& path, const std::string& key) {
        if (path.empty()) return;
        contents_[i] = read_parameter_file(path, key);
        texts_[i].push_back({path.data(), path.size()});
        values_[i].text = {contents_[i].data(), contents_[i].size()};
        values_[i].texts = texts_[i].data();
        values_[i].count = 1;
    }
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
    std::vector<std::string> contents_;  // of files
    std::vector<foresay_value> values_;
};

static_assert(static_cast<std::uint32_t>(ParameterType::boolean) + 1 == FORESAY_BOOLEAN &&
              static_cast<std::uint32_t>(ParameterType::choice) + 1 == FORESAY_CHOICE &&
              static_cast<std::uint32_t>(ParameterType::text_list) + 1 == FORESAY_TEXT_LIST &&
              static_cast<std::uint32_t>(ParameterType::real_list) + 1 == FORESAY_REAL_LIST &&
              static_cast<std::uint32_t>(ParameterType::file) + 1 == FORESAY_FILE);

class PluginFactory : public StageFactory {
public:
    PluginFactory(const foresay_sampler* sampler, std::shared_ptr<const void> keep_alive, const std::string& origin,
                  std::atomic<std::uint32_t>* running)
        : sampler_(known_part(sampler, origin)),
          keep_alive_(std::move(keep_alive)),
          description_(read_description(sampler_, origin)),
          sites_(plugin_sites(origin, description_.name, running)) {}
    const StageDescription& description() const override { return description_; }
    std::unique_ptr<Stage> create(std::span<const ParameterValue> parameters,
                                  const Vocabulary& vocabulary) const override {
        auto instance = std::make_shared<Instance>(sampler_, keep_alive_, sites_, vocabulary);
        const ValueTable values(description_, parameters);
        const std::string_view wrong = call(sites_, PluginFunction::create, [&] {
            return sampler_.create(instance->host.get(), values.data(), &instance->handle);
        });
        if (!wrong.empty()) {
            instance->handle = nullptr;  // what a failed call leaves is the sampler's
            throw Error(description_.name + ": " + std::string(wrong));
        }
        return std::make_unique<PluginStage>(std::move(instance), description_.traits);
    }

private:
    foresay_sampler sampler_;
    std::shared_ptr<const void> keep_alive_;
    StageDescription description_;
    const PluginSite* sites_;
};

}  // namespace

std::mutex& main_calls() {
    static std::mutex& mutex = *new std::mutex();  // stages may outlive statics
    return mutex;
}

bool has_process(const Stage& stage) {
    const auto* plugin = dynamic_cast<const PluginStage*>(&stage);
    return plugin != nullptr ? plugin->sampler().process != nullptr : stage.kind() == StageKind::process;
}

kernels::Candidates apply_step(const Stage& stage, const StageState* state, const StageContext& context,
                               const kernels::Candidates& candidates, std::int32_t vocabulary) {
    static thread_local kernels::SamplingScratch scratch;
    std::vector<kernels::TokenCount> counts;
    kernels::SamplingStep step = stage.step(state, counts);
    step.xtc.stream = context.stage;
    scratch.reserve(vocabulary);
    scratch.start(candidates);
    scratch.apply(step, context.key);
    return scratch.list();
}

std::optional<std::string> run_self_test(const Stage& stage) {
    const auto* plugin = dynamic_cast<const PluginStage*>(&stage);
    return plugin != nullptr ? plugin->self_test() : std::nullopt;
}

bool offers_extension(const Stage& stage, std::string_view name) {
    const auto* plugin = dynamic_cast<const PluginStage*>(&stage);
    return plugin != nullptr && plugin->extension(name) != nullptr;
}

std::shared_ptr<const StageFactory> make_plugin_factory(const foresay_sampler* sampler,
                                                        std::shared_ptr<const void> keep_alive,
                                                        const std::string& origin,
                                                        std::atomic<std::uint32_t>* running) {
    return std::make_shared<PluginFactory>(sampler, std::move(keep_alive), origin, running);
}

}  // namespace foresay::samplers
