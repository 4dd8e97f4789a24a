// tests/cuda_linear/emulated/emulation.h: threads of a device on the host, so that a test can run code for devices.
//
// run(threads, body) runs a CTA. A thread is a context with a stack of its own; it goes on until it meets the others of
// its warp, warpgroup or CTA. A warp goes on until all its threads wait for other warps, so it is as far ahead of them
// as the code lets it be, and a meeting that is missing shows. Shared memory is one array, addresses are offsets in it.
// The headers under this folder take the place of those with instructions in them: include it first, and name the
// folder before the repository's.
// The matrix instructions add in float32, input after input from what they begin with: an order in which other
// operands, other groups of inputs or another beginning show. That the device's own instructions agree with each other
// is for tests on a device to say.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <ucontext.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#undef __device__
#undef __global__
#undef __shared__
#undef __grid_constant__
#undef __launch_bounds__
#define __device__
#define __global__
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(...)
#define __CUDA_ARCH__ 900

namespace foresay::test::emulated {

struct Meeting {
    int size = 0, here = 0;
    unsigned round = 0;
};
struct Warp {
    Meeting meeting{32};
    alignas(16) std::byte slots[32][32];
};
struct Thread {
    static constexpr std::size_t kStack = 128 * 1024;
    ucontext_t context;
    std::unique_ptr<std::byte[]> stack = std::make_unique_for_overwrite<std::byte[]>(kStack);
    int number = 0;
    bool done = false;
};

inline ucontext_t scheduler;
inline std::vector<std::unique_ptr<Thread>> threads;
inline std::vector<Warp> warps;
inline std::vector<Meeting> warpgroups;
inline Meeting cta;
inline Thread* current = nullptr;
inline unsigned passed = 0;              // meetings that threads have left, and threads that have ended
inline bool last_warp_is_ahead = false;  // of run(): else the first one
inline std::function<void()> body;
alignas(1024) inline std::byte shared_memory[4 << 20];

inline void meet(Meeting& meeting) {
    const unsigned round = meeting.round;
    if (++meeting.here == meeting.size) {
        meeting.here = 0;
        ++meeting.round;
    } else {
        while (meeting.round == round) swapcontext(&current->context, &scheduler);
    }
    ++passed;
}
inline void begin() {
    body();
    current->done = true;
    ++passed;
    swapcontext(&current->context, &scheduler);
}
inline void run(int count, std::function<void()> of_thread) {
    body = std::move(of_thread);
    warps.assign(static_cast<std::size_t>(count / 32), {});
    warpgroups.assign(static_cast<std::size_t>((count + 127) / 128), {128});
    cta = {count};
    while (threads.size() < static_cast<std::size_t>(count)) threads.push_back(std::make_unique<Thread>());
    for (int i = 0; i < count; ++i) {
        Thread& thread = *threads[static_cast<std::size_t>(i)];
        thread.number = i;
        thread.done = false;
        getcontext(&thread.context);
        thread.context.uc_stack.ss_sp = thread.stack.get();
        thread.context.uc_stack.ss_size = Thread::kStack;
        makecontext(&thread.context, begin, 0);
    }
    const auto go_on = [&](int warp) {
        for (int i = warp * 32; i < std::min(count, warp * 32 + 32); ++i) {
            current = threads[static_cast<std::size_t>(i)].get();
            if (!current->done) swapcontext(&scheduler, &current->context);
        }
    };
    const int many = (count + 31) / 32;
    for (unsigned before = passed - 1; before != passed;) {
        before = passed;
        for (int i = 0; i < many; ++i) {
            // This warp as far as it goes alone, then the next one.
            for (unsigned then = passed - 1; then != passed;) {
                then = passed;
                go_on(last_warp_is_ahead ? many - 1 - i : i);
            }
        }
    }
    for (int i = 0; i < count; ++i) {
        if (!threads[static_cast<std::size_t>(i)]->done) std::abort();  // all wait for one another
    }
}

inline int number() { return current->number; }
inline Warp& warp() { return warps[static_cast<std::size_t>(number() / 32)]; }
inline void meet_warp() { meet(warp().meeting); }
// What lanes show each other between two meetings.
template <class T>
void show(const T& value) {
    static_assert(sizeof value <= sizeof warp().slots[0]);
    std::memcpy(warp().slots[number() % 32], &value, sizeof value);
}
template <class T>
T shown_by(int lane) {
    T value;
    std::memcpy(&value, warp().slots[lane], sizeof value);
    return value;
}
template <class T, class Read>
auto exchange(const T& value, const Read& read) {
    show(value);
    meet_warp();
    const auto result = read();
    meet_warp();
    return result;
}

// Half k of pairs of 16-bit numbers.
inline float half_of(const std::uint32_t* words, int k) {
    const auto bits = static_cast<std::uint16_t>(k % 2 == 0 ? words[k / 2] : words[k / 2] >> 16);
    return __half2float(std::bit_cast<__half>(bits));
}
// Number k of 16 of a row of operand A, whose registers lane 4 r + q has.
struct OperandA {
    std::uint32_t words[4];
    static float at(int row, int k) {
        const auto of = shown_by<OperandA>(4 * (row % 8) + k % 8 / 2);
        return half_of(&of.words[row / 8 + 2 * (k / 8)], k % 2);
    }
};
template <class B>
float add_products(float sum, int row, const B& of_column) {
    for (int k = 0; k < 16; ++k) sum += OperandA::at(row, k) * of_column(k);
    return sum;
}

struct Index {
    unsigned x = 0, y = 0;
};
inline Index block_index;
struct ThreadIndex {
    struct {
        operator unsigned() const { return static_cast<unsigned>(number()); }
    } x;
};
inline ThreadIndex thread_index;

}  // namespace foresay::test::emulated

