// kernels/cpu_features.h: instruction-set features that __builtin_cpu_supports does not name in every compiler we use.
//
// Threads:  any. These report what the processor has. Whether the operating system saves the vector registers is what
//           __builtin_cpu_supports("avx2") checks, so callers need both.
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>

namespace foresay::kernels {

inline bool cpu_has_f16c() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & (1u << 29)) != 0;
}

inline bool cpu_has_lzcnt() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(0x80000001u, &a, &b, &c, &d) != 0 && (c & (1u << 5)) != 0;
}

}  // namespace foresay::kernels
#endif
