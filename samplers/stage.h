// samplers/stage.h: a stage of a chain: a description, immutable parameters, and states.
//
// There are two kinds. A step stage describes what it does to the next token as a kernels::SamplingStep, which any
// backend runs. A host stage transforms candidates in a function: plugins (sdk/sampler.h) and mirostat.
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

#include "kernels/sampling_plan.h"

namespace foresay::samplers {

// The same alternatives as core::ConfigValue, so that values pass without conversion.
using ParameterValue = std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>,
                                    std::vector<std::int64_t>, std::vector<double>>;
using Parameters = std::vector<std::pair<std::string, ParameterValue>>;

enum class ParameterType : std::uint8_t { boolean, integer, real, text, choice, text_list, integer_list, real_list };

struct ParameterSchema {
    std::string name;
    ParameterType type = ParameterType::real;
    ParameterValue fallback;
    std::optional<double> min;  // inclusive; of each entry of a list
    std::optional<double> max;
    std::vector<std::string> choices;  // ParameterType::choice
    std::string doc;                   // one line
};

// What a stage's state depends on.
enum class StageMemory : std::uint8_t {
    stateless,
    history,   // the tokens so far
    feedback,  // also the probability that each token had when it was sampled
};

struct StageTraits {
    StageMemory memory = StageMemory::stateless;
    bool randomised = false;        // uses keyed random numbers
    bool masks_only = false;        // drops candidates and never changes a logit
    bool whole_vocabulary = false;  // sees all candidates; otherwise the kCandidateCut best
    bool clonable = true;           // states can be copied, so the draft can have the stage, too
};

struct StageDescription {
    std::string name;
    std::string doc;
    StageTraits traits;
    std::vector<ParameterSchema> parameters;
};

// The tokenizer's ids and their bytes.
class Vocabulary {
public:
    virtual ~Vocabulary() = default;
    virtual std::int32_t size() const = 0;                        // ids are [0, size)
    virtual std::string_view text(std::int32_t token) const = 0;  // bytes; empty for control tokens
    virtual std::int32_t find(std::string_view text) const = 0;   // the id whose bytes are exactly `text`, or -1
    virtual bool ends_text(std::int32_t) const { return false; }  // whether a generation ends with the token
    virtual std::string_view control_text(std::int32_t) const { return {}; }  // the name of a control token
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
};

// Each function returns an empty text, or what went wrong, valid until the next call.
class StageState {
public:
    virtual ~StageState() = default;
    virtual std::string_view reset() = 0;
    // A generation begins: after `history`, of which the tokens from index `answer` on belong to the answer already.
    virtual std::string_view begin(std::span<const std::int32_t> history, std::size_t answer) {
        static_cast<void>(answer);
        const std::string_view wrong = reset();
        return wrong.empty() && !history.empty() ? accept(history, nullptr) : wrong;
    }
    // Becomes equal to `other`, a state of the same stage. Only for clonable stages.
    virtual std::string_view copy(const StageState& other) = 0;
    // `tokens` follow those accepted before. `log_probability`: that of the one token when it was sampled; nullptr for
    // given text.
    virtual std::string_view accept(std::span<const std::int32_t> tokens, const float* log_probability) = 0;
};

class Stage {
public:
    virtual ~Stage() = default;
    // Null for a stateless stage.
    virtual std::unique_ptr<StageState> make_state() const { return nullptr; }
    // True: with these parameters the stage changes nothing, and the chain leaves it out.
    virtual bool idle() const { return false; }
    // Whether it sees all candidates, with these parameters.
    virtual bool whole_vocabulary() const = 0;

    // Step stages: true, and step() is the step for the next token. Token counts that the step refers to are stored in
    // the vector; bits of a mask stay valid while kernels::kTokenSlots further steps are made from the same state. The
    // chain fills in the stream of an xtc step.
    virtual bool has_step() const { return false; }
    virtual kernels::SamplingStep step(const StageState*, std::vector<kernels::TokenCount>&) const { return {}; }
    // A temperature of 0: no step; the chain samples without noise.
    virtual bool greedy() const { return false; }

    // Host stages: transforms the candidates in place; count may shrink. Returns an empty text, or what went wrong,
    // valid until the next call.
    virtual std::string_view process(const StageState*, const StageContext&, kernels::Candidates&) const { return {}; }
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

// Checks a value of the parameter's own type against its range and its choices. Errors: Error that begins with `key`.
void check_range(const std::string& key, const ParameterSchema& schema, const ParameterValue& value);

}  // namespace foresay::samplers
