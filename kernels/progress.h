// kernels/progress.h: how far a backend has come that runs apart from the host: what a list of backends looks at so
// that no wait for one of them lasts for ever (kernels/list_ops.h). One that does not derive from Progress has done all
// when a call returns, or limits its waits itself.
//
// Threads:  as for the ops.
// Cost:     none of these waits.
// Errors:   what fails on a device is thrown where it is noticed.
#pragma once

#include <cstdint>

#include "kernels/ops.h"

namespace foresay::kernels {

class Progress {
public:
    virtual ~Progress() = default;

    // Runs what was called so far, without waiting for it: start() in a forward that is handed on within a layer,
    // flush() in others.
    virtual void start(Workspace&) {}
    virtual void flush() {}
    // Whether all that was started has run, of any workspace. Where it has not, reading values would wait.
    virtual bool idle() { return true; }
    // Signs of life. mark() notes a place after all that was started so far; unreached() says how many of those places
    // have not been reached yet. Few at a time: kMostMarksOfLayers of split_ops.h.
    virtual void mark() {}
    virtual std::int64_t unreached() { return 0; }

    // It has not answered in time: until it has done what it was given, nothing may wait for it (kernels/given_up.h).
    virtual void give_up() {}
};

}  // namespace foresay::kernels
