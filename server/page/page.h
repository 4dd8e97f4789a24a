// server/page/page.h: the files of the page at "/", as the build has embedded them.
//
// Threads:  immutable.
#pragma once

#include <span>
#include <string_view>

namespace foresay::server {

struct PageFile {
    std::string_view name;  // "index.html"
    std::string_view bytes;
};

std::span<const PageFile> page_files();

}  // namespace foresay::server
