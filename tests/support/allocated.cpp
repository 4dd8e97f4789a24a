#include "tests/support/allocated.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::int64_t> calls = 0;
std::atomic<std::size_t> asked_for = 0, in_use = 0, most = 0;

void* allocate(std::size_t bytes, std::size_t alignment) {
    ++calls;
    asked_for += bytes;
    void* p = alignment > alignof(std::max_align_t)
                  ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
                  : std::malloc(bytes > 0 ? bytes : 1);
    if (!p) throw std::bad_alloc();
    const std::size_t now = in_use += malloc_usable_size(p);
    for (std::size_t before = most; before < now && !most.compare_exchange_weak(before, now);) {
    }
    return p;
}

void give_back(void* p) {
    if (p != nullptr) in_use -= malloc_usable_size(p);
    std::free(p);
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes, 1); }
void* operator new[](std::size_t bytes) { return allocate(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t a) { return allocate(bytes, static_cast<std::size_t>(a)); }
void* operator new[](std::size_t bytes, std::align_val_t a) { return allocate(bytes, static_cast<std::size_t>(a)); }
// Without these two a sanitizer's own would give memory that the operators below cannot take back.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, 1); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, 1); }
void operator delete(void* p) noexcept { give_back(p); }
void operator delete[](void* p) noexcept { give_back(p); }
void operator delete(void* p, std::size_t) noexcept { give_back(p); }
void operator delete[](void* p, std::size_t) noexcept { give_back(p); }
void operator delete(void* p, std::align_val_t) noexcept { give_back(p); }
void operator delete[](void* p, std::align_val_t) noexcept { give_back(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { give_back(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { give_back(p); }

namespace foresay::test {

std::int64_t allocations() { return calls; }
std::size_t allocated_bytes() { return asked_for; }
std::size_t most_bytes_in_use() { return most; }
void forget_most_bytes() { most = in_use.load(); }
std::size_t bytes_in_use() { return in_use; }

}  // namespace foresay::test
