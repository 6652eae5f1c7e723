// Macros for the functions that this library exports in front of the MPI's own. Every argument is a
// word (word.h).
#pragma once

#include "mpi/word.h"

#define HETCCL_MPI_EXPORT extern "C" __attribute__((visibility("default"))) int

// Parameter and argument lists of functions with N words.
#define HETCCL_WORDS_1 Word a
#define HETCCL_WORDS_2 HETCCL_WORDS_1, Word b
#define HETCCL_WORDS_3 HETCCL_WORDS_2, Word c
#define HETCCL_WORDS_4 HETCCL_WORDS_3, Word d
#define HETCCL_WORDS_5 HETCCL_WORDS_4, Word e
#define HETCCL_WORDS_6 HETCCL_WORDS_5, Word f
#define HETCCL_WORDS_7 HETCCL_WORDS_6, Word g
#define HETCCL_WORDS_8 HETCCL_WORDS_7, Word h
#define HETCCL_WORDS_9 HETCCL_WORDS_8, Word i
#define HETCCL_WORDS_10 HETCCL_WORDS_9, Word j
#define HETCCL_WORDS_11 HETCCL_WORDS_10, Word k
#define HETCCL_WORDS_12 HETCCL_WORDS_11, Word l
#define HETCCL_NAMES_1 a
#define HETCCL_NAMES_2 HETCCL_NAMES_1, b
#define HETCCL_NAMES_3 HETCCL_NAMES_2, c
#define HETCCL_NAMES_4 HETCCL_NAMES_3, d
#define HETCCL_NAMES_5 HETCCL_NAMES_4, e
#define HETCCL_NAMES_6 HETCCL_NAMES_5, f
#define HETCCL_NAMES_7 HETCCL_NAMES_6, g
#define HETCCL_NAMES_8 HETCCL_NAMES_7, h
#define HETCCL_NAMES_9 HETCCL_NAMES_8, i
#define HETCCL_NAMES_10 HETCCL_NAMES_9, j
#define HETCCL_NAMES_11 HETCCL_NAMES_10, k
#define HETCCL_NAMES_12 HETCCL_NAMES_11, l
