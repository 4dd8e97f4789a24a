// app/repl/commands/topics.h: the topics of the command table, one file each.
#pragma once

#include "app/repl/command.h"

namespace foresay::app {

CommandTopic conversation_commands();
CommandTopic settings_commands();
CommandTopic measurement_commands();
CommandTopic program_commands();

}  // namespace foresay::app
