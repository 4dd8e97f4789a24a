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
//   void accept(State&, const Token&) const         ... and on the probabilities of those that were drawn
//   void begin(State&, const Text&) const           how a state begins. Without it, State() accepts the tokens so far,
//                                                   prompt and answer alike; of the second kind, nothing
//   State is copy-assignable                        the draft can be shaped, too
//   process([const State&,] const Context&, VIEW&)  VIEW is Mask (drops only) or Candidates (changes logits); their
//                                                   Whole forms see the whole vocabulary instead of the 512 best
//   bool test([const State&,] const Context&, int32_t id)   whether a token may follow, judged by itself
//   void mask([const State&,] const Context&, Bits&)        the same for the whole vocabulary at once
//   std::string forced([const State&,] const Context&)      bytes with which the text must go on; empty: any
//   const RandomContext& in place of Context        uses keyed random numbers
//   static void self_test(Host)                     a test that `foresay plugin check` runs; throws where it fails
// A sampler has process, test or mask; where it has several, they must agree. Its constructor takes (Parameters, Host),
// Host, or nothing.
//
// Types cannot show the rest, which the author promises (Purity in sampler.h): these functions depend on nothing but
// their arguments and the sampler's parameters. const does not prevent static or mutable variables, the clock, or
// another source of random numbers. With those the text depends on how it is computed, so that speculation changes it.
// The host finds some of it: it makes some calls twice, and a sampler that gives two answers fails.
//
// Errors:   throw std::exception or a class derived from it; the host names the sampler and shows what(). Not from
//           destructors: that ends the program.
// Threads:  the functions are const: one instance serves several states at once.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <new>
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

// Functions whose bits are the same on every machine; those of <cmath> are not.
class Math {
public:
    explicit Math(const foresay_math* functions) : functions_(functions) {}
    explicit operator bool() const { return functions_ != nullptr; }
    float exp(float x) const { return functions_->exp(x); }
    float log(float x) const { return functions_->log(x); }
    // log(sum of exp(logits[i])); logits[0] must be the largest.
    float log_sum(const float* logits, std::size_t count) const {
        return functions_->log_sum(logits, static_cast<std::uint32_t>(count));
    }

private:
    const foresay_math* functions_;
};

// What the host offers. Valid as long as the sampler.
class Host {
public:
    explicit Host(const foresay_host* host) : host_(host) {}
    std::int32_t vocabulary_size() const { return host_->vocabulary_size(host_->self); }
    bool is_text(std::int32_t id) const { return host_->token_kind(host_->self, id) == FORESAY_TOKEN_TEXT; }
    bool is_control(std::int32_t id) const { return host_->token_kind(host_->self, id) == FORESAY_TOKEN_CONTROL; }
    // Empty for control tokens.
    std::string_view token_text(std::int32_t id) const { return view(host_->token_text(host_->self, id)); }
    // The name of a control token, such as <|im_end|>.
    std::string_view control_text(std::int32_t id) const { return view(host_->control_text(host_->self, id)); }
    // -1 when no text token has exactly these bytes.
    std::int32_t find_token(std::string_view text) const { return host_->find_token(host_->self, bytes(text)); }
    // -1 when no control token has exactly this name.
    std::int32_t find_control(std::string_view name) const { return host_->find_control(host_->self, bytes(name)); }
    // The tokens that end a text, in rising order.
    std::vector<std::int32_t> end_tokens() const {
        const std::int32_t* ids = nullptr;
        const std::uint32_t count = host_->end_tokens(host_->self, &ids);
        return std::vector<std::int32_t>(ids, ids + count);
    }
    bool ends_text(std::int32_t id) const {
        const std::int32_t* ids = nullptr;
        const std::uint32_t count = host_->end_tokens(host_->self, &ids);
        for (std::uint32_t i = 0; i < count; ++i) {
            if (ids[i] == id) return true;
        }
        return false;
    }
    // The tokens of a text, without special ones; none where the model has no tokenizer.
    std::vector<std::int32_t> tokenize(std::string_view text) const {
        const std::int64_t count = host_->tokenize(host_->self, bytes(text), nullptr, 0);
        std::vector<std::int32_t> ids(static_cast<std::size_t>(count > 0 ? count : 0));
        if (!ids.empty()) host_->tokenize(host_->self, bytes(text), ids.data(), ids.size());
        return ids;
    }
    std::string_view model_name() const { return view(host_->model_name(host_->self)); }
    Math math() const { return Math(static_cast<const foresay_math*>(extension(FORESAY_MATH_EXTENSION))); }
    // What the host offers beyond 1.0; nullptr where it does not.
    const void* extension(std::string_view name) const { return host_->extension(host_->self, bytes(name)); }
    void warn(std::string_view text) const { host_->log(host_->self, FORESAY_LOG_WARNING, bytes(text)); }
    void inform(std::string_view text) const { host_->log(host_->self, FORESAY_LOG_INFO, bytes(text)); }

private:
    static foresay_text bytes(std::string_view text) { return {text.data(), text.size()}; }
    static std::string_view view(foresay_text text) { return {text.data, static_cast<std::size_t>(text.size)}; }
    const foresay_host* host_;
};

