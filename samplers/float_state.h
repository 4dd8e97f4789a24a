// samplers/float_state.h: how this thread computes with floating-point numbers: rounding, flush-to-zero, exceptions.
//
// A library that is linked with -ffast-math makes the thread that loads it flush denormals to zero, and code may change
// the rounding. Either changes the text, because the bits of a row depend on it.
//
// Cost: a few cycles.
#pragma once

#include <cfenv>
#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace foresay::samplers {

class FloatState {
public:
    // That of this thread, now.
    FloatState() {
#if defined(__x86_64__)
        sse_ = _mm_getcsr() & ~kRaised;
        __asm__ volatile("fnstcw %0" : "=m"(x87_));
#elif defined(__aarch64__)
        __asm__ volatile("mrs %0, fpcr" : "=r"(control_));
#else
        rounding_ = std::fegetround();
#endif
    }
    bool operator==(const FloatState&) const = default;
    // Makes it this thread's again.
    void restore() const {
#if defined(__x86_64__)
        _mm_setcsr(sse_);
        __asm__ volatile("fldcw %0" : : "m"(x87_));
#elif defined(__aarch64__)
        __asm__ volatile("msr fpcr, %0" : : "r"(control_));
#else
        std::fesetround(rounding_);
#endif
    }

private:
#if defined(__x86_64__)
    static constexpr std::uint32_t kRaised = 0x3f;  // exceptions that have occurred; they change no result
    std::uint32_t sse_ = 0;
    std::uint16_t x87_ = 0;
#elif defined(__aarch64__)
    std::uint64_t control_ = 0;
#else
    int rounding_ = 0;
#endif
};

}  // namespace foresay::samplers
