// samplers/stage.h: a stage of a chain: a description, immutable parameters, and states.
//
// A step stage describes what it does to the next token as a kernels::SamplingStep, which any backend runs. The stages
// of plugins (sdk/sampler.h), and mirostat, are functions: masks, tests of tokens, and those that transform candidates.
//
// Threads:  a Stage is immutable and may be shared; a StageState belongs to one chain.
// Errors:   factories throw Error. process() reports failure in its result and never throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "kernels/sampling_plan.h"

namespace foresay::samplers {

// The same alternatives as core::ConfigValue, so that values pass without conversion.
using ParameterValue = std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>,
                                    std::vector<std::int64_t>, std::vector<double>>;
using Parameters = std::vector<std::pair<std::string, ParameterValue>>;

// file: the value is a path; the stage gets the file's contents.
enum class ParameterType : std::uint8_t {
    boolean,
    integer,
    real,
    text,
    choice,
    text_list,
    integer_list,
    real_list,
    file,
};

struct ParameterSchema {
    std::string name;
    ParameterType type = ParameterType::real;
    ParameterValue fallback;
    std::optional<double> min;  // inclusive; of each entry of a list
    std::optional<double> max;
    std::vector<std::string> choices;  // ParameterType::choice
    std::string doc;                   // one line
    std::string needs = {};            // a parameter that says what this one is, so it must be stated, too
};

// What a stage's state depends on.
enum class StageMemory : std::uint8_t {
    stateless,
    history,   // the tokens so far, and where the answer begins
    feedback,  // also the probabilities that tokens of this answer were drawn with
};

struct StageTraits {
    StageMemory memory = StageMemory::stateless;
    bool randomised = false;        // uses keyed random numbers
    bool masks_only = false;        // drops candidates and never changes a logit
    bool whole_vocabulary = false;  // acts on all candidates; otherwise on the kCandidateCut best
    bool clonable = true;           // states can be copied, so the draft can have the stage, too
};

struct StageDescription {
    std::string name;
    std::string doc;
    StageTraits traits;
    std::vector<ParameterSchema> parameters;
};

// The tokenizer's ids and their bytes. Threads: any.
class Vocabulary {
public:
    virtual ~Vocabulary() = default;
    virtual std::int32_t size() const = 0;                        // ids are [0, size)
    virtual std::string_view text(std::int32_t token) const = 0;  // bytes; empty for control tokens
    virtual std::int32_t find(std::string_view text) const = 0;   // the id whose bytes are exactly `text`, or -1
    virtual bool ends_text(std::int32_t) const { return false; }  // whether a generation ends with the token
    virtual std::string_view control_text(std::int32_t) const { return {}; }  // the name of a control token
    virtual std::int32_t find_control(std::string_view) const { return -1; }  // the control token of that name, or -1
    // The tokens of a text, without special ones; nothing: there is no tokenizer.
    virtual std::optional<std::vector<std::int32_t>> tokens(std::string_view) const { return std::nullopt; }
    virtual std::string_view model_name() const { return {}; }
    // What the grammar stage keeps for this vocabulary; it locks.
    std::shared_ptr<void>& grammars() const { return grammars_; }

private:
    mutable std::shared_ptr<void> grammars_;
};

enum class Phase : std::uint8_t { decide, propose };

// What a host stage may know about a row. Row index, number of rows and whether the row was drafted are missing on
// purpose: text must not depend on them.
struct StageContext {
    Phase phase = Phase::decide;
    kernels::NoiseKey key;                  // key.index: absolute index of the token being sampled
    std::uint32_t stage = 0;                // stream of keyed numbers
    std::span<const std::int32_t> history;  // every token before that index
    std::size_t answer = 0;                 // tokens from this index on are the answer
};

// A token that follows those that a state knows. The probabilities are natural logarithms, and NaN unless the token was
// drawn and the stage's memory is feedback.
struct AcceptedToken {
    std::int32_t id = -1;
    bool supposed = false;                  // by a draft, in whose copy of the state it is; else it was drawn
    float log_probability = 0.0f;           // at the end of the chain
    float received_log_probability = 0.0f;  // among the candidates that the stage received
};

// Each function returns an empty text, or what went wrong, valid until the next call.
class StageState {
public:
    virtual ~StageState() = default;
    // A generation begins after `history`, of which the tokens from index `answer` on belong to the answer already.
    virtual std::string_view begin(std::span<const std::int32_t> history, std::size_t answer) = 0;
    // Becomes equal to `other`, a state of the same stage. Only for clonable stages.
    virtual std::string_view copy(const StageState& other) = 0;
    virtual std::string_view accept(const AcceptedToken& token) = 0;
};

// How a stage acts on a row.
enum class StageKind : std::uint8_t {
    step,     // step() describes what it does, for any backend to run
    mask,     // mask() says which tokens may follow; backends run that as a step
    test,     // test() judges tokens, each by itself, on the host
    process,  // process() transforms candidates, on the host
};

class Stage {
public:
    virtual ~Stage() = default;
    virtual StageKind kind() const = 0;
    // Null for a stateless stage.
    virtual std::unique_ptr<StageState> make_state() const { return nullptr; }
    // True: with these parameters the stage changes nothing, and the chain leaves it out.
    virtual bool idle() const { return false; }
    // Whether it acts on all candidates, with these parameters.
    virtual bool whole_vocabulary() const = 0;

