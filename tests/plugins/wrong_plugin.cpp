// tests/plugins/wrong_plugin.cpp: samplers each of which breaks the contract in one way. `foresay plugin check` must
// name that way. They differ in what they declare and in the deed that their instances remember, so that they compile
// fast.

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cfenv>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <unordered_set>
#include <utility>

#include "samplers/sdk/sampler.h"

#ifdef WRONG_LIBRARY  // it exports more than its entry, and takes long to load
extern "C" __attribute__((visibility("default"))) int a_helper() { return 1; }
__attribute__((constructor)) static void sleep_a_while() { ::usleep(150000); }
#endif

namespace {

enum Deed {
    kNothing,
    kThrows,
    kFailsSilently,
    kNan,
    kInfinite,
    kLeavesNone,
    kInvents,
    kTwice,
    kChangesMasked,
    kGrows,
    kWritesBeyond,
    kReadsThree,
    kSmallTable,
    kCounts,
    kSharesTexts,
    kCountsInstances,
    kBeginDiffers,
    kFate,
    kNeverForgets,
    kCloneShares,
    kCloneEmpty,
    kNeighbours,
    kMaskDiffers,
    kProcessDiffers,
    kVerdictTwo,
    kMaskNone,
    kMaskBeyond,
    kSeeded,
    kClock,
    kAddress,
    kTableOrder,
    kCachesByIndex,
    kForcesOther,
    kLeaksStates,
    kLeaksInstances,
    kLeaksFiles,
    kLocale,
    kSignals,
    kEnvironment,
    kFolder,
    kPrints,
    kOwnThread,
    kRounding,
    kSharesScratch,
    kNarrow,
    kRefusesSilently,
    kAnyExtension,
    kSelfTestFails,
    kHangs,
    kExits,
    kAcceptFails,
    kDeeds
};

constexpr unsigned kProcess = 1, kTest = 2, kMask = 4, kForced = 8, kParameter = 16, kExtension = 32;

struct Kind {
    const char* name;
    std::uint32_t memory, flags;
    unsigned has;
};

constexpr Kind kKinds[kDeeds] = {
    {"nothing", FORESAY_HISTORY, FORESAY_MASKS_ONLY, kProcess | kTest | kMask},
    {"throws", 0, 0, kProcess},
    {"fails_silently", 0, 0, kProcess},
    {"nan", 0, 0, kProcess},
    {"infinite", 0, 0, kProcess},
    {"leaves_none", 0, 0, kProcess},
    {"invents", 0, 0, kProcess},
    {"twice", 0, 0, kProcess},
    {"changes_masked", 0, FORESAY_MASKS_ONLY, kProcess},
    {"grows", 0, 0, kProcess},
    {"writes_beyond", 0, 0, kProcess},
    {"reads_three", 0, 0, kProcess},
    {"small_table", 0, 0, kProcess},
    {"counts", 0, 0, kProcess},
    {"shares_texts", FORESAY_HISTORY, 0, kProcess},
    {"counts_instances", 0, 0, kProcess},
    {"begin_differs", FORESAY_HISTORY, 0, kProcess},
    {"fate", FORESAY_HISTORY, 0, kProcess},
    {"never_forgets", FORESAY_HISTORY, 0, kProcess},
    {"clone_shares", FORESAY_HISTORY, 0, kProcess},
    {"clone_empty", FORESAY_HISTORY, 0, kProcess},
    {"neighbours", 0, 0, kTest},
    {"mask_differs", 0, 0, kTest | kMask},
    {"process_differs", 0, 0, kProcess | kMask},
    {"verdict_two", 0, 0, kTest},
    {"mask_none", 0, 0, kMask},
    {"mask_beyond", 0, 0, kMask},
    {"seeded", 0, 0, kProcess},
    {"clock", 0, 0, kProcess},
    {"address", 0, 0, kProcess},
    {"table_order", 0, 0, kProcess},
    {"caches_by_index", 0, 0, kProcess},
    {"forces_other", 0, 0, kTest | kForced},
    {"leaks_states", FORESAY_HISTORY, 0, kProcess},
    {"leaks_instances", 0, 0, kProcess},
    {"leaks_files", 0, 0, kProcess},
    {"locale", 0, 0, kProcess},
    {"signals", 0, 0, kProcess},
    {"environment", 0, 0, kProcess},
    {"folder", 0, 0, kProcess},
    {"prints", 0, 0, kProcess},
    {"own_thread", 0, 0, kProcess},
    {"rounding", 0, 0, kProcess},
    {"shares_scratch", 0, 0, kProcess},
    {"narrow", 0, 0, kProcess | kParameter},
    {"refuses_silently", 0, 0, kProcess | kParameter},
    {"any_extension", 0, 0, kProcess | kExtension},
    {"self_test_fails", 0, 0, kProcess | kExtension},
    {"hangs", 0, 0, kProcess},
    {"exits", 0, 0, kProcess},
    {"accept_fails", FORESAY_HISTORY, 0, kProcess},
};

struct Instance {
    const foresay_host* host = nullptr;
    int deed = 0;
    int number = 0;
    volatile unsigned scratch = 0;
    int texts = 0;
    std::mutex mutex;
    std::map<std::pair<std::uint64_t, std::uint64_t>, unsigned> known;
};
struct State {
    unsigned own = 0;
    unsigned* sum = &own;
};

volatile int* const kNowhere = nullptr;
int instances = 0, calls = 0;

unsigned mixed(unsigned id, unsigned salt) { return (id * 2654435761u + salt * 40503u) >> 16; }
bool may_follow(unsigned id, unsigned salt) { return mixed(id, salt) % 8 != 0; }

std::int32_t make(int deed, const foresay_host* host, const foresay_value* values, void** instance) {
    if ((kKinds[deed].has & kParameter) != 0 && values[0].integer > 50) {
        if (deed == kRefusesSilently) return FORESAY_FAILED;
        *kNowhere = 1;
    }
    if (deed == kSmallTable && host->vocabulary_size(host->self) > 100000) *kNowhere = 1;
    if (deed == kLeaksFiles) static_cast<void>(::open("/dev/null", O_RDONLY));
    if (deed == kLocale) std::setlocale(LC_ALL, "C.UTF-8");
    if (deed == kSignals) ::signal(SIGUSR2, SIG_IGN);
    if (deed == kEnvironment) ::setenv("WRONG", "yes", 1);
    if (deed == kFolder && ::chdir("/") != 0) return FORESAY_FAILED;
    if (deed == kPrints) std::puts("hello");
    if (deed == kOwnThread && instances == 0) std::thread([] { ::sleep(1000); }).detach();
    Instance* const made = new Instance();
    made->host = host;
    made->deed = deed;
    made->number = instances++;
    *instance = made;
    return FORESAY_OK;
}
void destroy(void* instance) {
    Instance* const in = static_cast<Instance*>(instance);
    if (in->deed != kLeaksInstances) delete in;
}
std::int32_t state_create(void* instance, void** state) {
    if (static_cast<Instance*>(instance)->deed == kLeaksStates) static_cast<void>(::strdup("one more"));
    *state = new State();
    return FORESAY_OK;
}
void state_destroy(void*, void* state) { delete static_cast<State*>(state); }

void read_token(int deed, State& state, std::int32_t id, bool begins, bool supposed) {
    *state.sum = *state.sum * 31 + static_cast<unsigned>(id) + (deed == kBeginDiffers && begins ? 1 : 0) +
                 (deed == kFate && supposed ? 1 : 0);
}
std::int32_t state_begin(void* instance, void* state, const std::int32_t* tokens, std::uint64_t count, std::uint64_t) {
    Instance& in = *static_cast<Instance*>(instance);
    State& own = *static_cast<State*>(state);
    ++in.texts;
    if (in.deed != kNeverForgets) {
        own = State();
        own.sum = &own.own;
    }
    for (std::uint64_t i = 0; i < count; ++i) read_token(in.deed, own, tokens[i], true, false);
    return FORESAY_OK;
}
std::int32_t state_copy(void* instance, void* to, const void* from) {
    const int deed = static_cast<Instance*>(instance)->deed;
    State& copy = *static_cast<State*>(to);
    const State& other = *static_cast<const State*>(from);
    if (deed == kCloneEmpty) return FORESAY_OK;
    copy.own = *other.sum;
    copy.sum = deed == kCloneShares ? other.sum : &copy.own;
    return FORESAY_OK;
}
std::int32_t accept(void* instance, void* state, const foresay_token* token) {
    const int deed = static_cast<Instance*>(instance)->deed;
    if (deed == kAcceptFails) return FORESAY_FAILED;
    read_token(deed, *static_cast<State*>(state), token->id, false, token->fate == FORESAY_SUPPOSED);
    return FORESAY_OK;
}

// What the answer of a call depends on.
unsigned salt_of(Instance& in, const State* state, const foresay_context* context) {
    switch (in.deed) {
        case kCounts:
            return static_cast<unsigned>(++calls);
        case kSharesTexts:
            return static_cast<unsigned>(in.texts);
        case kCountsInstances:
            return static_cast<unsigned>(in.number);
        case kSeeded:
            return static_cast<unsigned>(context->seed % 1000);
        case kClock:
            return static_cast<unsigned>(std::time(nullptr) % 1000);
        case kAddress:
            return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(&in) >> 4);
        case kTableOrder: {
            // Where an object comes in a table of addresses: one so large that two processes hardly ever agree.
            static const auto object = std::make_unique<int>();
            static const std::unordered_set<const int*> table(100000);
            return static_cast<unsigned>(table.bucket(object.get()));
        }
        case kCachesByIndex: {
            // What it said first about this index, whatever the text was then.
            const std::lock_guard<std::mutex> lock(in.mutex);
            const unsigned last = context->index > 0 ? static_cast<unsigned>(context->history[context->index - 1]) : 0;
            return in.known.insert({{context->seed + context->branch, context->index}, last}).first->second;
        }
        case kSharesScratch:
            in.scratch = context->index > 0 ? static_cast<unsigned>(context->history[context->index - 1]) : 0;
            ::usleep(20);
            return in.scratch;
        default:
            return state != nullptr ? *state->sum : 0;
    }
}

