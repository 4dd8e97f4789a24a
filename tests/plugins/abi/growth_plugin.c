/* tests/plugins/abi/growth_plugin.c: a sampler in plain C, built from the header of 1.0 and from one of 1.1 that only a
 * test knows. It drops odd ids; where host and plugin both know of 1.1, it drops id 0, too. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include GROWTH_HEADER

#ifndef NEEDS_MINOR
#define NEEDS_MINOR 0u
#endif

typedef struct instance {
    int newer;
    int sound;
    double least;
} instance;

static int32_t create(const foresay_host* host, const foresay_value* values, void** made) {
    instance* own = calloc(1, sizeof *own);
    if (own == NULL || host->vocabulary_size(host->self) < 1) return FORESAY_FAILED;
#if FORESAY_SAMPLER_ABI_MINOR >= 1
    own->newer = host->struct_size >= offsetof(foresay_host, added_in_1_1) + sizeof host->added_in_1_1;
#endif
    own->least = values[0].real + (double)values[1].integer;
    own->sound = (int)values[2].integer;
    *made = own;
    return FORESAY_OK;
}

static void destroy(void* own) { free(own); }

static int32_t state_create(void* own, void** state) {
    (void)own;
    *state = calloc(1, sizeof(uint64_t));
    return *state != NULL ? FORESAY_OK : FORESAY_FAILED;
}
static void state_destroy(void* own, void* state) {
    (void)own;
    free(state);
}
static int32_t state_begin(void* own, void* state, const int32_t* tokens, uint64_t count, uint64_t answer) {
    (void)own;
    (void)tokens;
    (void)answer;
    *(uint64_t*)state = count;
    return FORESAY_OK;
}
static int32_t state_copy(void* own, void* to, const void* from) {
    (void)own;
    memcpy(to, from, sizeof(uint64_t));
    return FORESAY_OK;
}
static int32_t accept(void* own, void* state, const foresay_token* token) {
    (void)own;
    if (token->struct_size < 24 || token->fate == 0) return FORESAY_FAILED;
    ++*(uint64_t*)state;
    return FORESAY_OK;
}
static int32_t process(void* own, const void* state, const foresay_context* context, foresay_candidates* candidates) {
    const instance* at = own;
    if (*(const uint64_t*)state != context->index) return FORESAY_FAILED;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < candidates->count; ++i) {
        const int32_t id = candidates->ids[i];
        if (id % 2 != 0 || (id == 0 && at->newer) || candidates->logits[i] < at->least) continue;
        candidates->ids[kept] = id;
        candidates->logits[kept++] = candidates->logits[i];
    }
    /* The entries were moved only where some were kept. */
    candidates->count = kept == 0 && at->sound ? 1 : kept;
    return FORESAY_OK;
}

static const foresay_parameter parameters[] = {{.struct_size = sizeof(foresay_parameter),
                                                .type = FORESAY_REAL,
                                                .name = "least",
                                                .doc = "Least logit.",
                                                .fallback = {.type = FORESAY_REAL, .real = -100.0},
                                                .min = -1000.0,
                                                .max = 1000.0},
                                               {.struct_size = sizeof(foresay_parameter),
                                                .type = FORESAY_INTEGER,
                                                .name = "more",
                                                .doc = "Added to it.",
                                                .fallback = {.type = FORESAY_INTEGER, .integer = 1}},
                                               {.struct_size = sizeof(foresay_parameter),
                                                .type = FORESAY_BOOLEAN,
                                                .name = "sound",
                                                .doc = "Keeps a candidate, as it must.",
                                                .fallback = {.type = FORESAY_BOOLEAN, .integer = 0}}};

static const foresay_sampler sampler = {.struct_size = sizeof(foresay_sampler),
                                        .memory = FORESAY_HISTORY,
                                        .flags = FORESAY_MASKS_ONLY
#if FORESAY_SAMPLER_ABI_MINOR >= 1
                                                 | 0x10000u /* of 1.1, to be ignored by 1.0 */
#endif
                                        ,
                                        .parameter_count = 3,
                                        .name = "growth",
                                        .version = "1",
                                        .doc = "Drops odd ids.",
                                        .licence = "Apache-2.0",
                                        .parameters = parameters,
                                        .create = create,
                                        .destroy = destroy,
                                        .state_create = state_create,
                                        .state_destroy = state_destroy,
                                        .state_begin = state_begin,
                                        .state_copy = state_copy,
                                        .accept = accept,
                                        .process = process};
static const foresay_sampler* const samplers[] = {&sampler};

__attribute__((visibility("default")))
const foresay_sampler_library foresay_sampler_entry = {.struct_size = sizeof(foresay_sampler_library),
                                                       .abi_major = FORESAY_SAMPLER_ABI_MAJOR,
                                                       .abi_minor = FORESAY_SAMPLER_ABI_MINOR,
                                                       .needs_minor = NEEDS_MINOR,
                                                       .sampler_count = 1,
                                                       .samplers = samplers};
