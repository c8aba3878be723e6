//go:build !purego && !race

#include "textflag.h"

// The NEON kernels are written by hand: the generator supports amd64 only. Each compares
// whole blocks and returns how many bytes are equal. The portable kernel compares the rest
// of a run, and the block that differs. So no load here passes the end of a run.
//
// A difference is the exclusive or of the two sides. The differences of a block are joined
// by or and tested once, as two words of 64 bits: two moves are faster than an instruction
// that reduces a vector to one value, such as UMAXV.

// func equalBlocksNEON(a, b *byte, n int) int
TEXT ·equalBlocksNEON(SB), NOSPLIT, $0-32
	MOVD a+0(FP), R0
	MOVD b+8(FP), R1
	MOVD n+16(FP), R2
	MOVD R0, R3           // where a begins
	ADD  R0, R2, R4       // where it ends

block:
	// 64 bytes of each.
	VLD1.P 64(R0), [V0.B16, V1.B16, V2.B16, V3.B16]
	VLD1.P 64(R1), [V4.B16, V5.B16, V6.B16, V7.B16]
	VEOR   V0.B16, V4.B16, V0.B16
	VEOR   V1.B16, V5.B16, V1.B16
	VEOR   V2.B16, V6.B16, V2.B16
	VEOR   V3.B16, V7.B16, V3.B16
	VORR   V0.B16, V1.B16, V0.B16
	VORR   V2.B16, V3.B16, V2.B16
	VORR   V0.B16, V2.B16, V0.B16
	VMOV   V0.D[0], R5
	VMOV   V0.D[1], R6
	ORR    R5, R6, R5
	CBNZ   R5, differs
	CMP    R4, R0
	BLO    block
	SUB    R3, R0, R0
	MOVD   R0, ret+24(FP)
	RET

differs:
	// R0 points after the block that differs.
	SUB  R3, R0, R0
	SUB  $64, R0, R0
	MOVD R0, ret+24(FP)
	RET

// The ten bits of a mask, one for each tag: first those of eight tags, then those of two
// tags and zeros.
DATA bits<>+0x00(SB)/8, $0x0008000400020001
DATA bits<>+0x08(SB)/8, $0x0080004000200010
DATA bits<>+0x10(SB)/8, $0x0000000002000100
DATA bits<>+0x18(SB)/8, $0x0000000000000000
GLOBL bits<>(SB), RODATA|NOPTR, $32

// func matchTagsNEON(masks *uint16, buckets **[10]uint16, tags *uint16, n int)
TEXT ·matchTagsNEON(SB), NOSPLIT, $0-32
	MOVD masks+0(FP), R0
	MOVD buckets+8(FP), R1
	MOVD tags+16(FP), R2
	MOVD n+24(FP), R3
	MOVD $bits<>(SB), R4
	VLD1 (R4), [V6.H8, V7.H8]

next:
	MOVD.P  8(R1), R5
	VLD1R.P 2(R2), [V0.H8]
	VLD1    (R5), [V1.H8]
	FMOVS   16(R5), F2              // clears the rest of the vector

	// Equal tags give all ones. AND leaves their bits, ADDV adds the bits up.
	VCMEQ  V0.H8, V1.H8, V1.H8
	VCMEQ  V0.H8, V2.H8, V2.H8
	VAND   V1.B16, V6.B16, V1.B16
	VAND   V2.B16, V7.B16, V2.B16
	VORR   V1.B16, V2.B16, V1.B16
	VADDV  V1.H8, V1
	VST1.P V1.H[0], 2(R0)
	SUB    $1, R3, R3
	CBNZ   R3, next
	RET

// func prefetchNEON(lines **byte, n int)
TEXT ·prefetchNEON(SB), NOSPLIT, $0-16
	MOVD lines+0(FP), R0
	MOVD n+8(FP), R1

next:
	MOVD.P 8(R0), R2
	PRFM   (R2), PLDL1KEEP
	SUB    $1, R1, R1
	CBNZ   R1, next
	RET

// func sumProductsNEON(sum *[4]uint64, secret *uint64, message *byte, n int)
//
// The generator explains the method (_gen/digest.go).
// A product of two vectors, x and y, is four products of 64 bits: PMULL multiplies the low
// halves and PMULL2 the high ones. With the halves of y exchanged they are the two products
// of a low with a high half. V0 sums those of low halves, V1 of high halves, V2 the others.
#define products(x, y) \
	VEXT    $8, y.B16, y.B16, V16.B16    \
	VPMULL  x.D1, y.D1, V17.Q1           \
	VPMULL2 x.D2, y.D2, V18.Q1           \
	VPMULL  x.D1, V16.D1, V19.Q1         \
	VPMULL2 x.D2, V16.D2, V20.Q1         \
	VEOR    V17.B16, V0.B16, V0.B16      \
	VEOR    V18.B16, V1.B16, V1.B16      \
	VEOR    V19.B16, V20.B16, V19.B16    \
	VEOR    V19.B16, V2.B16, V2.B16

TEXT ·sumProductsNEON(SB), NOSPLIT, $0-32
	MOVD sum+0(FP), R0
	MOVD secret+8(FP), R1
	MOVD message+16(FP), R2
	MOVD n+24(FP), R3
	VEOR V0.B16, V0.B16, V0.B16
	VEOR V1.B16, V1.B16, V1.B16
	VEOR V2.B16, V2.B16, V2.B16

chunk:
	// 64 bytes of the message and 128 of the secret.
	VLD1.P 64(R2), [V4.B16, V5.B16, V6.B16, V7.B16]
	VLD1.P 64(R1), [V24.B16, V25.B16, V26.B16, V27.B16]
	VLD1.P 64(R1), [V28.B16, V29.B16, V30.B16, V31.B16]
	VEOR   V4.B16, V24.B16, V24.B16
	VEOR   V5.B16, V25.B16, V25.B16
	VEOR   V6.B16, V26.B16, V26.B16
	VEOR   V7.B16, V27.B16, V27.B16

	// The other half of the last chunk may be zeros.
	SUBS   $64, R3, R3
	BEQ    multiply
	VLD1.P 64(R2), [V4.B16, V5.B16, V6.B16, V7.B16]
	VEOR   V4.B16, V28.B16, V28.B16
	VEOR   V5.B16, V29.B16, V29.B16
	VEOR   V6.B16, V30.B16, V30.B16
	VEOR   V7.B16, V31.B16, V31.B16
	SUB    $64, R3, R3

multiply:
	products(V24, V28)
	products(V25, V29)
	products(V26, V30)
	products(V27, V31)
	CBNZ R3, chunk

	// Join the sums. The middle one counts from bit 64.
	VEOR V3.B16, V3.B16, V3.B16
	VEXT $8, V2.B16, V3.B16, V4.B16   // zeros below its lower half
	VEXT $8, V3.B16, V2.B16, V5.B16   // its upper half, zeros above
	VEOR V4.B16, V0.B16, V0.B16
	VEOR V5.B16, V1.B16, V1.B16
	VST1 [V0.B16, V1.B16], (R0)
	RET
