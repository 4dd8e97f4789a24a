// server/http/listen.h: the sockets that a server listens on.
//
// Errors:   open_listener() throws Error: the address, and why it cannot be used.
#pragma once

#include <optional>
#include <string>

#include "server/http/server.h"

namespace foresay::server {

struct OpenedSocket {
    int descriptor = -1;
    int family = 0;         // AF_INET, AF_INET6 or AF_UNIX
    ListenAddress address;  // what it is bound to
};
OpenedSocket open_listener(const ListenAddress& address);

// The other end of a connection: a number, or "unix".
std::string peer_of(int socket);
bool peer_is_local(int socket);
// Small pieces of a stream leave at once.
void send_at_once(int socket);

}  // namespace foresay::server
