// app/commands/commands.h: the commands of the program, one file each. Each returns the exit status; errors are thrown
// and reported by main.
#pragma once

#include "app/options.h"

namespace foresay::app {

int run_chat(const Options& options);
int run_complete(const Options& options);
int run_bench(const Options& options);
int run_perplexity(const Options& options);
int run_logits(const Options& options);
int run_tokenize(const Options& options);
int run_inspect(const Options& options);
int run_config_check(const Options& options);
int run_config_show(const Options& options);
int run_config_schema(const Options& options);
int run_config_reference(const Options& options);
int run_completion(const Options& options);
int run_manual(const Options& options);
int run_plugin_list(const Options& options);
int run_plugin_show(const Options& options);
int run_session_list(const Options& options);
int run_session_show(const Options& options);
int run_session_replay(const Options& options);
int run_session_delete(const Options& options);
int run_repl_reference(const Options& options);

}  // namespace foresay::app
