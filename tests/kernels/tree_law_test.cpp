// Law 1 for trees: every row of a tree has the bits that its path has when it is evaluated as plain text.

#include <algorithm>

#include "tests/kernels/cache_bits.h"
#include "tests/kernels/law_case.h"

namespace foresay::test {
namespace {

using namespace kernels;

constexpr std::int32_t kPages = 6;

struct Tree {
    std::vector<std::int32_t> token, parent, depth;

    std::int32_t size() const { return static_cast<std::int32_t>(token.size()); }
    std::vector<std::int32_t> path(std::int32_t node) const {
        std::vector<std::int32_t> tokens;
        for (; node >= 0; node = parent[static_cast<std::size_t>(node)])
            tokens.insert(tokens.begin(), token[static_cast<std::size_t>(node)]);
        return tokens;
    }
};

// A random tree. The parent of each node is one of the `reach` nodes before it, so 1 gives a chain. Some nodes begin at
// the root.
Tree random_tree(Random& random, std::int32_t size, std::int32_t reach, std::int32_t vocab) {
    Tree tree;
    for (std::int32_t i = 0; i < size; ++i) {
        const bool root = i == 0 || (reach > 1 && random() % 9 == 0);
        const std::int32_t parent =
            root ? -1 : i - 1 - static_cast<std::int32_t>(random() % static_cast<unsigned>(std::min(reach, i)));
        tree.token.push_back(static_cast<std::int32_t>(random() % static_cast<unsigned>(vocab)));
        tree.parent.push_back(parent);
        tree.depth.push_back(parent < 0 ? 0 : tree.depth[static_cast<std::size_t>(parent)] + 1);
    }
    return tree;
}

class TreeLaw : public testing::TestWithParam<LawCase> {
protected:
    void SetUp() override { FORESAY_SKIP_WITHOUT_DEVICE(GetParam().backend); }
    static constexpr std::int32_t kMostRows = 160;

    // Cells for the nodes of a tree after `prefix` positions: any free ones, in any order.
    std::vector<std::int32_t> cells(std::int32_t prefix, std::int32_t size) {
        std::vector<std::int32_t> free = counting(std::min(size + 40, kPages * kPagePositions - prefix), prefix);
        std::shuffle(free.begin(), free.end(), random_);
        free.resize(static_cast<std::size_t>(size));
        return free;
    }

    void check(TinyRun& run, std::int32_t prefix, const Tree& tree) {
        const std::vector<std::int32_t> pages = {3, 5, 0, 1, 4, 2};
        Sequence sequence{pages};
        const bool cpu = GetParam().cpu();
        if (cpu) std::ranges::fill(all_bytes(run.kv()), kNanByte);
        feed(run, sequence, random_tokens(9, static_cast<std::size_t>(prefix), vocab_), {64});
        std::vector<RowResult> expected;
        std::vector<std::vector<std::uint8_t>> cache;
        for (std::int32_t node = 0; node < tree.size(); ++node) {
            Sequence path = sequence;
            expected.push_back(feed(run, path, tree.path(node), {64}).back());
            if (cpu) cache.push_back(cell_bytes(run.kv(), pages, path.length - 1));
        }
        const auto cell = cells(prefix, tree.size());
        std::vector<Row> rows;
        for (std::int32_t node = 0; node < tree.size(); ++node) {
            const auto i = static_cast<std::size_t>(node);
            rows.push_back({TokenRef::id(tree.token[i]), prefix + tree.depth[i], 0, cell[i], tree.parent[i]});
        }
        const SequenceView view = {pages, prefix};
        run.forward({RowClass::decode, true, rows, {&view, 1}, counting(tree.size())});
        for (std::int32_t node = 0; node < tree.size(); ++node) {
            const auto i = static_cast<std::size_t>(node);
            SCOPED_TRACE(testing::Message() << "node " << node << " of " << tree.size() << " at depth " << tree.depth[i]
                                            << " after " << prefix << " positions");
            ASSERT_NO_FATAL_FAILURE(expect_same_bits(expected[i], RowResult{run.residual(node), run.logits(node)}));
            if (cpu) {
                ASSERT_EQ(cache[i], cell_bytes(run.kv(), pages, cell[i])) << "K or V";
            }
        }
    }