#define threadIdx foresay::test::emulated::thread_index
#define blockIdx foresay::test::emulated::block_index

inline int min(int a, int b) { return std::min(a, b); }
inline int max(int a, int b) { return std::max(a, b); }
inline float __uint_as_float(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline std::uint32_t __float_as_uint(float value) { return std::bit_cast<std::uint32_t>(value); }
template <class T>
T __ldg(const T* from) {
    return *from;
}
template <class T>
T __ldcg(const T* from) {
    return *from;
}
inline std::uint32_t __byte_perm(std::uint32_t x, std::uint32_t y, std::uint32_t selectors) {
    const std::uint64_t both = std::uint64_t{y} << 32 | x;
    std::uint32_t out = 0;
    for (int i = 0; i < 4; ++i) {
        const std::uint32_t byte = selectors >> (4 * i) & 7u;
        out |= static_cast<std::uint32_t>(both >> (8 * byte) & 255u) << (8 * i);
    }
    return out;
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {  // of codes: exact
    const float2 x = __half22float2(a), y = __half22float2(b), z = __half22float2(c);
    return __floats2half2_rn(x.x * y.x + z.x, x.y * y.y + z.y);
}
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
    return foresay::test::emulated::exchange(value, [&] { return foresay::test::emulated::shown_by<T>(lane); });
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
    using namespace foresay::test::emulated;
    return exchange(value, [&] { return shown_by<T>(number() % 32 ^ mask); });
}
inline unsigned __reduce_max_sync(unsigned, unsigned value) {
    using namespace foresay::test::emulated;
    return exchange(value, [&] {
        unsigned most = 0;
        for (int lane = 0; lane < 32; ++lane) most = std::max(most, shown_by<unsigned>(lane));
        return most;
    });
}
inline unsigned __ballot_sync(unsigned, bool value) {
    using namespace foresay::test::emulated;
    return exchange(value, [&] {
        unsigned all = 0;
        for (int lane = 0; lane < 32; ++lane) all |= static_cast<unsigned>(shown_by<bool>(lane)) << lane;
        return all;
    });
}
inline int __any_sync(unsigned lanes, bool value) { return __ballot_sync(lanes, value) != 0; }
inline void __syncwarp() { foresay::test::emulated::meet_warp(); }
inline void __syncthreads() { foresay::test::emulated::meet(foresay::test::emulated::cta); }
