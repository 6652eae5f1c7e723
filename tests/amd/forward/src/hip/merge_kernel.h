// The merge kernel as PTX. The driver compiles it for the GPU.
#pragma once

namespace forward {

constexpr unsigned kMergeBlocks = 32;
constexpr unsigned kMergeThreads = 256;

// merge(table, from): for each entry and each 32-bit word, moves the bytes that differ from `base`
// out of the copy at offset `from` into the other copy, and makes them the base. A block locks the
// chunk that it works on, because merges on several streams run at the same time. The lock cannot
// deadlock: a block holds one lock at most and waits for nothing while it holds it. One thread
// reads each entry for its block, since the host may change the table meanwhile; it reads the
// number of words first, and the host writes it last.
constexpr char kMergeKernel[] = R"ptx(
.version 6.4
.target sm_70
.address_size 64

.visible .entry merge(.param .u64 table, .param .u32 from)
{
  .reg .pred %leader, %stop, %busy;
  .reg .u32 %thread, %chunk, %chunks, %step, %old, %value, %known, %target, %mask, %bits;
  .reg .u64 %entry, %from, %to, %left, %words, %source, %sink, %base, %locks;
  .reg .u64 %word, %limit, %lock, %at, %address;
  .shared .align 8 .u64 row[5];

  ld.param.u64 %entry, [table];
  ld.param.u32 %old, [from];
  cvt.u64.u32 %from, %old;
  xor.b64 %to, %from, 8;
  mov.u32 %thread, %tid.x;
  mov.u32 %chunks, %nctaid.x;
  mov.u32 %step, %ntid.x;
  setp.eq.u32 %leader, %thread, 0;

  @%leader ld.acquire.sys.global.u64 %left, [%entry];
  @%leader st.shared.u64 [row], %left;
  bar.sync 0;
  ld.shared.u64 %left, [row];
  bar.sync 0;
  add.u64 %entry, %entry, 8;

NEXT_ENTRY:
  setp.eq.u64 %stop, %left, 0;
  @%stop bra END;
  @!%leader bra READ_ENTRY;
  ld.acquire.sys.global.u64 %words, [%entry + 32];
  ld.volatile.global.u64 %base, [%entry + 16];
  ld.volatile.global.u64 %locks, [%entry + 24];
  add.u64 %address, %entry, %from;
  ld.volatile.global.u64 %source, [%address];
  add.u64 %address, %entry, %to;
  ld.volatile.global.u64 %sink, [%address];
  st.shared.u64 [row], %words;
  st.shared.u64 [row + 8], %source;
  st.shared.u64 [row + 16], %sink;
  st.shared.u64 [row + 24], %base;
  st.shared.u64 [row + 32], %locks;
READ_ENTRY:
  bar.sync 0;
  ld.shared.u64 %words, [row];
  ld.shared.u64 %source, [row + 8];
  ld.shared.u64 %sink, [row + 16];
  ld.shared.u64 %base, [row + 24];
  ld.shared.u64 %locks, [row + 32];
  mov.u32 %chunk, %ctaid.x;

NEXT_CHUNK:
  mul.wide.u32 %word, %chunk, 4096;
  setp.ge.u64 %stop, %word, %words;
  @%stop bra END_ENTRY;
  add.u64 %limit, %word, 4096;
  min.u64 %limit, %limit, %words;
  mul.wide.u32 %lock, %chunk, 4;
  add.u64 %lock, %lock, %locks;
  @!%leader bra LOCKED;
SPIN:
  atom.acquire.sys.global.cas.b32 %old, [%lock], 0, 1;
  setp.ne.u32 %busy, %old, 0;
  @%busy bra SPIN;
  fence.acq_rel.sys;
LOCKED:
  bar.sync 0;
  cvt.u64.u32 %at, %thread;
  add.u64 %word, %word, %at;

NEXT_WORD:
  setp.ge.u64 %stop, %word, %limit;
  @%stop bra UNLOCK;
  shl.b64 %at, %word, 2;
  add.u64 %address, %source, %at;
  ld.volatile.global.u32 %value, [%address];
  add.u64 %address, %base, %at;
  ld.volatile.global.u32 %known, [%address];
  setp.eq.u32 %stop, %value, %known;
  @%stop bra UNCHANGED;
  st.volatile.global.u32 [%address], %value;
  xor.b32 %mask, %value, %known;
  shr.u32 %bits, %mask, 4;
  and.b32 %bits, %bits, 0x0f0f0f0f;
  or.b32 %mask, %mask, %bits;
  shr.u32 %bits, %mask, 2;
  or.b32 %mask, %mask, %bits;
  shr.u32 %bits, %mask, 1;
  or.b32 %mask, %mask, %bits;
  and.b32 %mask, %mask, 0x01010101;
  mul.lo.u32 %mask, %mask, 255;
  add.u64 %address, %sink, %at;
  ld.volatile.global.u32 %target, [%address];
  xor.b32 %bits, %value, %target;
  and.b32 %bits, %bits, %mask;
  xor.b32 %target, %target, %bits;
  st.volatile.global.u32 [%address], %target;
UNCHANGED:
  cvt.u64.u32 %at, %step;
  add.u64 %word, %word, %at;
  bra NEXT_WORD;

UNLOCK:
  fence.acq_rel.sys;
  bar.sync 0;
  @%leader st.release.sys.global.u32 [%lock], 0;
  add.u32 %chunk, %chunk, %chunks;
  bra NEXT_CHUNK;

END_ENTRY:
  bar.sync 0;
  add.u64 %entry, %entry, 40;
  sub.u64 %left, %left, 1;
  bra NEXT_ENTRY;

END:
  ret;
}
)ptx";

}  // namespace forward
