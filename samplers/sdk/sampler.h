/* samplers/sdk/sampler.h: the contract between foresay and a sampler. C11, needs nothing but <stdint.h>.
 *
 * A sampler shapes the distribution of the next token: it lowers, raises or drops candidates. The host samples the
 * token. A plugin is a shared library that exports one symbol, the constant `foresay_sampler_entry`.
 *
 * Versions:  this is major version 1, for ever: what it says of 1.0 stays. Structs that begin with struct_size may grow
 *            at their end in later minor versions. struct_size is what the compiler of its author saw; members beyond
 *            it do not exist, so a reader of a member newer than 1.0 compares first. foresay_value and foresay_text
 *            have no size and never grow. A library says which minor version it needs at least (needs_minor), and what
 *            it was compiled with only for information: any host of that minor or a later one takes it. Other additions
 *            are extensions, asked for by name ("math/1"), in both directions.
 * Flags:     a bit of the lower 16 of `flags` that a host does not know makes it refuse the sampler; one of the upper
 *            16 is ignored. Members called reserved are 0.
 * Threads:   [main]   one thread at a time per library
 *            [state]  one thread at a time per state; different states of one instance may run at once. Of a sampler
 *                     without state: any
 *            [any]    any thread at any time
 * Memory:    each side frees only what it allocated. A pointer handed over is valid until the call returns, unless its
 *            comment says otherwise.
 * Errors:    functions return FORESAY_OK or FORESAY_FAILED, the latter after host->report() has said why in one
 *            sentence. What a create function that fails leaves behind in *instance or *state is ignored: it is not
 *            destroyed, and the sampler frees it itself. No exception and no longjmp may leave a function.
 * Purity:    process(), test(), mask() and forced() must be functions of instance, state, context and arguments, and
 *            must change none of them but what they are to fill in. A state must depend on nothing but what `memory`
 *            declares. Otherwise text would depend on how it was computed. Row index, number of rows, and whether a row
 *            was drafted are never visible. The host makes some calls twice and refuses two answers.
 * Process:   floating-point state (rounding, flush-to-zero), locale, signal handlers, standard input and output, the
 *            environment and the current folder are the host's. The host compares the floating-point state after
 *            loading and after each call, restores it, and refuses a sampler that has changed it; `foresay plugin
 *            check` looks at the others.
 * Crashes:   a plugin runs in the host's process unless it is isolated. A crash, exit() or an endless loop in a
 *            function ends the program, with a message that names the plugin; a build that has crashed is not loaded
 *            again until the user allows it.
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

/* Bytes, UTF-8 unless said otherwise, not terminated. Never grows. */
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
/* A configuration states a path, relative to its own folder. The host reads the file, of at most 16 MiB, and hands over
 * its bytes in `text` and the path in texts[0]; count is 0 where no file is stated. The fallback is no file. */
#define FORESAY_FILE 9u

/* Never grows. */
typedef struct foresay_value {
    uint32_t type;
    uint32_t count;    /* entries of a list */
    int64_t integer;   /* BOOLEAN (0 or 1), INTEGER */
    double real;       /* REAL */
    foresay_text text; /* TEXT, CHOICE, FILE */
    const foresay_text* texts;
    const int64_t* integers;
    const double* reals;
} foresay_value;

/* One parameter. The host checks type and range of what a configuration states; a sampler sees valid values only. The
 * fallback must be in the range, and among the choices, too. Names must differ. All entries of a list of parameters
 * have the same struct_size. */
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

/* token_kind() */
#define FORESAY_TOKEN_UNUSED 0u  /* never in a text; also ids out of range */
#define FORESAY_TOKEN_TEXT 1u    /* bytes of the text */
#define FORESAY_TOKEN_CONTROL 2u /* has a name, and no bytes in the text */