std::int32_t process(void* instance, const void* state, const foresay_context* context, foresay_candidates* list) {
    Instance& in = *static_cast<Instance*>(instance);
    const unsigned salt = salt_of(in, static_cast<const State*>(state), context) + (in.deed == kProcessDiffers ? 1 : 0);
    // Never all of them.
    std::uint32_t kept = 0;
    for (std::uint32_t i = 0; i < list->count; ++i) {
        const bool stays = may_follow(static_cast<unsigned>(list->ids[i]), salt);
        if (!stays && (kept > 0 || i + 1 < list->count)) continue;
        list->ids[kept] = list->ids[i];
        list->logits[kept++] = list->logits[i];
    }
    const std::uint32_t count = list->count;
    list->count = kept;
    switch (in.deed) {
        case kThrows:
            throw std::runtime_error("thrown on purpose");
        case kFailsSilently:
            return FORESAY_FAILED;
        case kNan:
            list->logits[0] = std::numeric_limits<float>::quiet_NaN();
            break;
        case kInfinite:
            list->logits[0] = std::numeric_limits<float>::infinity();
            break;
        case kLeavesNone:
            list->count = 0;
            break;
        case kInvents:
            list->ids[0] = 1 << 20;
            break;
        case kTwice:
            if (kept > 1) list->ids[1] = list->ids[0];
            break;
        case kChangesMasked:
            list->logits[0] += 1.0f;
            break;
        case kGrows:
            list->count = count + 1;
            break;
        case kWritesBeyond:
            list->logits[count] = 0.0f;
            break;
        case kReadsThree:
            if (list->ids[2] == -7) list->count = 1;
            break;
        case kRounding:
            std::fesetround(FE_UPWARD);
            break;
        case kHangs:
            for (volatile int forever = 1; forever != 0;) {
            }
            break;
        case kExits:
            std::exit(0);
        default:
            break;
    }
    return FORESAY_OK;
}

