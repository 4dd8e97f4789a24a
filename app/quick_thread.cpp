#include "app/quick_thread.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace foresay::app {

namespace {

// As in sched_setattr(2); libc has no function for it.
struct SchedulerAttributes {
    std::uint32_t size = sizeof(SchedulerAttributes);
    std::uint32_t policy = 0;  // SCHED_OTHER
    std::uint64_t flags = 0;
    std::int32_t nice = 0;
    std::uint32_t priority = 0;
    std::uint64_t slice_ns = 0;  // 0: the kernel's own
    std::uint64_t deadline = 0;
    std::uint64_t period = 0;
};

constexpr std::uint64_t kShortestSliceNs = 100'000;

}  // namespace

void run_at_once(bool wanted) {
    SchedulerAttributes attributes;
    attributes.nice = ::getpriority(PRIO_PROCESS, 0);  // on Linux, the value of the calling thread
    attributes.slice_ns = wanted ? kShortestSliceNs : 0;
    ::syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace foresay::app
