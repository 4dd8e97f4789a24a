/* The plugin ABI is one header that a C11 compiler takes alone, with all its warnings on. */
#include "samplers/sdk/sampler.h"