std::int32_t test(void* instance, const void* state, const foresay_context* context, const std::int32_t* ids,
                  std::uint32_t count, std::uint8_t* keep) {
    Instance& in = *static_cast<Instance*>(instance);
    const unsigned salt = salt_of(in, static_cast<const State*>(state), context) + (in.deed == kMaskDiffers ? 1 : 0);
    for (std::uint32_t i = 0; i < count; ++i) {
        keep[i] = may_follow(static_cast<unsigned>(ids[i]), salt) ? 1 : 0;
        if (in.deed == kNeighbours && i > 0 && ids[i] > ids[i - 1]) keep[i] = 1 - keep[i];
        if (in.deed == kVerdictTwo) keep[i] = 2 * keep[i];
    }
    return FORESAY_OK;
}

std::int32_t mask(void* instance, const void* state, const foresay_context* context, std::uint32_t* bits,
                  std::uint64_t words) {
    Instance& in = *static_cast<Instance*>(instance);
    const unsigned salt = salt_of(in, static_cast<const State*>(state), context);
    for (std::uint64_t i = 0; i < words * 32 && in.deed != kMaskNone; ++i) {
        if (may_follow(static_cast<unsigned>(i), salt)) bits[i / 32] |= 1u << (i % 32);
    }
    if (in.deed == kMaskBeyond) bits[words] = 1;
    return FORESAY_OK;
}

