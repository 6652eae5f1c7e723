// The device's half of base/encoding.h, bit for bit. A group of threads encodes a block. Each
// thread has some of its chunks, which are quads: four elements, whose codes fill a word. Kernels
// are named hetccl_reduce_encoded_<type>_<format>.

#define HETCCL_METHOD __device__ __forceinline__

const u32 kScaleBytes = 4;
const u32 kQuad = 4;
const u32 kMostBlock = 512;
const u32 kPart = 16;  // elements per thread at once: with twice as many, fewer threads fit
#if defined(__CUDACC_RTC__) || defined(__HIPCC_RTC__)
const u32 kMostLanes = kMostBlock / kPart;  // threads of a group
#else                                       // a host has one thread
const u32 kMostLanes = 1;
#endif

HETCCL_DEVICE u32 larger(u32 a, u32 b) {
  return a > b ? a : b;
}

// Returns the largest value in the group, whose first lane follows from its number of threads.
HETCCL_DEVICE u32 max_of_group(u32 value, [[maybe_unused]] u32 lanes) {
#if defined(__CUDACC_RTC__)
  const u32 mask = (0xffffffffu >> (32 - lanes)) << (threadIdx.x % 32 / lanes * lanes);
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(mask, value);
#endif
  for (u32 other = lanes / 2; other > 0; other /= 2)
    value = larger(value, __shfl_xor_sync(mask, value, other));
#elif defined(__HIPCC_RTC__)
  for (u32 other = lanes / 2; other > 0; other /= 2)
    value = larger(value, (u32)__shfl_xor((i32)value, (i32)other));
#endif
  return value;
}

