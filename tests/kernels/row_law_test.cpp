// Law 1 by memcmp: the bits that a row leaves (logits, residual stream, K and V) depend on its prefix only.

#include "tests/kernels/cache_bits.h"
#include "tests/kernels/law_case.h"

namespace foresay::test {
namespace {

using namespace kernels;

class RowLaw : public testing::TestWithParam<LawCase> {
protected:
    void SetUp() override { FORESAY_SKIP_WITHOUT_DEVICE(GetParam().backend); }
    std::vector<std::size_t> widths() const {
        std::vector<std::size_t> all;
        for (std::size_t width = 1; width <= 64; ++width) {
            const bool few = width == 2 || width == 9 || width == 17 || width == 64;
            const bool sample = few || (GetParam().threads == 1 && (width <= 8 || width == 13 || width == 33));
            if (GetParam().full() || sample) all.push_back(width);
        }
        return all;
    }
};

struct Trace {
    std::vector<RowResult> rows;
    std::vector<std::uint8_t> cache;
};

// All of `tokens` in forwards of the given widths, on the CPU in pages that held `garbage` before.
Trace evaluate(TinyRun& run, bool cpu, std::span<const std::int32_t> tokens, const std::vector<std::size_t>& widths,
               RowClass row_class, std::uint8_t garbage = kNanByte) {
    Trace trace;
    if (cpu) std::ranges::fill(all_bytes(run.kv()), garbage);
    Sequence sequence{{2, 0}};
    trace.rows = feed(run, sequence, tokens, widths, row_class);
    if (cpu) trace.cache.assign(all_bytes(run.kv()).begin(), all_bytes(run.kv()).end());
    return trace;
}

void expect_same_bits(const Trace& expected, const Trace& found, const std::string& what) {
    SCOPED_TRACE(what);
    ASSERT_NO_FATAL_FAILURE(expect_same_bits(expected.rows, found.rows));
    ASSERT_TRUE(expected.cache == found.cache) << "K or V differ";
}

TEST_P(RowLaw, EveryWidthAndChunking) {
    const LawCase& c = GetParam();
    const TinyModel model(c.config());
    const auto tokens = random_tokens(31, 80, model.shape().vocab);
    // The expected bits: one thread, one row at a time, the same instruction set.
    TinyRun plain(model, c.plain_ops(), 3, 64);
    TinyRun run(model, c.ops(), 3, 64);
    const Trace decoded = evaluate(plain, c.cpu(), tokens, {1}, RowClass::decode);
    for (const RowClass row_class : {RowClass::decode, RowClass::prefill}) {
        // On a device the two classes have separate paths.
        const Trace expected = c.cuda() ? evaluate(plain, c.cpu(), tokens, {1}, row_class) : decoded;
        for (const RowResult& row : expected.rows) {
            for (const float logit : row.logits) ASSERT_TRUE(std::isfinite(logit));
        }
        for (const std::size_t width : widths()) {
            ASSERT_NO_FATAL_FAILURE(
                expect_same_bits(expected, evaluate(run, c.cpu(), tokens, {width}, row_class),
                                 "width " + std::to_string(width) + (row_class == RowClass::prefill ? ", input" : "")));
        }
        for (const std::vector<std::size_t>& mixed : std::vector<std::vector<std::size_t>>{
                 {7, 1, 30, 2, 5, 1, 1, 64}, {63, 1, 1, 15}, {1, 64}, {62, 4, 14}, {11, 53, 16}, {33, 31, 1, 3, 12}}) {
            ASSERT_NO_FATAL_FAILURE(
                expect_same_bits(expected, evaluate(run, c.cpu(), tokens, mixed, row_class), "mixed widths"));
        }
    }
    // What the pages held before does not affect any row: here numbers instead of NaN.
    const Trace over_numbers = evaluate(run, c.cpu(), tokens, {9}, RowClass::decode, 0x3c);
    ASSERT_NO_FATAL_FAILURE(expect_same_bits(decoded.rows, over_numbers.rows));
}

// A row at every place of the batch, among rows of other sequences of other lengths.
TEST_P(RowLaw, EveryPlaceAndNeighbour) {
    const LawCase& c = GetParam();
    const TinyModel model(c.config());
    constexpr std::int32_t kSequences = 64;
    TinyRun plain(model, c.plain_ops(), 2, 64);
    TinyRun run(model, c.ops(), 2 * kSequences, 64);
    std::vector<Sequence> sequences;
    std::vector<RowResult> expected;
    std::vector<std::int32_t> next;
    for (std::int32_t s = 0; s < kSequences; ++s) {
        const auto length = static_cast<std::size_t>(s < 8 ? 60 + s : s * 7 % 30);
        auto tokens = random_tokens(static_cast<unsigned>(100 + s), length + 1, model.shape().vocab);
        Sequence alone{{1, 0}};
        expected.push_back(feed(plain, alone, tokens, {64, 1}).back());
        next.push_back(tokens.back());
        tokens.pop_back();
        Sequence& sequence = sequences.emplace_back(Sequence{{2 * kSequences - 1 - s, s}});
        feed(run, sequence, tokens, {64});
    }
    std::vector<SequenceView> views;
    for (const Sequence& sequence : sequences) views.push_back({sequence.pages, sequence.length});
    for (const std::size_t width : widths()) {
        const auto rows_count = static_cast<std::int32_t>(width);
        const bool every = GetParam().full() && width <= 17;
        for (std::int32_t shift = 0; shift < (every ? rows_count : std::min(rows_count, 3)); ++shift) {
            std::vector<Row> rows;
            for (std::int32_t i = 0; i < rows_count; ++i) {
                // Other neighbours with every shift; a row moves by one place.
                const std::int32_t s = (every ? (i + shift) % rows_count * 5 : i * 5 + shift * 17) % kSequences;
                rows.push_back({TokenRef::id(next[static_cast<std::size_t>(s)]),
                                sequences[static_cast<std::size_t>(s)].length, s});
            }
            run.forward({RowClass::decode, false, rows, views, counting(rows_count)});
            for (std::int32_t i = 0; i < rows_count; ++i) {
                SCOPED_TRACE(testing::Message() << "place " << i << " of " << width << ", shift " << shift);
                ASSERT_NO_FATAL_FAILURE(
                    expect_same_bits(expected[static_cast<std::size_t>(rows[static_cast<std::size_t>(i)].sequence)],
                                     RowResult{run.residual(i), run.logits(i)}));
            }
        }
    }
}

// Several rows of several sequences in one batch: each equals its sequence alone.
TEST_P(RowLaw, RowsOfSeveralSequences) {
    const LawCase& c = GetParam();
    const TinyModel model(c.config());
    TinyRun run(model, c.ops(), 8, 64);
    const std::vector<std::int32_t> lengths = {61, 0, 17, 40}, counts = {9, 20, 1, 30};
    std::vector<Sequence> sequences;
    std::vector<std::vector<std::int32_t>> tokens;
    std::vector<std::vector<RowResult>> expected;
    for (std::int32_t s = 0; s < 4; ++s) {
        const auto i = static_cast<std::size_t>(s);
        tokens.push_back(random_tokens(static_cast<unsigned>(50 + s), static_cast<std::size_t>(lengths[i] + counts[i]),
                                       model.shape().vocab));
        Sequence sequence{{2 * s + 1, 2 * s}};
        const auto length = static_cast<std::size_t>(lengths[i]);
        feed(run, sequence, std::span(tokens[i]).first(length), {64});
        Sequence rest = sequence;
        expected.push_back(feed(run, rest, std::span(tokens[i]).subspan(length), {1}));
        sequences.push_back(sequence);
    }
    std::vector<SequenceView> views;
    for (const Sequence& sequence : sequences) views.push_back({sequence.pages, sequence.length});
    // Interleaved, and one sequence after the other.
    for (const bool interleaved : {true, false}) {
        std::vector<Row> rows;
        std::vector<std::int32_t> done(4, 0);
        while (rows.size() < 60) {
            for (std::int32_t s = 0; s < 4; ++s) {
                const auto i = static_cast<std::size_t>(s);
                for (bool more = true; more && done[i] < counts[i]; more = !interleaved) {
                    const std::int32_t position = lengths[i] + done[i]++;
                    rows.push_back({TokenRef::id(tokens[i][static_cast<std::size_t>(position)]), position, s});
                }
            }
        }
        run.forward({RowClass::decode, false, rows, views, counting(60)});
        for (std::int32_t t = 0; t < 60; ++t) {
            const Row& row = rows[static_cast<std::size_t>(t)];
            const auto s = static_cast<std::size_t>(row.sequence);
            SCOPED_TRACE(testing::Message() << "sequence " << s << ", position " << row.position);
            ASSERT_NO_FATAL_FAILURE(expect_same_bits(expected[s][static_cast<std::size_t>(row.position - lengths[s])],
                                                     RowResult{run.residual(t), run.logits(t)}));
        }
    }
}

// More heads and sequences than a device has groups that attend: some take a second unit that reads what the batch has
// written.
class SharedOutLaw : public RowLaw {};
TEST_P(SharedOutLaw, ManyHeadsOfManySequences) {
    const LawCase& c = GetParam();
    TinyConfig config = c.config();
    config.shape.heads = 80;
    config.shape.kv_heads = 40;
    config.shape.head_dim = 64;
    config.window = 0;
    const TinyModel model(config);
    constexpr std::int32_t kSequences = 16, kPages = 3;
    TinyRun run(model, c.ops(), kSequences * kPages, 16);
    std::vector<Sequence> sequences;
    std::vector<std::int32_t> next;
    std::vector<RowResult> expected;
    for (std::int32_t s = 0; s < kSequences; ++s) {
        const std::int32_t length = 11 * s;  // up to 165
        const auto tokens =
            random_tokens(static_cast<unsigned>(s), static_cast<std::size_t>(length + 1), model.shape().vocab);
        Sequence sequence{counting(kPages, kPages * s)};
        feed(run, sequence, std::span(tokens).first(static_cast<std::size_t>(length)), {16});
        Sequence rest = sequence;
        expected.push_back(feed(run, rest, std::span(tokens).last(1), {1}).front());
        next.push_back(tokens.back());
        sequences.push_back(sequence);
    }
    std::vector<SequenceView> views;
    std::vector<Row> rows;
    for (std::int32_t s = 0; s < kSequences; ++s) {
        const Sequence& sequence = sequences[static_cast<std::size_t>(s)];
        views.push_back({sequence.pages, sequence.length});
        rows.push_back({TokenRef::id(next[static_cast<std::size_t>(s)]), sequence.length, s});
    }
    run.forward({RowClass::decode, false, rows, views, counting(kSequences)});
    for (std::int32_t s = 0; s < kSequences; ++s) {
        SCOPED_TRACE(testing::Message() << "sequence " << s);
        ASSERT_NO_FATAL_FAILURE(
            expect_same_bits(expected[static_cast<std::size_t>(s)], RowResult{run.residual(s), run.logits(s)}));
    }
}

INSTANTIATE_TEST_SUITE_P(All, RowLaw, testing::ValuesIn(law_cases()), law_case_name);

std::vector<LawCase> cases_within_a_kernel() {
    std::vector<LawCase> cases = law_cases();
    std::erase_if(cases, [](const LawCase& c) { return c.head_norms; });
    return cases;
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SharedOutLaw);  // without a device's backend
INSTANTIATE_TEST_SUITE_P(All, SharedOutLaw, testing::ValuesIn(cases_within_a_kernel()), law_case_name);

}  // namespace
}  // namespace foresay::test