    // The step for the next token. Token counts that the step refers to are stored in the vector; bits of a mask stay
    // valid while kernels::kTokenSlots further steps are made from the same state. The chain fills in the stream of an
    // xtc step.
    virtual kernels::SamplingStep step(const StageState*, std::vector<kernels::TokenCount>&) const { return {}; }
    // Whether a step on the whole vocabulary compares the candidates with each other, so that it must see what the
    // stages before it leave.
    virtual bool compares() const { return false; }
    // A temperature of 0: no step; the chain samples without noise.
    virtual bool greedy() const { return false; }

    // The others. Each returns an empty text, or what went wrong, valid until the next call on this thread.
    // Sets the bits of the tokens that may follow; all are 0 before.
    virtual std::string_view mask(const StageState*, const StageContext&, std::span<std::uint32_t>) const { return {}; }
    // keep[i] = 1 where ids[i] may follow, whatever the other ids are; all are 0 before. Mask stages that have it, too,
    // say so.
    virtual bool tests() const { return kind() == StageKind::test; }
    virtual std::string_view test(const StageState*, const StageContext&, std::span<const std::int32_t>,
                                  std::span<std::uint8_t>) const {
        return {};
    }
    // Transforms the candidates in place; count may shrink.
    virtual std::string_view process(const StageState*, const StageContext&, kernels::Candidates&) const { return {}; }

    // Sets the bytes with which the text must go on unless it ends; they are valid until the next call. Only of stages
    // that may force any.
    virtual bool forces() const { return false; }
    virtual std::string_view forced(const StageState*, const StageContext&, std::string_view&) const { return {}; }
};

// create() refuses the value of one parameter.
class ParameterError : public Error {
public:
    ParameterError(std::string parameter, const std::string& message)
        : Error(message), parameter_(std::move(parameter)) {}
    const std::string& parameter() const { return parameter_; }

private:
    std::string parameter_;
};

// Makes stages of one kind. A plugin's factory keeps its library loaded.
class StageFactory {
public:
    virtual ~StageFactory() = default;
    virtual const StageDescription& description() const = 0;
    // `parameters` are complete and checked, in the description's order. `vocabulary` outlives the stage.
    virtual std::unique_ptr<Stage> create(std::span<const ParameterValue> parameters,
                                          const Vocabulary& vocabulary) const = 0;
};

// The built-in stages, in the order in which chains usually have them.
std::span<const std::shared_ptr<const StageFactory>> builtin_factories();
std::shared_ptr<const StageFactory> find_builtin(std::string_view name);  // null when there is none

// Checks stated parameters against a description and fills in defaults, in the description's order.
// Errors: unknown name (with the nearest one), wrong type, out of range.
std::vector<ParameterValue> complete_parameters(const StageDescription& description, const Parameters& stated);

// Checks that what the stated parameters need is stated, too. Errors: ParameterError.
void check_needs(const StageDescription& description, const Parameters& stated);

// Checks a value of the parameter's own type against its range and its choices. Errors: Error that begins with `key`.
void check_range(const std::string& key, const ParameterSchema& schema, const ParameterValue& value);

}  // namespace foresay::samplers