HETCCL_DEVICE u32 scramble(u32 x) {
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

// Returns a value in [-1/2, 1/2), in steps of 2^-24.
HETCCL_DEVICE float dither_of(u32 counter) {
  return (float)(i32)(scramble(counter) >> 8) * bits_of<float>(0x33800000u) - 0.5f;
}

const u32 kStep = 0x9e3779b9u;  // of counters, from element to element

// Moves a value of a float format for its stochastic code. Codes are closer below a power of two,
// so a value moved below it from above becomes the power itself.
HETCCL_DEVICE float moved_float(float value, float by, u32 fraction, u32 least_normal) {
  const u32 exponent = bits_of<u32>(value) & 0x7f800000u;
  const float step = bits_of<float>(larger(exponent, least_normal) - (fraction << 23));
  const u32 moved = bits_of<u32>(value + by * step);
  const u32 least = exponent < least_normal ? 0u : exponent;
  return bits_of<float>(larger(moved & 0x7fffffffu, least) | (moved & 0x80000000u));
}

// Formats of codes. A word holds four codes, the first in its lowest bits. Values to pack are
// finite.
//
// Adding 1.5 * 2^23 makes the adder round to integers, to nearest even; they are the lowest bits of
// the sum. The four sums are shifted to their places and added; then everything but the codes plus
// `kBias`, which makes them unsigned, is subtracted at once.
template <typename Word_, u32 kMagnitude>
struct IntegerCodes {
  typedef Word_ Word;
  static const u32 kBits = 2 * sizeof(Word);
  static const u32 kBias = 1u << (kBits - 1);
  static const u32 kOnes = (Word)0xffffffffu / ((1u << kBits) - 1);  // a one for each code
  static const u32 kRounder = 0x4b400000u;
  static const u32 kInteger = 0x4b000000u;  // 2^23: its lowest bit is worth one
  HETCCL_DEVICE float largest() { return (float)kMagnitude; }
  HETCCL_DEVICE float moved(float value, float by) {
    const float moved = value + by, most = largest();
    return moved < -most ? -most : moved > most ? most : moved;
  }
  HETCCL_DEVICE Word pack(const float* values) {
    u32 sum = 0;
    HETCCL_UNROLL
    for (u32 j = 0; j < kQuad; ++j)
      sum += bits_of<u32>(values[j] + bits_of<float>((u32)kRounder)) << (j * kBits);
    return (Word)((sum - (kRounder - kBias) * kOnes) ^ (kBias * kOnes));
  }
  HETCCL_DEVICE void unpack(u32 codes, float* values) {
    codes ^= kBias * kOnes;
    HETCCL_UNROLL
    for (u32 j = 0; j < kQuad; ++j) {
      const u32 code = codes >> (j * kBits) & ((1u << kBits) - 1);
      values[j] = bits_of<float>(code | kInteger) - (8388608.0f + (float)kBias);
    }
  }
};
typedef IntegerCodes<u32, 127> Int8Codes;
typedef IntegerCodes<u16, 7> Int4Codes;

template <typename Float, u32 kLargest, u32 kFraction, u32 kLeastNormal>
struct FloatCodes {
  typedef u32 Word;
  static const u32 kBits = 8;
  HETCCL_DEVICE float largest() { return (float)kLargest; }
  HETCCL_DEVICE float moved(float value, float by) {
    return moved_float(value, by, kFraction, kLeastNormal);
  }
  HETCCL_DEVICE u32 pack(const float* values) {
    u32 codes = 0;
    HETCCL_UNROLL
    for (u32 j = 0; j < kQuad; ++j) codes |= (u32)Float::store(values[j]) << (8 * j);
    return codes;
  }
  HETCCL_DEVICE void unpack(u32 codes, float* values) {
    HETCCL_UNROLL
    for (u32 j = 0; j < kQuad; ++j) values[j] = Float::load((u8)(codes >> (8 * j)));
  }
};

typedef FloatCodes<E4m3, 448, 3, 121u << 23> AnyE4m3Codes;
typedef FloatCodes<E5m2, 57344, 2, 113u << 23> AnyE5m2Codes;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
// Packs pairs in hardware.
#define HETCCL_PAIRED(Name, pair)                                                           \
  struct Name : Any##Name {                                                                 \
    HETCCL_DEVICE u32 pack(const float* v) {                                                \
      u16 low, high;                                                                        \
      asm("cvt.rn.satfinite." pair ".f32 %0, %1, %2;" : "=h"(low) : "f"(v[1]), "f"(v[0]));  \
      asm("cvt.rn.satfinite." pair ".f32 %0, %1, %2;" : "=h"(high) : "f"(v[3]), "f"(v[2])); \
      return (u32)low | (u32)high << 16;                                                    \
    }                                                                                       \
    HETCCL_DEVICE void unpack(u32 codes, float* values) {                                   \
      HETCCL_UNROLL                                                                         \
      for (u32 j = 0; j < kQuad; j += 2) {                                                  \
        u32 halves;                                                                         \
        asm("cvt.rn.f16x2." pair " %0, %1;" : "=r"(halves) : "h"((u16)(codes >> (8 * j)))); \
        values[j] = Half::load((u16)halves);                                                \
        values[j + 1] = Half::load((u16)(halves >> 16));                                    \
      }                                                                                     \
    }                                                                                       \
  }
HETCCL_PAIRED(E4m3Codes, "e4m3x2");
HETCCL_PAIRED(E5m2Codes, "e5m2x2");
#else
typedef AnyE4m3Codes E4m3Codes;
typedef AnyE5m2Codes E5m2Codes;
#endif

// That many bytes at once, aligned to 8 or to 16.
template <u32 kBytes>
struct Wide {
  static const u32 kAlignment = 16;
  uint4 parts[kBytes / 16];
};
template <>
struct Wide<8> {
  static const u32 kAlignment = 8;
  uint2 parts[1];
};

// A block whose largest magnitude has at least these bits leaves a residual of zeros.
template <typename Type>
struct ResidualLimit {
  static const u32 kBits = 254u << 23;  // 2^127
};
template <>
struct ResidualLimit<Half> {
  static const u32 kBits = 142u << 23;  // 2^15
};