    Random random_{17};
    std::int32_t vocab_ = 0;
};

TEST_P(TreeLaw, EveryPathEqualsPlainText) {
    const LawCase& c = GetParam();
    const TinyModel model(c.config());
    vocab_ = model.shape().vocab;
    TinyRun run(model, c.ops(), kPages, kMostRows);
    const std::vector<std::int32_t> prefixes =
        c.full() ? std::vector<std::int32_t>{0, 1, 37, 60, 63, 64, 65, 127, 130} : std::vector<std::int32_t>{0, 60, 64};
    for (const std::int32_t prefix : prefixes) {
        for (const auto& [size, reach] :
             std::vector<std::pair<std::int32_t, std::int32_t>>{{1, 1}, {2, 2}, {11, 1}, {7, 3}, {16, 16}, {30, 4}}) {
            ASSERT_NO_FATAL_FAILURE(check(run, prefix, random_tree(random_, size, reach, vocab_)));
        }
    }
}

TEST_P(TreeLaw, TreesOfSeveralPages) {
    const LawCase& c = GetParam();
    const TinyModel model(c.config());
    vocab_ = model.shape().vocab;
    TinyRun run(model, c.ops(), kPages, kMostRows);
    // Each node is compared with its path, so the work is of the square of a chain's length.
    if (!c.full()) {
        ASSERT_NO_FATAL_FAILURE(check(run, 60, random_tree(random_, 30, 1, vocab_)));
        return;
    }
    ASSERT_NO_FATAL_FAILURE(check(run, 60, random_tree(random_, 75, 1, vocab_)));
    ASSERT_NO_FATAL_FAILURE(check(run, 10, random_tree(random_, 150, 1, vocab_)));
    ASSERT_NO_FATAL_FAILURE(check(run, 61, random_tree(random_, 160, 2, vocab_)));
    ASSERT_NO_FATAL_FAILURE(check(run, 128, random_tree(random_, 140, 2, vocab_)));
}

// A batch of trees without branches, in which every cell is that of the position, is a plain batch.
TEST_P(TreeLaw, ATreeWithoutBranchesIsAPlainBatch) {
    const LawCase& c = GetParam();
    const TinyModel model(c.config());
    TinyRun run(model, c.ops(), kPages, 64);
    const auto tokens = random_tokens(3, 80, model.shape().vocab);
    Sequence sequence{{0, 1}};
    feed(run, sequence, std::span(tokens).first(58), {58});
    Sequence rest = sequence;
    const auto expected = feed(run, rest, std::span(tokens).subspan(58), {22});
    std::vector<Row> rows;
    for (std::int32_t i = 0; i < 22; ++i)
        rows.push_back({TokenRef::id(tokens[static_cast<std::size_t>(58 + i)]), 58 + i, 0, -1, i - 1});
    const SequenceView view = {sequence.pages, 58};
    run.forward({RowClass::decode, true, rows, {&view, 1}, counting(22)});
    for (std::int32_t i = 0; i < 22; ++i) {
        ASSERT_NO_FATAL_FAILURE(
            expect_same_bits(expected[static_cast<std::size_t>(i)], RowResult{run.residual(i), run.logits(i)}));
    }
}

// Trees of two sequences with their rows interleaved.
TEST_P(TreeLaw, TreesOfTwoSequences) {
    const LawCase& c = GetParam();
    const TinyModel model(c.config());
    vocab_ = model.shape().vocab;
    TinyRun run(model, c.ops(), kPages, kMostRows);
    const std::int32_t size = 14;
    const std::vector<std::int32_t> lengths = {62, 5};
    std::vector<Sequence> sequences = {{{4, 1, 2}}, {{0, 5, 3}}};
    std::vector<Tree> trees;
    std::vector<std::vector<RowResult>> expected(2);
    for (std::size_t s = 0; s < 2; ++s) {
        feed(run, sequences[s], random_tokens(70, static_cast<std::size_t>(lengths[s]), vocab_), {64});
        trees.push_back(random_tree(random_, size, 3, vocab_));
        for (std::int32_t node = 0; node < size; ++node) {
            Sequence path = sequences[s];
            expected[s].push_back(feed(run, path, trees[s].path(node), {64}).back());
        }
    }
    std::vector<Row> rows;
    for (std::int32_t node = 0; node < size; ++node) {
        for (std::int32_t s = 0; s < 2; ++s) {
            const Tree& tree = trees[static_cast<std::size_t>(s)];
            const auto i = static_cast<std::size_t>(node);
            const std::int32_t length = lengths[static_cast<std::size_t>(s)];
            rows.push_back({TokenRef::id(tree.token[i]), length + tree.depth[i], s, length + size - 1 - node,
                            tree.parent[i] < 0 ? -1 : 2 * tree.parent[i] + s});
        }
    }
    const std::vector<SequenceView> views = {{sequences[0].pages, lengths[0]}, {sequences[1].pages, lengths[1]}};
    run.forward({RowClass::decode, true, rows, views, counting(2 * size)});
    for (std::int32_t t = 0; t < 2 * size; ++t) {
        SCOPED_TRACE(testing::Message() << "sequence " << t % 2 << ", node " << t / 2);
        ASSERT_NO_FATAL_FAILURE(
            expect_same_bits(expected[static_cast<std::size_t>(t % 2)][static_cast<std::size_t>(t / 2)],
                             RowResult{run.residual(t), run.logits(t)}));
    }
}

INSTANTIATE_TEST_SUITE_P(All, TreeLaw, testing::ValuesIn(law_cases()), law_case_name);

}  // namespace
}  // namespace foresay::test
