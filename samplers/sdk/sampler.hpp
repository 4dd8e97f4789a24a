// samplers/sdk/sampler.hpp: the C++17 way to write a sampler. Header-only; wraps sdk/sampler.h.
//
// A sampler is a struct:
//
//     #include "sampler.hpp"
//
//     struct Floor {
//         static constexpr foresay::Info info{"floor", "1.0.0", "Drops candidates far below the best.", "Apache-2.0"};
//         struct Parameters { double distance = 10.0; };
//         static auto parameters() {
//             return foresay::parameters(foresay::real("distance", &Parameters::distance, 0.0, 100.0, "In nats."));
//         }
//         Floor(Parameters p, foresay::Host) : parameters_(p) {}
//         void process(const foresay::Context&, foresay::Mask& candidates) const {
//             const float best = candidates[0].logit;
//             candidates.drop_if([&](auto c) { return c.logit < best - parameters_.distance; });
//         }
//         Parameters parameters_;
//     };
//     FORESAY_EXPORT_SAMPLERS(Floor)
//
// What it declares to the host is deduced from its types:
//   struct State                                    the sampler has state; without it, the sampler is stateless
//   void accept(State&, int32_t token) const        the state depends on the tokens so far
//   void accept(State&, int32_t token, std::optional<float> log_probability) const    ... and on their probabilities
//   State is copy-assignable                        the draft can be shaped, too
//   process([const State&,] const Context&, VIEW&)  VIEW is Mask (drops only) or Candidates (changes logits); their
//                                                   Whole forms see the whole vocabulary instead of the 512 best
//   const RandomContext& in place of Context        uses keyed random numbers
//
// Types cannot show the rest, which the author promises (Purity in sampler.h): process() depends on nothing but its
// arguments and the sampler's parameters. const does not prevent static or mutable variables, the clock, or another
// source of random numbers. With those the text depends on how it is computed, so that speculation changes it. The host
// finds some of it: it makes some calls twice, and a sampler that gives two answers fails.
//
// Errors:   throw std::exception or a class derived from it; the host names the sampler and shows what(). Not from
//           destructors: that ends the program.
// Threads:  process() and accept() are const: one instance serves several states at once.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "sampler.h"

