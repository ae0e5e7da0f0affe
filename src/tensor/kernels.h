// The kernels that are ours, on Google Highway: dispatched at run time to the widest vectors of
// the machine. All work on f32, channels-last, one thread. Reductions use a fixed number of
// accumulators (16) whatever the vector width and combine them in a fixed order, so their bits do
// not depend on it. No kernel allocates. Pointers need no alignment unless said; buffers may be
// the same only where said.
#pragma once

#include <cstdint>

namespace starling {

struct RandomKey {  // of a RandomStream: see base/random.h
  uint64_t key;
  uint32_t a;
};

// --- element-wise -----------------------------------------------------------------------------
// Element-wise kinds in the order of ActivationKind (graph/operators.h).
enum class Elementwise { kRelu, kLeakyRelu, kGelu, kSigmoid, kTanh };

// y = f(x); y may be x.
void elementwise_forward(Elementwise kind, float slope, int64_t n, const float* x, float* y);
// dx = dy · f′, told by `known`: x for gelu, y for the others. dx may be dy.
void elementwise_backward(Elementwise kind, float slope, int64_t n, const float* known,
                          const float* dy, float* dx);

// c = a + b; c may be a.
void add(int64_t n, const float* a, const float* b, float* c);
// dst = src; returns the greatest magnitude, where NaN is more than infinity.
float copy_and_most(int64_t n, const float* src, float* dst);
// dst = scale · src.
void scale(int64_t n, float factor, const float* src, float* dst);

// --- bias ---------------------------------------------------------------------------------------
// y[r][c] = f(y[r][c] + bias[c] + residual[r][c]) in place; bias and residual may be null;
// `activate` false leaves f out.
void bias_activate(int64_t rows, int64_t columns, const float* bias, const float* residual,
                   bool activate, Elementwise kind, float slope, float* y);
// db[c] (+)= Σ_r dy[r][c]. Adds to db when `accumulate`, else overwrites.
void column_sums(int64_t rows, int64_t columns, const float* dy, bool accumulate, float* db);
// dx = dy · f′(known) and db[c] (+)= Σ_r dx[r][c], in one pass; dx may be dy.
void elementwise_backward_column_sums(Elementwise kind, float slope, int64_t rows, int64_t columns,
                                      const float* known, const float* dy, float* dx,
                                      bool accumulate, float* db);

// --- pooling ------------------------------------------------------------------------------------
struct PoolShape {
  int64_t rows, in_h, in_w, channels, out_h, out_w;
  int64_t kernel_h, kernel_w, stride_h, stride_w, pad_top, pad_left;
};
// Max pooling; where[] gets the winner's place in the window (ky · kernel_w + kx, the first of
// equals; at most 256 places). With `relu`, y = max(0, ·), and where y is 0 the gradient is 0.
void max_pool_forward(const PoolShape& shape, bool relu, const float* x, float* y, uint8_t* where);
// dx is overwritten. With `relu` gradients pass only where y > 0 (y is read then, else may be
// null).
void max_pool_backward(const PoolShape& shape, bool relu, const float* y, const uint8_t* where,
                       const float* dy, float* dx);
// The average is over the elements of a window that lie inside the image. dx is overwritten.
void average_pool_forward(const PoolShape& shape, const float* x, float* y);
void average_pool_backward(const PoolShape& shape, const float* dy, float* dx);
// y[r][c] = mean over `pixels`; dx[r][p][c] = dy[r][c] / pixels.
void global_average_forward(int64_t rows, int64_t pixels, int64_t channels, const float* x,
                            float* y);
void global_average_backward(int64_t rows, int64_t pixels, int64_t channels, const float* dy,
                             float* dx);

// --- softmax and loss ---------------------------------------------------------------------------
void softmax_forward(int64_t rows, int64_t columns, const float* x, float* y);
// dx = y · (dy − Σ y·dy) per row; dx may be dy.
void softmax_backward(int64_t rows, int64_t columns, const float* y, const float* dy, float* dx);
// losses[r] = log Σ exp(x[r]) − x[r][label[r]]; dx (unless null) = scale · (softmax(x) − one-hot).
// Labels are valid classes.
void softmax_cross_entropy(int64_t rows, int64_t columns, const float* x, const float* labels,
                           float scale, float* losses, float* dx);

// --- dropout ------------------------------------------------------------------------------------
// Element e of row r is kept when the uniform of the stream (key, counter {e / 4, a, sample}) at e
// is ≥ rate, exactly RandomStream's numbers, and scaled by 1 / (1 − rate); others become 0. y may
// be x. The same call on dy is the backward pass.
void dropout(int64_t rows, int64_t elements, float rate, RandomKey key, const uint64_t* samples,
             const float* x, float* y);

// --- batch normalisation ------------------------------------------------------------------------
// Over n = rows · pixels values of each channel. Statistics are summed in f64 over blocks in a
// fixed order.
void batch_moments(int64_t n, int64_t channels, const float* x, double* mean, double* m2);
// y = f(x · a[c] + b[c]); relu if told; y may be x.
void channel_affine(int64_t n, int64_t channels, const float* a, const float* b, bool relu,
                    const float* x, float* y);
// The backward pass of y = f(scale · (x − mean) · inverse + shift) with statistics of this batch.
// With `relu`, gradients pass only where y > 0 (y is read then, else may be null). dscale, dshift
// are added to when `accumulate`. `scratch` is 2 · channels floats. dx may be dy; dx may be null.
void batch_norm_backward(int64_t n, int64_t channels, const float* x, const float* y, bool relu,
                         const float* mean, const float* inverse, const float* scale,
                         const float* dy, float* dx, bool accumulate, float* dscale, float* dshift,
                         float* scratch);

// --- precision and layout -----------------------------------------------------------------------
// Round to nearest even; NaN stays NaN.
void to_bf16(int64_t n, const float* src, uint16_t* dst);
void from_bf16(int64_t n, const uint16_t* src, float* dst);
// dst = src rounded to bf16 and back; dst may be src.
void round_bf16(int64_t n, const float* src, float* dst);
// dst[r] = scale · src[r] for bytes.
void from_u8(int64_t n, float factor, const uint8_t* src, float* dst);
// True when every value is finite.
bool all_finite(int64_t n, const float* x);

}  // namespace starling
