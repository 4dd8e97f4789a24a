// kernels/cuda/device/stream_marks.h: places in a stream, and how far it has come: a sign of life of a device that has
// much to do.
//
// Layout:   plain C++ without CUDA. The caller supplies the event type, which has record(stream) and has_come().
// Threads:  as for the stream: mark() needs a DeviceScope, unreached() does not.
// Cost:     an event for each mark that is not reached yet, kMostStreamMarks at most; a query for unreached().
// Errors:   unreached() throws Error when the device has failed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace foresay::kernels::cuda {

inline constexpr std::int64_t kMostStreamMarks = 40;  // more than kMostMarksOfLayers (kernels/split_ops.h)

template <class Event>
class StreamMarks {
public:
    // After all that is enqueued. A mark beyond kMostStreamMarks is one with the mark before it, which then comes
    // later.
    template <class Stream>
    void mark(const Stream& stream) {
        if (unreached() == kMostStreamMarks) --made_;
        at(made_).record(stream);
        ++made_;
    }
    // How many marks the stream has not reached yet.
    std::int64_t unreached() {
        while (reached_ < made_ && at(reached_).has_come()) ++reached_;
        return made_ - reached_;
    }

private:
    Event& at(std::int64_t mark) { return events_[static_cast<std::size_t>(mark % kMostStreamMarks)]; }

    std::array<Event, static_cast<std::size_t>(kMostStreamMarks)> events_;
    std::int64_t made_ = 0, reached_ = 0;
};

}  // namespace foresay::kernels::cuda
