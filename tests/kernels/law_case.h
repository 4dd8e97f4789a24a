// tests/kernels/law_case.h: what the tests of law 1 (a row is a row) run on: a backend and a quantisation type.
// They run every case; under a sanitizer, a sample. The portable kernels take ten times as long as the others, so they
// run all of it only where FORESAY_LAWS=all is set: elsewhere some widths and trees, and several threads with one type.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <ostream>
#include <string>
#include <vector>

#include "tests/kernels/kv_suffix.h"
#include "tests/kernels/tiny_model.h"

namespace foresay::test {

#ifndef FORESAY_SANITIZED
inline constexpr bool kFullMatrix = true;
#else
inline constexpr bool kFullMatrix = false;
#endif

inline bool all_laws() {
    const char* laws = std::getenv("FORESAY_LAWS");
    return laws != nullptr && std::string(laws) == "all";
}

struct LawCase {
    std::string backend;  // "reference", "cuda" or an instruction set
    QuantType quant_type;
    int threads;
    kernels::KvFormat kv_format = kernels::KvFormat::f16;
    bool head_norms = true;  // without them, a device attends within the decode kernel

    bool reference() const { return backend == "reference"; }
    bool cuda() const { return backend == "cuda"; }
    bool cpu() const { return !reference() && !cuda(); }
    kernels::Ops& ops() const { return backend_ops(backend, threads); }
    // The same with one thread.
    kernels::Ops& plain_ops() const { return backend_ops(backend, 1); }
    // More threads than cores wait for one another; such cases run a sample.
    bool full() const { return kFullMatrix && threads <= 2 && !reference() && (backend != "portable" || all_laws()); }

    TinyConfig config() const {
        TinyConfig config = smallest(quant_type, backend);
        config.window = 23;
        config.biases = true;
        config.head_norms = head_norms;
        config.kv_format = kv_format;
        return config;
    }
};

inline void PrintTo(const LawCase& c, std::ostream* out) {
    *out << c.backend << " " << kernels::info(c.quant_type).name << " " << c.threads << cache_suffix(c.kv_format)
         << (c.head_norms ? "" : " without head norms");
}

inline std::vector<LawCase> law_cases() {
    std::vector<LawCase> cases;
    for (const QuantType quant_type : kAllQuantTypes) {
        for (const std::string& isa : fast_backends()) {
            for (const int threads : {1, 2, 3}) {
                if (isa == "cuda" && threads > 1) continue;
                // Which thread takes which panel does not depend on the quantisation type.
                const bool sample = !kFullMatrix || (isa == "portable" && !all_laws());
                if (sample && threads > 1 && quant_type != QuantType::q8_0) continue;
                if (kFullMatrix && threads > 2 && quant_type != QuantType::q4_k && quant_type != QuantType::f16)
                    continue;
                cases.push_back({isa, quant_type, threads});
                // The format of the cache and that of the weights are independent.
                if (quant_type == QuantType::f32 || quant_type == (isa == "cuda" ? QuantType::q4_0 : QuantType::q8_0)) {
                    cases.push_back({isa, quant_type, threads, kernels::KvFormat::q8});
                    if (threads == 1) cases.push_back({isa, quant_type, threads, kLowBits});
                }
                if (isa == "cuda" && quant_type == QuantType::q4_0) {
                    for (const auto format : {kernels::KvFormat::f16, kernels::KvFormat::q8}) {
                        cases.push_back({isa, quant_type, threads, format, false});
                    }
                }
            }
        }
        if (kFullMatrix || quant_type == QuantType::f32) cases.push_back({"reference", quant_type, 1});
        if (quant_type == QuantType::f32) cases.push_back({"reference", quant_type, 1, kernels::KvFormat::q8});
        if (quant_type == QuantType::f32) cases.push_back({"reference", quant_type, 1, kLowBits});
    }
    return cases;
}

inline std::string law_case_name(const testing::TestParamInfo<LawCase>& info) {
    return info.param.backend + "_" + std::string(kernels::info(info.param.quant_type).name) + "_" +
           std::to_string(info.param.threads) + "_threads" + cache_suffix(info.param.kv_format) +
           (info.param.head_norms ? "" : "_without_head_norms");
}

inline void expect_same_bits(const std::vector<float>& expected, const std::vector<float>& found) {
    ASSERT_EQ(expected.size(), found.size());
    ASSERT_EQ(std::memcmp(expected.data(), found.data(), expected.size() * sizeof(float)), 0);
}

inline void expect_same_bits(const RowResult& expected, const RowResult& found) {
    ASSERT_NO_FATAL_FAILURE(expect_same_bits(expected.residual, found.residual)) << "residual stream";
    ASSERT_NO_FATAL_FAILURE(expect_same_bits(expected.logits, found.logits)) << "logits";
}

inline void expect_same_bits(const std::vector<RowResult>& expected, const std::vector<RowResult>& found) {
    ASSERT_EQ(expected.size(), found.size());
    for (std::size_t row = 0; row < expected.size(); ++row) {
        SCOPED_TRACE("row " + std::to_string(row));
        ASSERT_NO_FATAL_FAILURE(expect_same_bits(expected[row], found[row]));
    }
}

}  // namespace foresay::test
