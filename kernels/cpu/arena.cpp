#include "kernels/cpu/arena.h"

#include <sys/mman.h>

#include <string>

#include "base/error.h"

namespace foresay::kernels::cpu {
namespace {

constexpr std::int64_t kHugePage = 2 << 20;
constexpr std::int64_t kChunk = 16 * kHugePage;

std::int64_t round_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

}  // namespace

Block Arena::allocate_alone(std::int64_t bytes) {
    const std::int64_t size = round_up(bytes > 0 ? bytes : 1, kHugePage);
    // One huge page more than needed, so that the start can be aligned.
    const std::int64_t mapped = size + kHugePage;
    void* base = mmap(nullptr, static_cast<std::size_t>(mapped), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        throw Error("out of memory: cannot allocate " + std::to_string(bytes >> 20) +
                    " MiB for weights or KV cache; use a smaller model or a shorter context");
    }
    std::shared_ptr<void> owner(base, [mapped](void* p) { munmap(p, static_cast<std::size_t>(mapped)); });
    const auto address = reinterpret_cast<std::uintptr_t>(base);
    auto* data = static_cast<std::byte*>(base) +
                 (round_up(static_cast<std::int64_t>(address), kHugePage) - static_cast<std::int64_t>(address));
    madvise(data, static_cast<std::size_t>(size), MADV_HUGEPAGE);  // advice: failure costs only speed
    return {std::move(owner), data, bytes};
}

Block Arena::allocate(std::int64_t bytes) {
    const std::int64_t size = round_up(bytes, 64);
    if (size > kChunk / 4) return allocate_alone(bytes);
    if (!chunk_.data || used_ + size > chunk_.bytes) {
        chunk_ = allocate_alone(kChunk);
        used_ = 0;
    }
    Block block{chunk_.owner, chunk_.data + used_, bytes};
    used_ += size;
    return block;
}

}  // namespace foresay::kernels::cpu
