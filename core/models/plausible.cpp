#include "core/models/plausible.h"

#include <array>
#include <cmath>
#include <cstdio>

#include "base/error.h"

namespace foresay::core {

namespace {

constexpr float kLargestEpsilon = 0.1f;

[[noreturn]] void refuse(const std::string& path, std::string_view key, const std::string& value,
                         const std::string& why) {
    throw Error(path + ": " + std::string(key) + " is " + value + ", but " + why + "; get or convert the model again");
}

std::string number(double value) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.9g", value);
    return text.data();
}

}  // namespace

float plausible_epsilon(double value, const std::string& path, std::string_view key) {
    const auto epsilon = static_cast<float>(value);
    if (!(epsilon > 0.0f && epsilon <= kLargestEpsilon)) {
        refuse(path, key, number(value), "the epsilon of a norm is above 0 and at most 0.1");
    }
    return epsilon;
}

float plausible_positive(double value, const std::string& path, std::string_view key) {
    const auto positive = static_cast<float>(value);
    if (!(positive > 0.0f) || !std::isfinite(positive)) {
        refuse(path, key, number(value), "it must be a positive number");
    }
    return positive;
}

void check_vocab_size(std::int64_t stated, std::int64_t rows, const std::string& path, std::string_view key) {
    if (stated == rows) return;
    refuse(path, key, std::to_string(stated),
           "the embedding table has " + std::to_string(rows) + (rows == 1 ? " row" : " rows"));
}

}  // namespace foresay::core
