#include "speculative/failures.h"

#include "base/error.h"

namespace foresay::speculative {

void check_prompt(const core::Context& context, std::int64_t held, std::span<const std::int32_t> input) {
    const std::int64_t length = held + static_cast<std::int64_t>(input.size());
    if (length > context.capacity()) {
        throw Error("the text is " + std::to_string(length) + " tokens long but the context holds " +
                    std::to_string(context.capacity()) + "; shorten it or raise --context");
    }
    if (length == 0) throw Error("the prompt is empty, and this model has no beginning-of-text token; give a prompt");
    const std::int32_t vocab = context.model().config().shape.vocab;
    for (const std::int32_t token : input) {
        if (token < 0 || token >= vocab) {
            throw Error("the token id " + std::to_string(token) + " is outside the model's vocabulary of " +
                        std::to_string(vocab));
        }
    }
}

std::string broken_logits(const core::Model& model) {
    return model.source().path() + ": the model's logits are not finite numbers, so its weights hold NaN " +
           "or infinities; fetch or convert the file again";
}

std::string no_token(const samplers::StageFailure* failure) {
    return failure != nullptr ? failure->message : "the sampling chain ruled out every token";
}

}  // namespace foresay::speculative