/* Valid until the instance that it was given to has been destroyed. */
typedef struct foresay_host {
    uint32_t struct_size;
    uint32_t reserved;
    void* self; /* first argument of the functions below */

    /* [any] Number of tokens: ids are 0 .. size - 1. Candidates are always among them. */
    int32_t (*vocabulary_size)(void* self);
    /* [any] */
    uint32_t (*token_kind)(void* self, int32_t id);
    /* [any] The bytes of a text token, which need not be whole UTF-8 characters; empty for other ids. Valid as long as
     * the host struct. */
    foresay_text (*token_text)(void* self, int32_t id);
    /* [any] The name of a control token, such as <|im_end|>; empty for other ids. Valid as long as the host struct. */
    foresay_text (*control_text)(void* self, int32_t id);
    /* [any] The text token whose bytes are exactly `text`, or -1. */
    int32_t (*find_token)(void* self, foresay_text text);
    /* [any] The control token whose name is exactly `text`, or -1. */
    int32_t (*find_control)(void* self, foresay_text text);
    /* [any] How many tokens end a text; *ids is set to them, in rising order, valid as long as the host struct. */
    uint32_t (*end_tokens)(void* self, const int32_t** ids);
    /* [any] The tokens of a text, without special ones: fills in at most `room` of them and returns how many there are;
     * -1 where the model has no tokenizer. */
    int64_t (*tokenize)(void* self, foresay_text text, int32_t* ids, uint64_t room);
    /* [any] The name of the model; may be empty. Valid as long as the host struct. */
    foresay_text (*model_name)(void* self);
    /* [any] A line for the user's log. */
    void (*log)(void* self, uint32_t level, foresay_text text);
    /* [any] Why the call in progress on this thread is going to return FORESAY_FAILED. */
    void (*report)(void* self, foresay_text text);
    /* [any] What the host offers beyond this struct, by name; NULL where it does not. Valid until the program ends. */
    const void* (*extension)(void* self, foresay_text name);
} foresay_host;

/* host->extension("math/1"): the functions that the host samples with, whose bits are the same on every machine. Those
 * of <math.h> are not, and a choice that depends on them makes the text depend on the machine. */
#define FORESAY_MATH_EXTENSION "math/1"
typedef struct foresay_math {
    uint32_t struct_size;
    uint32_t reserved;
    float (*exp)(float x); /* [any] */
    float (*log)(float x); /* [any] */
    /* [any] The logarithm of the sum of exp(logits[i]), whatever their order; logits[0] must be the largest. */
    float (*log_sum)(const float* logits, uint32_t count);
} foresay_math;

/* -------------------------------------------------------------------------------------------------------- a sampler */

/* foresay_sampler.memory: what a state depends on. */
#define FORESAY_STATELESS 0u /* nothing: the state functions are NULL */
#define FORESAY_HISTORY 1u   /* the tokens so far, and where the answer begins */
#define FORESAY_FEEDBACK 2u  /* also the probabilities that tokens of this answer were drawn with; needs process() */

/* foresay_sampler.flags */
#define FORESAY_RANDOMISED 1u       /* calls context->random */
#define FORESAY_MASKS_ONLY 2u       /* process() drops candidates or sets -inf, and never changes another logit */
#define FORESAY_WHOLE_VOCABULARY 4u /* process() sees every candidate; otherwise the 512 best, which is far cheaper */

/* foresay_context.phase */
#define FORESAY_DECIDE 0u  /* shaping what the token is sampled from */
#define FORESAY_PROPOSE 1u /* shaping a draft: may be coarser, which costs only speed. Only process() sees it */

