// tests/grammar/vocabulary.h: vocabularies for tests, and the slow ways to find what a grammar allows.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"

namespace foresay::grammar {

// All 256 bytes, then `texts`, then: a second token for "a", an unused token, one without bytes, one of 300 bytes, a
// special token and the end.
std::shared_ptr<const Vocabulary> make_vocabulary(const std::vector<std::string>& texts);
// The same with every stretch of 2 to 9 bytes of a text about many things, JSON among them.
std::shared_ptr<const Vocabulary> rich_vocabulary();

std::shared_ptr<const Grammar> compile(Language language, std::string text, const Options& options = {});
// Whether the whole text is valid.
bool accepts(const std::shared_ptr<const Grammar>& grammar, std::string_view text);
// What compile() says; empty: it compiles.
std::string refusal(Language language, std::string text, const Options& options = {});

// Goes through `text` in steps of a few bytes; at each, the mask must allow exactly the tokens that walk() finds: those
// whose bytes, one by one, a copy of the state accepts.
void expect_masks(const std::shared_ptr<const Grammar>& grammar, std::string_view text);

}  // namespace foresay::grammar
