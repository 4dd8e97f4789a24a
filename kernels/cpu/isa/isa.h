// kernels/cpu/isa/isa.h: the instruction set that a file of this folder is being compiled for. The build compiles each
// once per set, with FORESAY_ISA_<SET> defined. FORESAY_ISA names the namespace, so that no function compiled for one
// set can be taken for another by the linker.
#pragma once

#if defined(FORESAY_ISA_AVX512)
#define FORESAY_ISA avx512
#elif defined(FORESAY_ISA_AVX2)
#define FORESAY_ISA avx2
#else
#define FORESAY_ISA portable
#endif

#define FORESAY_INLINE static inline __attribute__((always_inline))
