#include "kernels/cpu/isa_select.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/cpu_features.h"

namespace foresay::kernels::cpu {
namespace {

struct Candidate {
    const char* name;
    bool usable;
    const IsaKernels& (*kernels)();
};

std::vector<Candidate> candidates() {
#if defined(__x86_64__)
    __builtin_cpu_init();  // also checks that the system saves the vector registers
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && cpu_has_f16c();
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512vnni");
    return {{"avx512", avx512, avx512_kernels}, {"avx2", avx2, avx2_kernels}, {"portable", true, portable_kernels}};
#else
    return {{"portable", true, portable_kernels}};
#endif
}

}  // namespace

std::vector<std::string> usable_isas() {
    std::vector<std::string> names;
    for (const Candidate& candidate : candidates()) {
        if (candidate.usable) names.emplace_back(candidate.name);
    }
    return names;
}

const IsaKernels& select_isa(const std::string& name) {
    for (const Candidate& candidate : candidates()) {
        if (!name.empty() && name != candidate.name) continue;
        if (candidate.usable) return candidate.kernels();
        if (!name.empty()) {
            throw Error("this processor does not have the instruction set '" + name +
                        "'; leave it out or choose 'portable'");
        }
    }
    throw Error("unknown instruction set '" + name + "'; choose avx512, avx2 or portable");
}

}  // namespace foresay::kernels::cpu
