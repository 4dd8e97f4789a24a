#include "base/error.h"

#include <cstdio>
#include <cstdlib>

namespace foresay {

void bug(const char* message, std::source_location where) {
    std::fprintf(stderr, "foresay: internal error at %s:%u: %s\n", where.file_name(), where.line(), message);
    std::abort();
}

}  // namespace foresay
