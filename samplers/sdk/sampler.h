/* samplers/sdk/sampler.h: the contract between foresay and a sampler. C11, needs nothing but <stdint.h>.
 *
 * A sampler shapes the distribution of the next token: it lowers, raises or drops candidates. The host samples the
 * token. A plugin is a shared library that exports one symbol, the constant `foresay_sampler_entry`.
 *
 * Versions:  the major version of plugin and host must be equal. Structs only grow at their end, and each begins with
 *            its size as the author's compiler saw it; members beyond that size do not exist. Reserved bits are 0.
 * Threads:   [main]   one thread at a time per library
 *            [state]  one thread at a time per state; different states of one instance may run at once
 *            [any]    any thread at any time
 * Memory:    each side frees only what it allocated. A pointer handed over is valid until the call returns, unless its
 *            comment says otherwise.
 * Errors:    functions return FORESAY_OK or FORESAY_FAILED, the latter after host->report() has said why in one
 *            sentence. No exception and no longjmp may leave a function.
 * Purity:    process() must be a function of instance, state, context and candidates, and must change none of them but
 *            the candidates. A state must depend on nothing but what `memory` declares. Otherwise text would depend on
 *            how it was computed. Row index, number of rows, and whether a row was drafted are never visible. The host
 *            makes some calls of process() twice and refuses two answers.
 * Crashes:   a plugin runs in the host's process. A crash, exit() or an endless loop in a function ends the program,
 * with a message that names the plugin; a build that has crashed is not loaded again until the user allows it.
 */
#ifndef FORESAY_SAMPLER_H
#define FORESAY_SAMPLER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FORESAY_SAMPLER_ABI_MAJOR 1u
#define FORESAY_SAMPLER_ABI_MINOR 0u

/* The name of the exported symbol. */
#define FORESAY_SAMPLER_ENTRY "foresay_sampler_entry"

#define FORESAY_OK 0
#define FORESAY_FAILED 1

/* Bytes, UTF-8 unless said otherwise, not terminated. */
typedef struct foresay_text {
    const char* data;
    uint64_t size;
} foresay_text;

/* ------------------------------------------------------------------------------------------------------ parameters */

/* foresay_value.type and foresay_parameter.type */
#define FORESAY_BOOLEAN 1u
#define FORESAY_INTEGER 2u
#define FORESAY_REAL 3u
#define FORESAY_TEXT 4u
#define FORESAY_CHOICE 5u /* a text out of choices */
#define FORESAY_TEXT_LIST 6u
#define FORESAY_INTEGER_LIST 7u
#define FORESAY_REAL_LIST 8u

typedef struct foresay_value {
    uint32_t type;
    uint32_t count;    /* entries of a list */
    int64_t integer;   /* BOOLEAN (0 or 1), INTEGER */
    double real;       /* REAL */
    foresay_text text; /* TEXT, CHOICE */
    const foresay_text* texts;
    const int64_t* integers;
    const double* reals;
} foresay_value;

/* One parameter. The host checks type and range of what a configuration states; a sampler sees valid values only. The
 * fallback must be in the range, and among the choices, too. Names must differ. */
typedef struct foresay_parameter {
    uint32_t struct_size;
    uint32_t type;
    const char* name; /* lower_case */
    const char* doc;  /* one line */
    foresay_value fallback;
    double min; /* of numbers and entries of number lists, inclusive; used when min < max, and never above max */
    double max;
    const char* const* choices;
    uint32_t choice_count;
    uint32_t reserved;
} foresay_parameter;

/* ---------------------------------------------------------------------------------------------------- host services */

#define FORESAY_LOG_INFO 1u
#define FORESAY_LOG_WARNING 2u

/* Valid until the instance that it was given to has been destroyed. */
typedef struct foresay_host {
    uint32_t struct_size;
    uint32_t reserved;
    void* self; /* first argument of the functions below */

    /* [any] Number of tokens: ids are 0 .. size - 1. Candidates are always among them. */
    int32_t (*vocabulary_size)(void* self);
    /* [any] The bytes of a token, which need not be whole UTF-8 characters; empty for control tokens and ids out of
     * range. Valid as long as the host struct. */
    foresay_text (*token_text)(void* self, int32_t id);
    /* [any] The id whose bytes are exactly `text`, or -1. */
    int32_t (*find_token)(void* self, foresay_text text);
    /* [any] A line for the user's log. */
    void (*log)(void* self, uint32_t level, foresay_text text);
    /* [any] Why the call in progress on this thread is going to return FORESAY_FAILED. */
    void (*report)(void* self, foresay_text text);
} foresay_host;