namespace foresay {

struct Info {
    const char* name;
    const char* version;
    const char* doc;
    const char* licence;
};

// What the host offers. Valid as long as the sampler.
class Host {
public:
    explicit Host(const foresay_host* host) : host_(host) {}
    std::int32_t vocabulary_size() const { return host_->vocabulary_size(host_->self); }
    std::string_view token_text(std::int32_t id) const {
        const foresay_text text = host_->token_text(host_->self, id);
        return {text.data, static_cast<std::size_t>(text.size)};
    }
    // -1 when no token has exactly these bytes.
    std::int32_t find_token(std::string_view text) const {
        return host_->find_token(host_->self, {text.data(), text.size()});
    }
    void warn(std::string_view text) const { host_->log(host_->self, FORESAY_LOG_WARNING, {text.data(), text.size()}); }

private:
    const foresay_host* host_;
};

class Context {
public:
    explicit Context(const foresay_context* context) : context_(context) {}
    std::uint64_t index() const { return context_->index; }
    const std::int32_t* history() const { return context_->history; }  // index() tokens
    bool proposing() const { return context_->phase == FORESAY_PROPOSE; }

protected:
    const foresay_context* context_;
};

class RandomContext : public Context {
public:
    using Context::Context;
    // Uniform in [0, 1). The same `counter` gives the same number again.
    double uniform(std::uint32_t counter) const {
        return static_cast<double>(context_->random(context_, counter)) * (1.0 / 4294967296.0);
    }
};

struct Candidate {
    std::int32_t id;
    float logit;
};

// Candidates, best first, that can only be dropped.
class Mask {
public:
    explicit Mask(foresay_candidates* view) : view_(view) {}
    Mask(const Mask&) = delete;
    Mask& operator=(const Mask&) = delete;
    std::size_t size() const { return view_->count; }
    Candidate operator[](std::size_t i) const { return {view_->ids[i], view_->logits[i]}; }
    void truncate(std::size_t count) {
        if (count < view_->count) view_->count = static_cast<std::uint32_t>(count);
    }
    template <typename Predicate>
    void drop_if(Predicate&& predicate) {
        std::uint32_t kept = 0;
        for (std::uint32_t i = 0; i < view_->count; ++i) {
            if (predicate((*this)[i])) continue;
            view_->ids[kept] = view_->ids[i];
            view_->logits[kept++] = view_->logits[i];
        }
        view_->count = kept;
    }

protected:
    foresay_candidates* view_;
};

// Candidates, best first, whose logits may be changed.
class Candidates : public Mask {
public:
    using Mask::Mask;
    float& logit(std::size_t i) { return view_->logits[i]; }
};

class WholeMask : public Mask {
    using Mask::Mask;
};
class WholeCandidates : public Candidates {
    using Candidates::Candidates;
};

// ---------------------------------------------------------------------------------------------------------- parameters

template <typename Owner, typename Type>
struct Parameter {
    const char* name;
    Type Owner::*member;
    std::uint32_t type;
    double min;
    double max;
    std::vector<const char*> choices;
    const char* doc;
};

template <typename Owner>
auto boolean(const char* name, bool Owner::*member, const char* doc) {
    return Parameter<Owner, bool>{name, member, FORESAY_BOOLEAN, 0, 0, {}, doc};
}
template <typename Owner>
auto integer(const char* name, std::int64_t Owner::*member, double min, double max, const char* doc) {
    return Parameter<Owner, std::int64_t>{name, member, FORESAY_INTEGER, min, max, {}, doc};
}
template <typename Owner>
auto real(const char* name, double Owner::*member, double min, double max, const char* doc) {
    return Parameter<Owner, double>{name, member, FORESAY_REAL, min, max, {}, doc};
}
template <typename Owner>
auto text(const char* name, std::string Owner::*member, const char* doc) {
    return Parameter<Owner, std::string>{name, member, FORESAY_TEXT, 0, 0, {}, doc};
}
template <typename Owner>
auto choice(const char* name, std::string Owner::*member, std::vector<const char*> choices, const char* doc) {
    return Parameter<Owner, std::string>{name, member, FORESAY_CHOICE, 0, 0, std::move(choices), doc};
}
template <typename Owner>
auto text_list(const char* name, std::vector<std::string> Owner::*member, const char* doc) {
    return Parameter<Owner, std::vector<std::string>>{name, member, FORESAY_TEXT_LIST, 0, 0, {}, doc};
}
template <typename... P>
auto parameters(P... p) {
    return std::make_tuple(std::move(p)...);
}

// ------------------------------------------------------------------------------------------------------------- adapter

namespace detail {

using Texts = std::deque<std::vector<foresay_text>>;  // keeps addresses as it grows

inline foresay_text view(const std::string& text) { return {text.data(), text.size()}; }

inline void put(foresay_value& value, bool x, Texts&) { value.integer = x ? 1 : 0; }
inline void put(foresay_value& value, std::int64_t x, Texts&) { value.integer = x; }
inline void put(foresay_value& value, double x, Texts&) { value.real = x; }
inline void put(foresay_value& value, const std::string& x, Texts&) { value.text = view(x); }
inline void put(foresay_value& value, const std::vector<std::string>& x, Texts& texts) {
    texts.emplace_back();
    for (const std::string& entry : x) texts.back().push_back(view(entry));
    value.texts = texts.back().data();
    value.count = static_cast<std::uint32_t>(x.size());
}

inline void get(const foresay_value& value, bool& x) { x = value.integer != 0; }
inline void get(const foresay_value& value, std::int64_t& x) { x = value.integer; }
inline void get(const foresay_value& value, double& x) { x = value.real; }
inline void get(const foresay_value& value, std::string& x) {
    x.assign(value.text.data, static_cast<std::size_t>(value.text.size));
}
inline void get(const foresay_value& value, std::vector<std::string>& x) {
    x.clear();
    for (std::uint32_t i = 0; i < value.count; ++i) {
        x.emplace_back(value.texts[i].data, static_cast<std::size_t>(value.texts[i].size));
    }
}

struct NoState {};
struct NoParameters {};

template <typename T, typename = void>
struct StateOf {
    using type = NoState;
};
template <typename T>
struct StateOf<T, std::void_t<typename T::State>> {
    using type = typename T::State;
};
template <typename T, typename = void>
struct ParametersOf {
    using type = NoParameters;
    static auto list() { return std::tuple<>(); }
};
template <typename T>
struct ParametersOf<T, std::void_t<typename T::Parameters>> {
    using type = typename T::Parameters;
    static auto list() { return T::parameters(); }
};

template <typename T, typename State, typename Ctx, typename View, typename = void>
struct CanProcess : std::false_type {};
template <typename T, typename Ctx, typename View>
struct CanProcess<
    T, NoState, Ctx, View,
    std::void_t<decltype(std::declval<const T&>().process(std::declval<const Ctx&>(), std::declval<View&>()))>>
    : std::true_type {};
template <typename T, typename State, typename Ctx, typename View>
struct CanProcess<T, State, Ctx, View,
                  std::void_t<decltype(std::declval<const T&>().process(
                      std::declval<const State&>(), std::declval<const Ctx&>(), std::declval<View&>()))>>
    : std::true_type {};

template <typename T, typename State, typename = void>
struct HasFeedback : std::false_type {};
template <typename T, typename State>
struct HasFeedback<T, State,
                   std::void_t<decltype(std::declval<const T&>().accept(std::declval<State&>(), std::int32_t{},
                                                                        std::declval<std::optional<float>>()))>>
    : std::true_type {};

template <typename T>
struct Adapter {
    using State = typename StateOf<T>::type;
    using Parameters = typename ParametersOf<T>::type;
    static constexpr bool kStateful = !std::is_same_v<State, NoState>;
    static constexpr bool kFeedback = HasFeedback<T, State>::value;