// One thread's part of the work: the places of its data, and the encoding of a block.
template <typename Type, typename Codes, u32 kQuads>
struct Encoder {
  typedef typename Type::Word Word;
  static const u32 kChunk = kQuads * kQuad;  // elements
  static const u32 kMostChunks = kMostBlock / kMostLanes / kChunk;
  typedef Wide<kChunk * sizeof(Word)> Packed;
  union Chunk {
    Packed packed;
    Word words[kChunk];
  };
  struct alignas(kQuads * sizeof(typename Codes::Word) < 4 ? 2 : 4) PackedCodes {
    typename Codes::Word quads[kQuads];
  };

  const Arguments& a;
  const u32 lanes, lane;
  const u32 chunks;         // of this thread, in a block
  const u32 encoded_bytes;  // of a block

  HETCCL_DEVICE u32 lanes_of(u32 block) {
    return block / kPart < kMostLanes ? block / kPart : kMostLanes;
  }
  HETCCL_METHOD Encoder(const Arguments& arguments, u32 thread)
      : a(arguments),
        lanes(lanes_of(a.block)),
        lane(thread % lanes),
        chunks(a.block / kChunk / lanes),
        encoded_bytes(kScaleBytes + a.block * Codes::kBits / 8) {}

  HETCCL_METHOD bool is_encoded(u32 operand) const { return (a.encoded >> operand & 1u) != 0; }
  HETCCL_METHOD bool is_result_encoded() const { return is_encoded(16); }
  // Returns the first element of chunk `c` in a block: neighbouring threads have neighbouring
  // chunks.
  HETCCL_METHOD u32 first_of(u32 c) const { return (c * lanes + lane) * kChunk; }
  HETCCL_DEVICE u32 codes_offset(u32 first) { return kScaleBytes + first * Codes::kBits / 8; }
  HETCCL_METHOD const u8* encoded_source(u32 s, u32 block) const {
    return (const u8*)a.srcs[s] + (u64)block * encoded_bytes;
  }
  HETCCL_METHOD u8* encoded_result(u32 block) const {
    return (u8*)a.dst + (u64)block * encoded_bytes;
  }
  HETCCL_METHOD const Word* plain_source(u32 s, u32 block) const {
    return (const Word*)a.srcs[s] + (u64)block * a.block;
  }
  HETCCL_METHOD Word* plain_result(u32 block) const { return (Word*)a.dst + (u64)block * a.block; }
  HETCCL_METHOD bool has_residual() const { return a.residual != 0; }
  HETCCL_METHOD Word* residual(u32 block) const { return (Word*)a.residual + (u64)block * a.block; }
  HETCCL_METHOD bool is_aligned(u32 operand, const void* pointer) const {
    return is_encoded(operand) || (u64)pointer % Packed::kAlignment == 0;
  }
  HETCCL_METHOD bool are_aligned() const {
    bool all = is_aligned(16, a.dst) && (u64)a.residual % Packed::kAlignment == 0;
    for (u32 s = 0; s < a.n_srcs; ++s) all &= is_aligned(s, a.srcs[s]);
    return all;
  }

  HETCCL_DEVICE void unpack(PackedCodes codes, float* values) {
    HETCCL_UNROLL
    for (u32 q = 0; q < kQuads; ++q) Codes::unpack(codes.quads[q], values + q * kQuad);
  }
  template <bool kFirst>
  HETCCL_DEVICE void add_codes(float* sums, PackedCodes codes, float scale) {
    float values[kChunk];
    unpack(codes, values);
    HETCCL_UNROLL
    for (u32 j = 0; j < kChunk; ++j)
      sums[j] = kFirst ? values[j] * scale : sums[j] + values[j] * scale;
  }
  template <bool kFirst>
  HETCCL_DEVICE void add_words(float* sums, const Chunk& chunk, float down) {
    HETCCL_UNROLL
    for (u32 j = 0; j < kChunk; ++j) {
      const float value = Type::load(chunk.words[j]) * down;
      sums[j] = kFirst ? value : sums[j] + value;
    }
  }
  HETCCL_METHOD void divide(float* sums) const {
    if (a.quotient == 1.0f) return;
    HETCCL_UNROLL
    for (u32 j = 0; j < kChunk; ++j) sums[j] = sums[j] / a.quotient;
  }