class Context {
public:
    explicit Context(const foresay_context* context) : context_(context) {}
    std::uint64_t index() const { return context_->index; }
    const std::int32_t* history() const { return context_->history; }  // index() tokens
    std::uint64_t answer() const { return context_->answer; }          // where in them the answer begins
    std::uint64_t seed() const { return context_->seed; }
    std::uint64_t branch() const { return context_->branch; }
    bool proposing() const { return context_->phase == FORESAY_PROPOSE; }  // only process() is ever asked so

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

// The tokens that a state begins with; those from index `answer` on belong to the answer already.
struct Text {
    const std::int32_t* tokens;
    std::uint64_t count;
    std::uint64_t answer;
};

// What became of a token. The probabilities are logarithms, and NaN where the token is only supposed.
struct Token {
    std::int32_t id;
    bool supposed;                   // a draft supposes it
    float log_probability;           // at the end of the chain
    float received_log_probability;  // among the candidates that this stage received
};

// A parameter: a file that the configuration names.
struct File {
    std::string path;   // empty: none was stated
    std::string bytes;  // its contents
};

// A bit for each token: whether it may follow. None may at first.
class Bits {
public:
    Bits(std::uint32_t* words, std::uint64_t count) : words_(words), count_(count) {}
    void allow(std::int32_t id) { words_[id / 32] |= 1u << (id % 32); }
    void allow_all() { std::memset(words_, 0xff, count_ * sizeof *words_); }
    void forbid(std::int32_t id) { words_[id / 32] &= ~(1u << (id % 32)); }
    // Takes over a mask that was made before, in words of 32 tokens; those that it lacks are as they were.
    void copy(const std::vector<std::uint32_t>& words) {
        for (std::uint64_t i = 0; i < count_ && i < words.size(); ++i) words_[i] = words[i];
    }

private:
    std::uint32_t* words_;
    std::uint64_t count_;
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
template <typename Owner>
auto integer_list(const char* name, std::vector<std::int64_t> Owner::*member, double min, double max, const char* doc) {
    return Parameter<Owner, std::vector<std::int64_t>>{name, member, FORESAY_INTEGER_LIST, min, max, {}, doc};
}
template <typename Owner>
auto real_list(const char* name, std::vector<double> Owner::*member, double min, double max, const char* doc) {
    return Parameter<Owner, std::vector<double>>{name, member, FORESAY_REAL_LIST, min, max, {}, doc};
}
template <typename Owner>
auto file(const char* name, File Owner::*member, const char* doc) {
    return Parameter<Owner, File>{name, member, FORESAY_FILE, 0, 0, {}, doc};
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
inline void put(foresay_value& value, const std::vector<std::int64_t>& x, Texts&) {
    value.integers = x.data();
    value.count = static_cast<std::uint32_t>(x.size());
}
inline void put(foresay_value& value, const std::vector<double>& x, Texts&) {
    value.reals = x.data();
    value.count = static_cast<std::uint32_t>(x.size());
}
inline void put(foresay_value&, const File&, Texts&) {}

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
inline void get(const foresay_value& value, std::vector<std::int64_t>& x) {
    x.assign(value.integers, value.integers + value.count);
}
inline void get(const foresay_value& value, std::vector<double>& x) {
    x.assign(value.reals, value.reals + value.count);
}
inline void get(const foresay_value& value, File& x) {
    if (value.count == 0) return;
    x.path.assign(value.texts[0].data, static_cast<std::size_t>(value.texts[0].size));
    x.bytes.assign(value.text.data, static_cast<std::size_t>(value.text.size));
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

// Whether T has a const function F, taking its state first where it has one: FORESAY_HAS(test, std::int32_t{}).
#define FORESAY_DETAIL_HAS(NAME, FUNCTION, ARGUMENT)                                                           \
    template <typename T, typename State, typename Ctx, typename = void>                                       \
    struct NAME : std::false_type {};                                                                          \
    template <typename T, typename Ctx>                                                                        \
    struct NAME<T, NoState, Ctx,                                                                               \
                std::void_t<decltype(std::declval<const T&>().FUNCTION(std::declval<const Ctx&>() ARGUMENT))>> \
        : std::true_type {};                                                                                   \
    template <typename T, typename State, typename Ctx>                                                        \
    struct NAME<T, State, Ctx,                                                                                 \
                std::void_t<decltype(std::declval<const T&>().FUNCTION(                                        \
                    std::declval<const State&>(), std::declval<const Ctx&>() ARGUMENT))>> : std::true_type {};
#define FORESAY_DETAIL_COMMA ,
FORESAY_DETAIL_HAS(HasTest, test, FORESAY_DETAIL_COMMA std::int32_t{})
FORESAY_DETAIL_HAS(HasMask, mask, FORESAY_DETAIL_COMMA std::declval<Bits&>())
FORESAY_DETAIL_HAS(HasForced, forced, )
#undef FORESAY_DETAIL_HAS
#undef FORESAY_DETAIL_COMMA

// An accept() that takes no plain id, so that an implicit conversion does not count.
struct OnlyToken {
    operator const Token&() const;
};
template <typename T, typename State, typename = void>
struct HasFeedback : std::false_type {};
template <typename T, typename State>
struct HasFeedback<
    T, State, std::void_t<decltype(std::declval<const T&>().accept(std::declval<State&>(), std::declval<OnlyToken>()))>>
    : std::true_type {};
template <typename T, typename State, typename = void>
struct HasBegin : std::false_type {};
template <typename T, typename State>
struct HasBegin<
    T, State,
    std::void_t<decltype(std::declval<const T&>().begin(std::declval<State&>(), std::declval<const Text&>()))>>
    : std::true_type {};
template <typename T, typename = void>
struct HasSelfTest : std::false_type {};
template <typename T>
struct HasSelfTest<T, std::void_t<decltype(T::self_test(std::declval<Host>()))>> : std::true_type {};

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
    static constexpr bool kProcess = kMask || kCandidates || kWholeMask || kWhole;
    static constexpr bool kTest = HasTest<T, State, RandomContext>::value;
    static constexpr bool kBits = HasMask<T, State, RandomContext>::value;
    static constexpr bool kForced = HasForced<T, State, RandomContext>::value;
    static_assert(kProcess || kTest || kBits,
                  "a sampler needs process(), test() or mask(), such as: void process([const State&,] const Context&, "
                  "Mask or Candidates&) const");
    static_assert(!kFeedback || kProcess, "a sampler that remembers probabilities needs process()");
    using View = std::conditional_t<
        kMask, Mask,
        std::conditional_t<kCandidates, Candidates, std::conditional_t<kWholeMask, WholeMask, WholeCandidates>>>;
    static constexpr bool kRandom =
        (kProcess && !CanProcess<T, State, Context, View>::value) || (kTest && !HasTest<T, State, Context>::value) ||
        (kBits && !HasMask<T, State, Context>::value) || (kForced && !HasForced<T, State, Context>::value);
    using Ctx = std::conditional_t<kRandom, RandomContext, Context>;

    struct Instance {
        const foresay_host* host;
        T sampler;
        Instance(const foresay_host* h, Parameters&& p) : host(h), sampler(make(h, std::move(p))) {}
        static T make(const foresay_host* h, Parameters&& p) {
            if constexpr (std::is_constructible_v<T, Parameters, Host>) {
                return T(std::move(p), Host(h));
            } else if constexpr (std::is_constructible_v<T, Host>) {
                return T(Host(h));
            } else {
                return T();
            }
        }
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
    // body(sampler, context), with the state between them where there is one.
    template <typename Body>
    static std::int32_t asked(void* instance, const void* state, const foresay_context* context, Body&& body) {
        (void)state;
        const Instance& at = *static_cast<Instance*>(instance);
        return guarded(at.host, [&] {
            const Ctx ctx(context);
            if constexpr (kStateful) {
                body(at.sampler, *static_cast<const State*>(state), ctx);
            } else {
                body(at.sampler, ctx);
            }
        });
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
    static std::int32_t state_begin(void* instance, void* state, const std::int32_t* tokens, std::uint64_t count,
                                    std::uint64_t answer) {
        (void)tokens;
        (void)count;
        (void)answer;
        const Instance& in = *static_cast<Instance*>(instance);
        return guarded(in.host, [&] {
            State& at = *static_cast<State*>(state);
            if constexpr (std::is_move_assignable_v<State>) {
                at = State();
            } else {
                at.~State();
                new (&at) State();
            }
            if constexpr (HasBegin<T, State>::value) {
                in.sampler.begin(at, Text{tokens, count, answer});
            } else if constexpr (kStateful && !kFeedback) {
                for (std::uint64_t i = 0; i < count; ++i) in.sampler.accept(at, tokens[i]);
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
    static std::int32_t accept(void* instance, void* state, const foresay_token* token) {
        (void)state;
        (void)token;
        const Instance& at = *static_cast<Instance*>(instance);
        return guarded(at.host, [&] {
            if constexpr (kFeedback) {
                at.sampler.accept(*static_cast<State*>(state),
                                  Token{token->id, token->fate == FORESAY_SUPPOSED, token->log_probability,
                                        token->received_log_probability});
            } else if constexpr (kStateful) {
                at.sampler.accept(*static_cast<State*>(state), token->id);
            }
        });
    }
    static std::int32_t process(void* instance, const void* state, const foresay_context* context,
                                foresay_candidates* candidates) {
        (void)candidates;
        return asked(instance, state, context, [&](const auto&... at) {
            if constexpr (kProcess) {
                View view(candidates);
                call_process(view, at...);
            }
        });
    }
    template <typename... At>
    static void call_process(View& view, const T& sampler, const At&... at) {
        sampler.process(at..., view);
    }
    static std::int32_t test(void* instance, const void* state, const foresay_context* context, const std::int32_t* ids,
                             std::uint32_t count, std::uint8_t* keep) {
        (void)ids;
        (void)count;
        (void)keep;
        return asked(instance, state, context, [&](const T& sampler, const auto&... at) {
            if constexpr (kTest) {
                for (std::uint32_t i = 0; i < count; ++i) keep[i] = sampler.test(at..., ids[i]) ? 1 : 0;
            }
        });
    }
    static std::int32_t mask(void* instance, const void* state, const foresay_context* context, std::uint32_t* bits,
                             std::uint64_t words) {
        (void)bits;
        (void)words;
        return asked(instance, state, context, [&](const T& sampler, const auto&... at) {
            if constexpr (kBits) {
                Bits view(bits, words);
                sampler.mask(at..., view);
            }
        });
    }
    static std::int32_t forced(void* instance, const void* state, const foresay_context* context, foresay_text* bytes) {
        (void)bytes;
        return asked(instance, state, context, [&](const T& sampler, const auto&... at) {
            if constexpr (kForced) {
                static thread_local std::string text;
                text = sampler.forced(at...);
                *bytes = view(text);
            }
        });
    }
    static std::int32_t run_self_test(const foresay_host* host) {
        return guarded(host, [&] {
            if constexpr (HasSelfTest<T>::value) T::self_test(Host(host));
        });
    }
    static const void* extension(foresay_text name) {
        static constexpr foresay_self_test test{sizeof(foresay_self_test), 0, run_self_test};
        const std::string_view wanted(name.data, static_cast<std::size_t>(name.size));
        return HasSelfTest<T>::value && wanted == FORESAY_SELF_TEST_EXTENSION ? &test : nullptr;
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
            s.state_begin = state_begin;
            s.state_copy = std::is_copy_assignable_v<State> ? state_copy : nullptr;
            s.accept = accept;
        }
        s.process = kProcess ? process : nullptr;
        s.test = kTest ? test : nullptr;
        s.mask = kBits ? mask : nullptr;
        s.forced = kForced ? forced : nullptr;
        s.extension = extension;
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
        sizeof(foresay_sampler_library),                                                                   \
        FORESAY_SAMPLER_ABI_MAJOR,                                                                         \
        FORESAY_SAMPLER_ABI_MINOR,                                                                         \
        0,                                                                                                 \
        static_cast<std::uint32_t>(std::tuple_size<std::tuple<__VA_ARGS__>>::value),                       \
        0,                                                                                                 \
        foresay::detail::Samplers<__VA_ARGS__>::list};
