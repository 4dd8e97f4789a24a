// The wrapper for plugin authors asks no more than C++17.
#include "samplers/sdk/sampler.hpp"