  // Converts sums to codes: multiplies finite ones by `inverse`.
  struct Scaling {
    float scale, inverse;
    bool finite;
    bool leaves;  // writes a residual
    u32 counter;  // of stochastic codes, at the block's start
  };
  HETCCL_DEVICE u32 largest_of(u32 largest, const float* sums) {
    HETCCL_UNROLL
    for (u32 j = 0; j < kChunk; ++j) largest = larger(largest, bits_of<u32>(sums[j]) & 0x7fffffffu);
    return largest;
  }
  HETCCL_METHOD Scaling scaling_of(u32 block, u32 largest_here) const {
    const u32 largest = max_of_group(largest_here, lanes);
    Scaling scaling;
    scaling.finite = largest < 0x7f800000u;
    scaling.leaves = largest < ResidualLimit<Type>::kBits;
    scaling.scale = scaling.finite ? bits_of<float>(largest) * (1.0f / Codes::largest())
                                   : bits_of<float>(0x7fc00000u);
    if (scaling.scale < bits_of<float>(0x00800000u)) scaling.scale = 0.0f;
    scaling.inverse = scaling.finite && scaling.scale > 0.0f ? 1.0f / scaling.scale : 0.0f;
    const u64 element = a.first_element + (u64)block * a.block;
    scaling.counter = (u32)element * kStep + scramble(a.salt ^ (u32)(element >> 32));
    return scaling;
  }
  // Returns the codes of a chunk that begins at element `first` of the block.
  HETCCL_METHOD PackedCodes codes_of(const float* sums, const Scaling& scaling, u32 first) const {
    float values[kChunk];
    HETCCL_UNROLL
    for (u32 j = 0; j < kChunk; ++j) values[j] = sums[j] * scaling.inverse;
    if (a.stochastic != 0) {
      HETCCL_UNROLL
      for (u32 j = 0; j < kChunk; ++j)
        values[j] = Codes::moved(values[j], dither_of(scaling.counter + (first + j) * kStep));
    }
    PackedCodes codes;
    HETCCL_UNROLL
    for (u32 q = 0; q < kQuads; ++q)
      codes.quads[q] = scaling.finite ? Codes::pack(values + q * kQuad) : (typename Codes::Word)0;
    return codes;
  }
  // Replaces a chunk's sums by what `codes` lack of them.
  HETCCL_DEVICE void keep_lost(float* sums, PackedCodes codes, const Scaling& scaling) {
    float values[kChunk];
    unpack(codes, values);
    HETCCL_UNROLL
    for (u32 j = 0; j < kChunk; ++j)
      sums[j] = scaling.leaves ? sums[j] - values[j] * scaling.scale : 0.0f;
  }
  HETCCL_METHOD u8* begin_block(u32 block, const Scaling& scaling) const {
    u8* to = encoded_result(block);
    if (lane == 0) *(float*)to = scaling.scale;
    return to;
  }
};

// Encodes whole blocks whose operands are aligned.
template <typename Type, typename Codes, u32 kChunks>
struct WholeBlocks {
  typedef Encoder<Type, Codes, 4 / sizeof(typename Type::Word)> E;  // 16 bytes a chunk
  typedef float Sums[kChunks][E::kChunk];

