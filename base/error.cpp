#include "base/error.h"

#include <cstdio>
#include <cstdlib>

namespace foresay {

void bug(const char* message, const char* file, int line) {
    std::fprintf(stderr, "foresay: internal error at %s:%d: %s\n", file, line, message);
    std::abort();
}

}  // namespace foresay