std::int32_t forced(void*, const void*, const foresay_context*, foresay_text* bytes) {
    *bytes = {"zebra", 5};
    return FORESAY_OK;
}

std::int32_t fail_self_test(const foresay_host* host) {
    static const char why[] = "two and two are five";
    host->report(host->self, {why, sizeof why - 1});
    return FORESAY_FAILED;
}
std::int32_t pass_self_test(const foresay_host*) { return FORESAY_OK; }
const void* any_extension(foresay_text) {
    static const foresay_self_test test{sizeof test, 0, pass_self_test};
    return &test;
}
const void* self_test_extension(foresay_text name) {
    static const foresay_self_test test{sizeof test, 0, fail_self_test};
    const bool asked = name.size == sizeof FORESAY_SELF_TEST_EXTENSION - 1 &&
                       std::memcmp(name.data, FORESAY_SELF_TEST_EXTENSION, name.size) == 0;
    return asked ? &test : nullptr;
}

foresay_parameter size_parameter() {
    foresay_parameter p{};
    p.struct_size = sizeof p;
    p.type = FORESAY_INTEGER;
    p.name = "size";
    p.doc = "Works up to 50.";
    p.fallback.type = FORESAY_INTEGER;
    p.max = 100;
    return p;
}

template <int kDeed>
std::int32_t create(const foresay_host* host, const foresay_value* values, void** instance) {
    return make(kDeed, host, values, instance);
}

struct Table {
    foresay_parameter parameter = size_parameter();
    foresay_sampler samplers[kDeeds] = {};
    const foresay_sampler* list[kDeeds] = {};

    template <int... kDeed>
    explicit Table(std::integer_sequence<int, kDeed...>) {
        ((samplers[kDeed].create = create<kDeed>), ...);
        for (int i = 0; i < kDeeds; ++i) describe(i);
    }
    void describe(int i) {
        const Kind& kind = kKinds[i];
        foresay_sampler& s = samplers[i];
        s.struct_size = sizeof s;
        s.memory = kind.memory;
        s.flags = kind.flags;
        s.name = kind.name;
        s.version = "1";
        s.doc = "Breaks the contract in one way.";
        s.licence = "Apache-2.0";
        s.parameters = &parameter;
        s.parameter_count = (kind.has & kParameter) != 0 ? 1 : 0;
        s.destroy = destroy;
        if (kind.memory != FORESAY_STATELESS) {
            s.state_create = state_create;
            s.state_destroy = state_destroy;
            s.state_begin = state_begin;
            s.state_copy = state_copy;
            s.accept = accept;
        }
        s.process = (kind.has & kProcess) != 0 ? process : nullptr;
        s.test = (kind.has & kTest) != 0 ? test : nullptr;
        s.mask = (kind.has & kMask) != 0 ? mask : nullptr;
        s.forced = (kind.has & kForced) != 0 ? forced : nullptr;
        if ((kind.has & kExtension) != 0) s.extension = i == kAnyExtension ? any_extension : self_test_extension;
        list[i] = &s;
    }
};
const Table table(std::make_integer_sequence<int, kDeeds>{});

}  // namespace

extern "C" __attribute__((visibility("default"))) const foresay_sampler_library foresay_sampler_entry;
extern "C" const foresay_sampler_library foresay_sampler_entry = {
    sizeof(foresay_sampler_library), FORESAY_SAMPLER_ABI_MAJOR, FORESAY_SAMPLER_ABI_MINOR, 0, kDeeds, 0, table.list};
