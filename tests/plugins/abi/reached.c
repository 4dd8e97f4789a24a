/* tests/plugins/abi/reached.c: a library from whose symbols every type of the contract can be reached, for abidiff. */
#ifdef REACHED_MOVED
#define fate  \
    inserted; \
    uint32_t fate /* a member in front of another, which must be noticed */
#endif
#include REACHED_HEADER

const foresay_sampler_library foresay_sampler_entry = {.struct_size = sizeof(foresay_sampler_library)};
const foresay_math foresay_reached_math = {.struct_size = sizeof(foresay_math)};
const foresay_self_test foresay_reached_self_test = {.struct_size = sizeof(foresay_self_test)};