  HETCCL_DEVICE void store_words(const E& e, typename E::Word* to, const Sums& sums) {
    HETCCL_UNROLL
    for (u32 c = 0; c < kChunks; ++c) {
      typename E::Chunk chunk;
      HETCCL_UNROLL
      for (u32 j = 0; j < E::kChunk; ++j) chunk.words[j] = Type::store(sums[c][j]);
      *(typename E::Packed*)(to + e.first_of(c)) = chunk.packed;
    }
  }
  // A block's elements as loaded.
  struct Plain {
    typename E::Chunk chunks[kChunks];
    HETCCL_METHOD Plain(const E& e, const typename E::Word* from) {
      HETCCL_UNROLL
      for (u32 c = 0; c < kChunks; ++c)
        chunks[c].packed = *(const typename E::Packed*)(from + e.first_of(c));
    }
    HETCCL_METHOD Plain(const E& e, u32 s, u32 block) : Plain(e, e.plain_source(s, block)) {}
    template <bool kFirst>
    HETCCL_METHOD void add(Sums& sums, float down) const {
      HETCCL_UNROLL
      for (u32 c = 0; c < kChunks; ++c) E::template add_words<kFirst>(sums[c], chunks[c], down);
    }
  };
  struct Encoded {
    typename E::PackedCodes codes[kChunks];
    float scale;
    HETCCL_METHOD Encoded(const E& e, u32 s, u32 block) {
      const u8* from = e.encoded_source(s, block);
      scale = *(const float*)from * e.a.down;
      HETCCL_UNROLL
      for (u32 c = 0; c < kChunks; ++c)
        codes[c] = *(const typename E::PackedCodes*)(from + E::codes_offset(e.first_of(c)));
    }
    template <bool kFirst>
    HETCCL_METHOD void add(Sums& sums, float) const {
      HETCCL_UNROLL
      for (u32 c = 0; c < kChunks; ++c) E::template add_codes<kFirst>(sums[c], codes[c], scale);
    }
  };
  template <bool kResidual>
  HETCCL_DEVICE void store_encoded(const E& e, u32 block, Sums& sums) {
    if (kResidual) Plain(e, e.residual(block)).template add<false>(sums, 1.0f);
    u32 largest = 0;
    HETCCL_UNROLL
    for (u32 c = 0; c < kChunks; ++c) largest = E::largest_of(largest, sums[c]);
    const typename E::Scaling scaling = e.scaling_of(block, largest);
    u8* to = e.begin_block(block, scaling);
    HETCCL_UNROLL
    for (u32 c = 0; c < kChunks; ++c) {
      const typename E::PackedCodes codes = e.codes_of(sums[c], scaling, e.first_of(c));
      *(typename E::PackedCodes*)(to + E::codes_offset(e.first_of(c))) = codes;
      if (kResidual) E::keep_lost(sums[c], codes, scaling);
    }
    if (kResidual) store_words(e, e.residual(block), sums);
  }

  // Loads everything before storing, because the result may be a source.
  template <typename First>
  HETCCL_DEVICE void reduce_block(const E& e, u32 block, const First& first) {
    Sums sums;
    first.template add<true>(sums, e.a.down);
    for (u32 s = 1; s < e.a.n_srcs; ++s)
      e.is_encoded(s) ? Encoded(e, s, block).template add<false>(sums, e.a.down)
                      : Plain(e, s, block).template add<false>(sums, e.a.down);
    HETCCL_UNROLL
    for (u32 c = 0; c < kChunks; ++c) e.divide(sums[c]);
    if (!e.is_result_encoded()) return store_words(e, e.plain_result(block), sums);
    e.has_residual() ? store_encoded<true>(e, block, sums) : store_encoded<false>(e, block, sums);
  }
  // Loads the next block's first source while this block is reduced.
  template <typename First>
  HETCCL_DEVICE void reduce_blocks(const E& e, u32 n_blocks, u32 group, u32 groups) {
    if (group >= n_blocks) return;
    First next(e, 0, group);
    for (u64 block = group; block < n_blocks; block += groups) {
      const First first = next;
      if (block + groups < n_blocks) next = First(e, 0, (u32)block + groups);
      reduce_block(e, (u32)block, first);
    }
  }