    template <typename View>
    static constexpr bool takes() {
        return CanProcess<T, State, Context, View>::value || CanProcess<T, State, RandomContext, View>::value;
    }
    static constexpr bool kMask = takes<Mask>();
    static constexpr bool kCandidates = !kMask && takes<Candidates>();
    static constexpr bool kWholeMask = !kMask && !kCandidates && takes<WholeMask>();
    static constexpr bool kWhole = !kMask && !kCandidates && !kWholeMask && takes<WholeCandidates>();
    static_assert(kMask || kCandidates || kWholeMask || kWhole,
                  "a sampler needs: void process([const State&,] const Context&, Mask or Candidates&) const");
    using View = std::conditional_t<
        kMask, Mask,
        std::conditional_t<kCandidates, Candidates, std::conditional_t<kWholeMask, WholeMask, WholeCandidates>>>;
    static constexpr bool kRandom = !CanProcess<T, State, Context, View>::value;
    using Ctx = std::conditional_t<kRandom, RandomContext, Context>;

    struct Instance {
        const foresay_host* host;
        T sampler;
        Instance(const foresay_host* h, Parameters p) : host(h), sampler(std::move(p), Host(h)) {}
    };

    // Runs `body` and reports what it throws to the host.
    template <typename Body>
    static std::int32_t guarded(const foresay_host* host, Body&& body) noexcept {
        try {
            body();
            return FORESAY_OK;
        } catch (const std::exception& error) {
            host->report(host->self, {error.what(), std::strlen(error.what())});
        } catch (...) {
            constexpr char kUnknown[] = "an exception that is no std::exception";
            host->report(host->self, {kUnknown, sizeof kUnknown - 1});
        }
        return FORESAY_FAILED;
    }

    static std::int32_t create(const foresay_host* host, const foresay_value* values, void** instance) {
        return guarded(host, [&] {
            Parameters p;
            std::apply([&](const auto&... entry) { (get(*values++, p.*(entry.member)), ...); },
                       ParametersOf<T>::list());
            *instance = new Instance(host, std::move(p));
        });
    }
    static void destroy(void* instance) { delete static_cast<Instance*>(instance); }

