// kernels/cpu/isa/isa.h: the instruction set for which a file of this folder is compiled. The build compiles each file
// once per set, with FORESAY_ISA_<SET> defined. FORESAY_ISA names the namespace, so that the linker cannot merge
// functions of different sets.
#pragma once

#if defined(FORESAY_ISA_AVX512)
#define FORESAY_ISA avx512
#elif defined(FORESAY_ISA_AVX2)
#define FORESAY_ISA avx2
#else
#define FORESAY_ISA portable
#endif

#define FORESAY_INLINE static inline __attribute__((always_inline))
