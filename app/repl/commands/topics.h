// app/repl/commands/topics.h: the topics of the command table, one file each.
#pragma once

#include "app/repl/command.h"

namespace foresay::app {

CommandTopic conversation_commands();
CommandTopic branch_commands();
CommandTopic context_commands();
CommandTopic file_commands();
CommandTopic inspection_commands();
CommandTopic saving_commands();
CommandTopic sampler_commands();
CommandTopic model_commands();
CommandTopic settings_commands();
CommandTopic measurement_commands();
CommandTopic program_commands();

}  // namespace foresay::app