    static std::int32_t state_create(void* instance, void** state) {
        return guarded(static_cast<Instance*>(instance)->host, [&] { *state = new State(); });
    }
    static void state_destroy(void*, void* state) { delete static_cast<State*>(state); }
    static std::int32_t state_reset(void* instance, void* state) {
        return guarded(static_cast<Instance*>(instance)->host, [&] {
            State* at = static_cast<State*>(state);
            if constexpr (std::is_move_assignable_v<State>) {
                *at = State();
            } else {
                at->~State();
                new (at) State();
            }
        });
    }
    static std::int32_t state_copy(void* instance, void* to, const void* from) {
        (void)to;
        (void)from;
        return guarded(static_cast<Instance*>(instance)->host, [&] {
            if constexpr (std::is_copy_assignable_v<State>) *static_cast<State*>(to) = *static_cast<const State*>(from);
        });
    }
    static std::int32_t accept(void* instance, void* state, const std::int32_t* tokens, std::uint64_t count,
                               const float* log_probability) {
        (void)state;
        (void)tokens;
        (void)count;
        (void)log_probability;
        const Instance& at = *static_cast<Instance*>(instance);
        return guarded(at.host, [&] {
            if constexpr (kFeedback) {
                const std::optional<float> drawn =
                    log_probability ? std::optional<float>(*log_probability) : std::nullopt;
                for (std::uint64_t i = 0; i < count; ++i)
                    at.sampler.accept(*static_cast<State*>(state), tokens[i], drawn);
            } else if constexpr (kStateful) {
                for (std::uint64_t i = 0; i < count; ++i) at.sampler.accept(*static_cast<State*>(state), tokens[i]);
            }
        });
    }
    static std::int32_t process(void* instance, const void* state, const foresay_context* context,
                                foresay_candidates* candidates) {
        (void)state;
        const Instance& at = *static_cast<Instance*>(instance);
        return guarded(at.host, [&] {
            View view(candidates);
            const Ctx ctx(context);
            if constexpr (kStateful) {
                at.sampler.process(*static_cast<const State*>(state), ctx, view);
            } else {
                at.sampler.process(ctx, view);
            }
        });
    }

    // Descriptions of the parameters. Built when the library is loaded, and kept until it is unloaded.
    struct Table {
        Parameters defaults;
        Texts texts;
        std::deque<std::vector<const char*>> choices;
        std::vector<foresay_parameter> entries;
        Table() {
            std::apply([&](const auto&... entry) { (add(entry), ...); }, ParametersOf<T>::list());
        }
        template <typename Entry>
        void add(const Entry& entry) {
            foresay_parameter p{};
            p.struct_size = sizeof p;
            p.type = entry.type;
            p.name = entry.name;
            p.doc = entry.doc;
            p.fallback.type = entry.type;
            put(p.fallback, defaults.*(entry.member), texts);
            p.min = entry.min;
            p.max = entry.max;
            choices.push_back(entry.choices);
            p.choices = choices.back().data();
            p.choice_count = static_cast<std::uint32_t>(entry.choices.size());
            entries.push_back(p);
        }
    };

    static foresay_sampler describe() {
        static const Table table;
        foresay_sampler s{};
        s.struct_size = sizeof s;
        s.memory = kFeedback ? FORESAY_FEEDBACK : kStateful ? FORESAY_HISTORY : FORESAY_STATELESS;
        s.flags = (kRandom ? FORESAY_RANDOMISED : 0u) | (kMask || kWholeMask ? FORESAY_MASKS_ONLY : 0u) |
                  (kWholeMask || kWhole ? FORESAY_WHOLE_VOCABULARY : 0u);
        s.parameter_count = static_cast<std::uint32_t>(table.entries.size());
        s.name = T::info.name;
        s.version = T::info.version;
        s.doc = T::info.doc;
        s.licence = T::info.licence;
        s.parameters = table.entries.data();
        s.create = create;
        s.destroy = destroy;
        if (kStateful) {
            s.state_create = state_create;
            s.state_destroy = state_destroy;
            s.state_reset = state_reset;
            s.state_copy = std::is_copy_assignable_v<State> ? state_copy : nullptr;
            s.accept = accept;
        }
        s.process = process;
        return s;
    }
    inline static const foresay_sampler sampler = describe();
};

template <typename... T>
struct Samplers {
    inline static const foresay_sampler* const list[] = {&Adapter<T>::sampler...};
};

}  // namespace detail
}  // namespace foresay

// Exports the samplers of a library. Use it once per library, at namespace scope.
#define FORESAY_EXPORT_SAMPLERS(...)                                                                       \
    extern "C" __attribute__((visibility("default"))) const foresay_sampler_library foresay_sampler_entry; \
    extern "C" const foresay_sampler_library foresay_sampler_entry = {                                     \
        sizeof(foresay_sampler_library), FORESAY_SAMPLER_ABI_MAJOR, FORESAY_SAMPLER_ABI_MINOR,             \
        static_cast<std::uint32_t>(std::tuple_size<std::tuple<__VA_ARGS__>>::value),                       \
        foresay::detail::Samplers<__VA_ARGS__>::list};
