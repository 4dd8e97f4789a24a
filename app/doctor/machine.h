// app/doctor/machine.h: what `foresay doctor` says of the machine and of this build, as pairs of a name and a text.
//
// Errors:   none: what cannot be found out is said so, or left out.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace foresay::app {

using Facts = std::vector<std::pair<std::string, std::string>>;

// Version, compiler, version of the CUDA runtime, path of the program.
Facts build_facts();
// System, processor, instruction sets, memory, GPUs, version of the driver, and which GPUs read each other's memory.
Facts machine_facts();
// The files that always apply, the folder of sessions and whether it can be written, plugins that are barred.
Facts file_facts();

// "cpu" first, then "cuda:N" for each usable GPU.
std::vector<std::string> usable_devices();
// The first device of this list that is the same GPU as `device`, as far as their names tell. That may be `device`.
std::string first_of_its_kind(const std::vector<std::string>& devices, const std::string& device);

}  // namespace foresay::app