  // On a device a thread always has kChunks; on a host it has a whole block's.
  HETCCL_DEVICE void reduce(const E& e, u32 n_blocks, u32 group, u32 groups) {
    if constexpr (kChunks < E::kMostChunks) {
      if (e.chunks > kChunks)
        return WholeBlocks<Type, Codes, 2 * kChunks>::reduce(e, n_blocks, group, groups);
    }
    e.is_encoded(0) ? reduce_blocks<Encoded>(e, n_blocks, group, groups)
                    : reduce_blocks<Plain>(e, n_blocks, group, groups);
  }
};

// Encodes any block: its end may be missing, and its operands may be unaligned.
template <typename Type, typename Codes>
struct AnyBlock {
  typedef Encoder<Type, Codes, 1> E;

  HETCCL_DEVICE void add_codes(float* sums, u32 s, typename E::PackedCodes codes, float scale) {
    s == 0 ? E::template add_codes<true>(sums, codes, scale)
           : E::template add_codes<false>(sums, codes, scale);
  }
  HETCCL_DEVICE void add_words(float* sums, u32 s, const typename E::Chunk& chunk, float down) {
    s == 0 ? E::template add_words<true>(sums, chunk, down)
           : E::template add_words<false>(sums, chunk, down);
  }
  HETCCL_DEVICE typename E::PackedCodes load_codes(const u8* from, u32 length) {
    u32 codes = 0;
    for (u32 i = 0; i * 8 < length * Codes::kBits; ++i) codes |= (u32)from[i] << (8 * i);
    return {{(typename Codes::Word)codes}};
  }

  // Returns the number of elements of chunk `c` in a block of `n`.
  HETCCL_DEVICE u32 length_of(const E& e, u32 n, u32 c) {
    const u32 first = e.first_of(c);
    return first >= n ? 0 : n - first < kQuad ? n - first : kQuad;
  }
  HETCCL_DEVICE bool is_packed(const typename E::Word* at, u32 length) {
    return length == kQuad && (u64)at % E::Packed::kAlignment == 0;
  }
  HETCCL_DEVICE typename E::Chunk load_words(const typename E::Word* from, u32 length) {
    typename E::Chunk chunk;
    if (is_packed(from, length)) {
      chunk.packed = *(const typename E::Packed*)from;
      return chunk;
    }
    for (u32 j = 0; j < kQuad; ++j) chunk.words[j] = j < length ? from[j] : (typename E::Word)0;
    return chunk;
  }
  HETCCL_DEVICE void store_words(typename E::Word* to, const float* sums, u32 length) {
    typename E::Chunk chunk;
    for (u32 j = 0; j < kQuad; ++j) chunk.words[j] = Type::store(sums[j]);
    if (is_packed(to, length)) {
      *(typename E::Packed*)to = chunk.packed;
      return;
    }
    for (u32 j = 0; j < length; ++j) to[j] = chunk.words[j];
  }

  HETCCL_DEVICE void store_encoded(const E& e, u32 block, u32 n, float (*sums)[kQuad]) {
    u32 largest = 0;
    for (u32 c = 0; c < e.chunks; ++c) {
      const u32 length = length_of(e, n, c);
      if (e.has_residual())
        add_words(sums[c], 1, load_words(e.residual(block) + e.first_of(c), length), 1.0f);
      // Elements beyond the end count as zeros.
      for (u32 j = length; j < kQuad; ++j) sums[c][j] = 0.0f;
      largest = E::largest_of(largest, sums[c]);
    }
    const typename E::Scaling scaling = e.scaling_of(block, largest);
    u8* to = e.begin_block(block, scaling);
    for (u32 c = 0; c < e.chunks; ++c) {
      const u32 length = length_of(e, n, c);
      const typename E::PackedCodes codes = e.codes_of(sums[c], scaling, e.first_of(c));
      for (u32 i = 0; i * 8 < length * Codes::kBits; ++i)
        to[E::codes_offset(e.first_of(c)) + i] = (u8)(codes.quads[0] >> (8 * i));
      if (!e.has_residual()) continue;
      E::keep_lost(sums[c], codes, scaling);
      store_words(e.residual(block) + e.first_of(c), sums[c], length);
    }
  }

