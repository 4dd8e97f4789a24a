// samplers/plugin_description.h: reads what a sampler of sdk/sampler.h declares, and checks it. Its structs are as long
// as its author's compiler saw them: members of 1.0 are always there, later ones may be missing, and what lies beyond
// the members that this host knows is left alone.
//
// Errors:   Error that names `origin` and what breaks the contract.
#pragma once

#include <cstddef>
#include <string>

#include "samplers/sdk/sampler.h"
#include "samplers/stage.h"

namespace foresay::samplers {

// How long the structs of 1.0 are: up to its last member.
inline constexpr std::size_t kLibrarySize = offsetof(foresay_sampler_library, samplers) + sizeof(void*);
inline constexpr std::size_t kSamplerSize = offsetof(foresay_sampler, extension) + sizeof(void (*)());
inline constexpr std::size_t kParameterSize = offsetof(foresay_parameter, reserved) + sizeof(std::uint32_t);

// The members that both sides know; the others are 0.
foresay_sampler known_part(const foresay_sampler* sampler, const std::string& origin);

// `sampler` comes from known_part().
StageDescription read_description(const foresay_sampler& sampler, const std::string& origin);

}  // namespace foresay::samplers
