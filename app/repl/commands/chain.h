// app/repl/commands/chain.h: /chain, which shows what every stage of the chain did to the row of a token.
#pragma once

#include <string>

namespace foresay::app {

class Repl;

void show_chain(Repl& repl, const std::string& arguments);

}  // namespace foresay::app