  HETCCL_DEVICE void reduce(const E& e, u32 block) {
    const u64 left = e.a.count - (u64)block * e.a.block;
    const u32 n = left < e.a.block ? (u32)left : e.a.block;
    float sums[E::kMostChunks][kQuad];
    for (u32 s = 0; s < e.a.n_srcs; ++s) {
      for (u32 c = 0; c < e.chunks; ++c) {
        const u32 length = length_of(e, n, c);
        if (e.is_encoded(s)) {
          const u8* from = e.encoded_source(s, block);
          const typename E::PackedCodes codes =
              load_codes(from + E::codes_offset(e.first_of(c)), length);
          add_codes(sums[c], s, codes, *(const float*)from * e.a.down);
        } else {
          const typename E::Word* from = e.plain_source(s, block) + e.first_of(c);
          add_words(sums[c], s, load_words(from, length), e.a.down);
        }
      }
    }
    for (u32 c = 0; c < e.chunks; ++c) e.divide(sums[c]);
    if (e.is_result_encoded()) return store_encoded(e, block, n, sums);
    for (u32 c = 0; c < e.chunks; ++c)
      store_words(e.plain_result(block) + e.first_of(c), sums[c], length_of(e, n, c));
  }
};

// Not inlined: its arrays in memory would push those of whole blocks out of registers.
template <typename Type, typename Codes>
__device__ __noinline__ void reduce_any_blocks(const Arguments& a, u32 first, u32 thread) {
  typedef AnyBlock<Type, Codes> Any;
  const typename Any::E e(a, thread);
  const u32 groups = gridDim.x * blockDim.x / e.lanes;
  for (u64 block = first + thread / e.lanes; block * a.block < a.count; block += groups)
    Any::reduce(e, (u32)block);
}

// Counts blocks in 32 bits, enough for 2^37 elements.
template <typename Type, typename Codes>
HETCCL_DEVICE void reduce_encoded(const Arguments& a) {
  typedef WholeBlocks<Type, Codes, kPart * sizeof(typename Type::Word) / 16> Whole;
  const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
  const typename Whole::E e(a, thread);
  const u32 n_whole = e.are_aligned() ? (u32)(a.count / a.block) : 0;
  Whole::reduce(e, n_whole, thread / e.lanes, gridDim.x * blockDim.x / e.lanes);
  if ((u64)n_whole * a.block < a.count) reduce_any_blocks<Type, Codes>(a, n_whole, thread);
}

// Registers suffice for 1,024 threads with 16-bit types, and for 512 with 32-bit types.
#define HETCCL_ENCODED(type, Type, format, Codes)                                               \
  extern "C" __global__ void __launch_bounds__(512, sizeof(typename Type::Word) == 2 ? 2 : 1)   \
      hetccl_reduce_encoded_##type##_##format(const HETCCL_GRID_CONSTANT Arguments arguments) { \
    reduce_encoded<Type, Codes>(arguments);                                                     \
  }
#define HETCCL_ENCODINGS(type, Type)          \
  HETCCL_ENCODED(type, Type, int8, Int8Codes) \
  HETCCL_ENCODED(type, Type, int4, Int4Codes) \
  HETCCL_ENCODED(type, Type, e4m3, E4m3Codes) \
  HETCCL_ENCODED(type, Type, e5m2, E5m2Codes)

#if !defined(HETCCL_PART) || HETCCL_PART == 10
HETCCL_ENCODINGS(float16, Half)
#endif
#if !defined(HETCCL_PART) || HETCCL_PART == 11
HETCCL_ENCODINGS(bfloat16, BFloat)
#endif
#if !defined(HETCCL_PART) || HETCCL_PART == 12
HETCCL_ENCODINGS(float32, Float32)
#endif