typedef struct foresay_context {
    uint32_t struct_size;
    uint32_t phase;
    uint64_t index;         /* absolute index of the token to be sampled; the first token of all has index 0 */
    const int32_t* history; /* all `index` tokens before it, the prompt included */
    uint64_t answer;        /* tokens from this index on are the answer; those before it are the prompt */
    uint64_t seed;          /* of the generation; use `random` for random numbers */
    uint64_t branch;        /* which of several answers with one seed */
    /* [state] 32 random bits, a function of seed, branch, index, this stage's name, and `counter`. `context` may be a
     * copy of what the call was given. */
    uint32_t (*random)(const struct foresay_context* context, uint32_t counter);
    const void* host; /* the host's own */
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

/* foresay_token.fate */
#define FORESAY_DRAWN 1u    /* the token was sampled, and is part of the text */
#define FORESAY_SUPPOSED 2u /* a copy of the state is told what a draft supposes; the copy is dropped later */

/* A token that follows those that a state knows. */
typedef struct foresay_token {
    uint32_t struct_size;
    uint32_t fate; /* a state with memory HISTORY must not depend on it */
    int32_t id;
    uint32_t reserved;
    /* Natural logarithms of the token's probability: at the end of the chain, where it was drawn, and among the
     * candidates that this stage received; -inf where it was not among them. NaN unless the token was drawn and memory
     * is FEEDBACK. */
    float log_probability;
    float received_log_probability;
} foresay_token;

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

    /* [main] Makes a state that has not begun. */
    int32_t (*state_create)(void* instance, void** state);
    /* [main] */
    void (*state_destroy)(void* instance, void* state);
    /* [state] A text begins, or begins again: it has `count` tokens, of which those from index `answer` on belong to
     * the answer already (text that it was made to begin with, or an answer that is taken up again). Whatever the state
     * was before does not matter. With memory HISTORY, beginning with a longer text is the same as beginning and
     * accepting the rest. */
    int32_t (*state_begin)(void* instance, void* state, const int32_t* tokens, uint64_t count, uint64_t answer);
    /* [state] Makes `to` equal to `from`. NULL: the sampler cannot be cloned, and the draft is not shaped by it. Called
     * once per round of drafting: should not allocate once warm. */
    int32_t (*state_copy)(void* instance, void* to, const void* from);
    /* [state] A token follows. */
    int32_t (*accept)(void* instance, void* state, const foresay_token* token);

    /* How it shapes: at least one of the three. Where it has several they must agree, and the host calls the one that
     * costs it least. `state` is NULL for stateless samplers. The index of the context is that of the token to follow.
     */

    /* [state] Shapes the candidates. */
    int32_t (*process)(void* instance, const void* state, const foresay_context* context,
                       foresay_candidates* candidates);
    /* [state] keep[i] = 1 where ids[i] may follow, 0 where it may not: each judged by itself, whatever the others are.
     * It acts on the whole vocabulary, though the host asks only about tokens that matter. */
    int32_t (*test)(void* instance, const void* state, const foresay_context* context, const int32_t* ids,
                    uint32_t count, uint8_t* keep);
    /* [state] Sets bit id % 32 of bits[id / 32] for each token that may follow. All bits are 0 when the call begins;
     * there are (vocabulary size + 31) / 32 words. Runs where the logits are: on the device, too. */
    int32_t (*mask)(void* instance, const void* state, const foresay_context* context, uint32_t* bits, uint64_t words);
    /* [state] May be NULL. Bytes with which the text must go on, if it does not end: an empty text where several ways
     * are open. The host may draft them; tokens are still sampled and must still pass. Valid until the next call into
     * the sampler on this thread. */
    int32_t (*forced)(void* instance, const void* state, const foresay_context* context, foresay_text* bytes);

    /* [any] What the sampler offers beyond this struct, by name; NULL where it does not. May itself be NULL. Valid
     * until the library is unloaded. */
    const void* (*extension)(foresay_text name);
} foresay_sampler;

/* sampler->extension("self_test/1"): tests of its own, which `foresay plugin check` runs. */
#define FORESAY_SELF_TEST_EXTENSION "self_test/1"
typedef struct foresay_self_test {
    uint32_t struct_size;
    uint32_t reserved;
    int32_t (*run)(const foresay_host* host); /* [main] */
} foresay_self_test;

/* What a library exports. Plain data: it is read before any function is called. */
typedef struct foresay_sampler_library {
    uint32_t struct_size;
    uint32_t abi_major;
    uint32_t abi_minor;   /* what it was compiled with */
    uint32_t needs_minor; /* the lowest minor version that it works with: 0 unless it needs something newer */
    uint32_t sampler_count;
    uint32_t reserved;
    const foresay_sampler* const* samplers;
} foresay_sampler_library;

#ifdef __cplusplus
}
#endif

#endif
