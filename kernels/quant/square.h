// kernels/quant/square.h: a square of 16 x 16 values, transposed by loops that compilers make vectors of.
//
// Threads:  any.
#pragma once

namespace foresay::kernels {

inline constexpr int kSquare = 16;

// Value c of row r goes to value r of row c. Each pass deals the two halves out in turn, which moves the highest bit of
// a value's place to the lowest; four passes swap the four bits of the row with those of the column.
template <class Value>
struct Square {
    Value values[kSquare * kSquare];

    Value* row(int r) { return values + kSquare * r; }
    void transpose() {
        Value other[kSquare * kSquare];
        deal(values, other);
        deal(other, values);
        deal(values, other);
        deal(other, values);
    }

private:
    static void deal(const Value* __restrict from, Value* __restrict to) {
        constexpr int kHalf = kSquare * kSquare / 2;
        for (int i = 0; i < kHalf; ++i) {
            to[2 * i] = from[i];
            to[2 * i + 1] = from[i + kHalf];
        }
    }
};

}  // namespace foresay::kernels