/* -------------------------------------------------------------------------------------------------------- a sampler */

/* foresay_sampler.memory: what a state depends on. */
#define FORESAY_STATELESS 0u /* nothing: the state functions are NULL */
#define FORESAY_HISTORY 1u   /* the tokens accepted so far */
#define FORESAY_FEEDBACK 2u  /* also the probability that each token had when it was sampled */

/* foresay_sampler.flags */
#define FORESAY_RANDOMISED 1u       /* calls context->random */
#define FORESAY_MASKS_ONLY 2u       /* drops candidates or sets -inf, never changes another logit */
#define FORESAY_WHOLE_VOCABULARY 4u /* sees every candidate; otherwise the 512 best, which is far cheaper */

/* foresay_context.phase */
#define FORESAY_DECIDE 0u  /* shaping what the token is sampled from */
#define FORESAY_PROPOSE 1u /* shaping a draft: may be coarser, which costs only speed */

typedef struct foresay_context {
    uint32_t struct_size;
    uint32_t phase;
    uint64_t index;         /* absolute index of the token to be sampled; the first token of all has index 0 */
    const int32_t* history; /* all `index` tokens before it, the prompt included */
    uint64_t seed;          /* of the generation; use `random` for random numbers */
    /* [state] 32 random bits, a function of seed, branch, index, this sampler's name, and `counter`. */
    uint32_t (*random)(const struct foresay_context* context, uint32_t counter);
    const void* reserved;
} foresay_context;

typedef struct foresay_candidates {
    uint32_t struct_size;
    uint32_t count; /* may be lowered: entries from there on are dropped */
    /* Sorted when the call begins: best logit first, ties by lowest id. Entries may be reordered and logits changed.
     * Each id must be among those handed in and occur once; -inf drops a candidate; NaN and +inf are failures; at least
     * one must stay. Only differences between logits count: where the best is raised beyond 65536, in either direction,
     * the host subtracts it from all, because float has no room for the noise there. */
    int32_t* ids;
    float* logits;
} foresay_candidates;

typedef struct foresay_sampler {
    uint32_t struct_size;
    uint32_t memory;
    uint32_t flags;
    uint32_t parameter_count;
    const char* name; /* lower_case; the chain's and the configuration's name for it */
    const char* version;
    const char* doc; /* one line */
    const char* licence;
    const foresay_parameter* parameters;

    /* [main] Makes an instance, with everything that can be computed from its parameters in advance. `values` has one
     * entry per parameter, in their order. */
    int32_t (*create)(const foresay_host* host, const foresay_value* values, void** instance);
    /* [main] Called after all states of the instance have been destroyed. */
    void (*destroy)(void* instance);

    /* [main] Makes a state that has accepted nothing. */
    int32_t (*state_create)(void* instance, void** state);
    /* [main] */
    void (*state_destroy)(void* instance, void* state);
    /* [state] Back to having accepted nothing. */
    int32_t (*state_reset)(void* instance, void* state);
    /* [state] Makes `to` equal to `from`. NULL: the sampler cannot be cloned, and the draft is not shaped by it. Called
     * once per round of drafting: should not allocate once warm. */
    int32_t (*state_copy)(void* instance, void* to, const void* from);
    /* [state] `count` tokens follow those accepted before. `log_probability` is NULL for given text; otherwise it
     * points to the natural logarithm of the probability that the one token had when it was sampled. */
    int32_t (*accept)(void* instance, void* state, const int32_t* tokens, uint64_t count, const float* log_probability);

    /* [state] Shapes the candidates. `state` is NULL for stateless samplers. */
    int32_t (*process)(void* instance, const void* state, const foresay_context* context,
                       foresay_candidates* candidates);
} foresay_sampler;

/* What a library exports. Plain data: it is read before any function is called. */
typedef struct foresay_sampler_library {
    uint32_t struct_size;
    uint32_t abi_major;
    uint32_t abi_minor;
    uint32_t sampler_count;
    const foresay_sampler* const* samplers;
} foresay_sampler_library;

#ifdef __cplusplus
}
#endif

#endif
