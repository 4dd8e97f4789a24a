// plugins/host/process_state.h: what of a process a plugin must not change: locale, signal handlers, environment,
// current folder, threads, standard output. Linux.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace foresay::plugins {

class ProcessState {
public:
    // As it is now.
    ProcessState();
    // "the locale": the first thing that differs now; empty: nothing does.
    std::string changed() const;

private:
    std::string locale_, folder_;
    std::vector<std::string> environment_;
    std::vector<std::string> handlers_;  // by signal
    std::size_t threads_ = 0;
    long written_ = 0;  // bytes to standard output, where that is a file
};

// How many files this process has open.
std::size_t open_files();

}  // namespace foresay::plugins
