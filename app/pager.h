// app/pager.h: shows long text through a pager, as git does.
//
// The pager is $PAGER, or less. It is used if standard input and output are a terminal and the text has more lines than
// the screen; not with --no-pager, PAGER=cat, PAGER= or TERM=dumb. $LESS is FRX unless it is set. If the pager cannot
// be started, the text is written as it would be without one.
// Answers are not paged: they are read while they come, and scroll back afterwards as far as the terminal does; a pager
// would hide them until their end.
//
// Threads:  one caller, which waits until the user leaves the pager.
// Errors:   those of print().
#pragma once

#include <cstddef>
#include <string_view>

namespace foresay::app {

class OptionParser;

// --no-pager, for commands that call page().
void add_no_pager_flag(OptionParser& parser);

// Results: to the pager, or to standard output. The text must be printable().
void page(std::string_view text);
// What a command of the conversation loop shows: to the pager, or to standard error. The text must be printable().
void page_message(std::string_view text);

// Rows that `text` takes on a terminal of this width.
std::size_t rows_of(std::string_view text, std::size_t columns);

}  // namespace foresay::app
