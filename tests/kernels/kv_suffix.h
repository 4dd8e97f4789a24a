// tests/kernels/kv_suffix.h: names of cache formats for the names of test cases.
#pragma once

#include <cctype>
#include <string>

#include "kernels/kv_names.h"

namespace foresay::test {

// Keys of 6 bits and values of 4: both types with fewer than 8 bits at once.
inline constexpr kernels::KvFormat kLowBits = kernels::kv_format(kernels::KvType::q6, kernels::KvType::q4);

// Formats that take different paths through a backend.
inline constexpr kernels::KvFormat kCacheFormats[] = {kernels::KvFormat::f16, kernels::KvFormat::q8, kLowBits};

// "q8", "k_q6_v_q4".
inline std::string cache_name(kernels::KvFormat format) {
    std::string text = kernels::name(format);
    for (char& c : text) {
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
    }
    return text;
}

// "", "_q8", "_k_q6_v_q4".
inline std::string cache_suffix(kernels::KvFormat format) {
    return format == kernels::KvFormat::f16 ? "" : "_" + cache_name(format);
}

}  // namespace foresay::test
