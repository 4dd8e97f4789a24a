// tests/plugins/bad_plugin.cpp: plugins that are wrong in one way each, chosen by BAD_KIND when compiled.

#include <cstdlib>
#include <limits>
#include <stdexcept>

#include "samplers/sdk/sampler.hpp"

namespace {

struct Bad {
    static constexpr foresay::Info info{BAD_NAME, "1", "Breaks the contract.", "Apache-2.0"};
    explicit Bad(foresay::detail::NoParameters, foresay::Host) {
        if (BAD_KIND == 4) throw std::runtime_error("it does not want to");
    }
    void process(const foresay::Context&, foresay::Candidates& candidates) const {
        if (BAD_KIND == 0) throw std::runtime_error("it throws on purpose");
        if (BAD_KIND == 1) candidates.logit(0) = std::numeric_limits<float>::quiet_NaN();
        if (BAD_KIND == 2) candidates.truncate(0);
        if (BAD_KIND == 3) std::abort();
    }
};

}  // namespace

#if BAD_KIND == 5  // another major version
extern "C" __attribute__((visibility("default"))) const foresay_sampler_library foresay_sampler_entry;
extern "C" const foresay_sampler_library foresay_sampler_entry = {sizeof(foresay_sampler_library),     99, 0, 0, 1, 0,
                                                                  foresay::detail::Samplers<Bad>::list};
#elif BAD_KIND == 6   // the entry is a function
extern "C" __attribute__((visibility("default"))) int foresay_sampler_entry() { return 0; }
#elif BAD_KIND == 7   // no entry
extern "C" __attribute__((visibility("default"))) const int something_else = 1;
#elif BAD_KIND == 8   // crashes while it is loaded
__attribute__((constructor)) static void crash() { std::abort(); }
FORESAY_EXPORT_SAMPLERS(Bad)
#elif BAD_KIND == 9   // points nowhere, aligned
extern "C" __attribute__((visibility("default"))) const foresay_sampler_library foresay_sampler_entry;
extern "C" const foresay_sampler_library foresay_sampler_entry = {
    sizeof(foresay_sampler_library),
    FORESAY_SAMPLER_ABI_MAJOR,
    FORESAY_SAMPLER_ABI_MINOR,
    0,
    3,
    0,
    reinterpret_cast<const foresay_sampler* const*>(0x1000)};
#elif BAD_KIND == 10  // ends the program while it is loaded
__attribute__((constructor)) static void leave() { std::exit(0); }
FORESAY_EXPORT_SAMPLERS(Bad)
#elif BAD_KIND == 11  // more samplers than there can be
extern "C" __attribute__((visibility("default"))) const foresay_sampler_library foresay_sampler_entry;
extern "C" const foresay_sampler_library foresay_sampler_entry = {
    sizeof(foresay_sampler_library),     FORESAY_SAMPLER_ABI_MAJOR, FORESAY_SAMPLER_ABI_MINOR, 0, 4000000000u, 0,
    foresay::detail::Samplers<Bad>::list};
#elif BAD_KIND == 12  // one name for two samplers
FORESAY_EXPORT_SAMPLERS(Bad, Bad)
#elif BAD_KIND == 13  // two samplers, none of which has the file's name
namespace {
struct First : Bad {
    static constexpr foresay::Info info{"first", "1", "One of two.", "Apache-2.0"};
    using Bad::Bad;
};
struct Second : Bad {
    static constexpr foresay::Info info{"second", "1", "The other.", "Apache-2.0"};
    using Bad::Bad;
};
}  // namespace
FORESAY_EXPORT_SAMPLERS(First, Second)
#elif BAD_KIND == 14  // flushes small numbers to zero in the thread that loads it, as code linked with -ffast-math does
#if defined(__x86_64__)
#include <xmmintrin.h>
__attribute__((constructor)) static void flush() { _mm_setcsr(_mm_getcsr() | 0x8040u); }
#endif
FORESAY_EXPORT_SAMPLERS(Bad)
#else
FORESAY_EXPORT_SAMPLERS(Bad)
#endif
