// app/options.h: the command line as plain data. Its .cpp is the only file that parses arguments.
//
// Errors:   parse_options() throws UsageError for a command line that is wrong (exit status 2).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/config/config.h"

namespace foresay::app {

enum class Command : std::uint8_t {
    chat,
    complete,
    bench,
    perplexity,
    logits,
    tokenize,
    inspect,
    config_check,
    config_show,
    config_schema,
    config_reference,
    completion,
    manual,
    plugin_list,
    plugin_show,
    session_list,
    session_show,
    session_replay,
    session_delete,
    repl_reference,
};

struct Options {
    Command command = Command::chat;

    // Every command.
    std::vector<std::string> sets;
    std::string model, draft;
    std::string shape, encoding;
    std::string inflate, inflate_draft, draft_encoding;  // empty: the models as they are
    std::optional<std::int64_t> context, threads;
    std::string kv_cache;
    std::string device;
    std::string config;  // empty: the bundled pair, unless a model or a shape is named

    bool simple_io = false;  // chat: no line editing

    // complete, and where they apply the others.
    std::optional<std::string> prompt;
    std::string file;
    std::optional<std::int64_t> max_tokens, seed, branch;
    std::vector<double> temperatures;  // complete: at most one
    std::string speculation;           // auto, off, a number; empty: as configured
    std::vector<std::string> stop;
    bool ignore_eos = false;
    bool json = false;
    bool token_ids = false;

    // logits, tokenize
    std::string tokens_file;
    int width = 0;  // 0: as input rows
    bool hex = false;
    bool no_special = false;

    // bench
    std::string bench;
    std::string prompts_file;
    int runs = 3;

    // chat
    bool continue_last = false;
    std::string session;  // a name or a path; empty: a new one
    bool no_save = false;
    std::optional<core::ConfigLayer> session_layer;  // the settings of the session that goes on, above the user's files

    std::vector<std::string> paths;  // inspect, config check, session delete
    std::string name;                // plugin show, session show and replay, completion
};

struct ParsedOptions {
    Options options;
    std::optional<std::string> text;  // help or version: print it and be done
};

ParsedOptions parse_options(int argc, const char* const* argv);

// The flags that are configuration under another name, as layers above the file.
std::vector<core::ConfigLayer> option_layers(const Options& options);

}  // namespace foresay::app
