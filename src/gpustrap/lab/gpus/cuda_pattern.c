/* The part of the stand-in for libcuda.so.1 that tests memory: gpustrap_fill and gpustrap_check, see the README of
 * verify's kernels. A GPU has more memory than this machine: what was filled is written down, and becomes real where
 * somebody reads it.
 */
#include "cuda_kernels.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CHUNK ((size_t)1 << 20)
#define WORD sizeof(uint32_t)
#define LEAST(one, two) ((one) < (two) ? (one) : (two))

/* A chunk of an allocation that holds pattern(first + i, seed) ^ flip, though nothing is there. */
struct chunk { struct pattern pattern; int promised; };

static uint32_t word_of(const struct pattern *is, uint64_t index)
{
    uint64_t place = is->first + index;
    uint32_t x = (uint32_t)place ^ (uint32_t)(place >> 32) * 0x9E3779B1U ^ is->seed;

    x = (x ^ x >> 16) * 0x85EBCA6BU;
    x = (x ^ x >> 13) * 0xC2B2AE35U;
    return (x ^ x >> 16) ^ is->flip;
}
__attribute__((optimize("O3")))
static void write_words(char *to, size_t words, const struct pattern *is, uint64_t index)
{
    size_t at;

    for (at = 0; at < words; at++) {
        uint32_t word = word_of(is, index + at);
        memcpy(to + at * WORD, &word, WORD);
    }
}
static void keep_promise(struct allocation *where, size_t number)
{
    struct chunk *chunk = &where->chunks[number];

    if (chunk->promised)
        write_words(where->host + number * CHUNK, CHUNK / WORD, &chunk->pattern, 0);
    chunk->promised = 0;
}
void make_real(struct allocation *where, size_t offset, size_t size)
{
    size_t number;

    for (number = offset / CHUNK; where->chunks && size && number <= (offset + size - 1) / CHUNK; number++)
        keep_promise(where, number);
}

/* A promise is only made for a whole chunk, the last and shorter one of an allocation is always real. */
static int is_whole(size_t offset, size_t size, size_t number)
{
    return number * CHUNK >= offset && (number + 1) * CHUNK <= offset + size;
}
CUresult fill_pattern(struct allocation *where, size_t offset, uint64_t words, const struct pattern *is)
{
    size_t at = offset, end = offset + words * WORD;

    if (!where->chunks)
        where->chunks = calloc(where->size / CHUNK + 1, sizeof *where->chunks);
    if (!where->chunks)
        return CUDA_ERROR_OUT_OF_MEMORY;
    while (at < end) {
        size_t number = at / CHUNK, next = LEAST((number + 1) * CHUNK, end);
        struct chunk *chunk = &where->chunks[number];

        if (is_whole(offset, end - offset, number)) {
            if (!chunk->promised)
                madvise(where->host + at, CHUNK, MADV_DONTNEED);
            chunk->pattern = *is;
            chunk->pattern.first += (at - offset) / WORD;
            chunk->promised = 1;
        } else {
            keep_promise(where, number);
            write_words(where->host + at, (next - at) / WORD, is, (at - offset) / WORD);
        }
        at = next;
    }
    return CUDA_SUCCESS;
}

/* What was promised and is asked for need not be looked at. */
static int is_as_promised(const struct allocation *where, size_t number, const struct pattern *is, uint64_t index)
{
    const struct chunk *chunk = where->chunks ? &where->chunks[number] : NULL;

    return chunk && chunk->promised && chunk->pattern.first == is->first + index &&
           chunk->pattern.seed == is->seed && chunk->pattern.flip == is->flip;
}
void check_pattern(struct allocation *where, size_t offset, uint64_t words, const struct pattern *is,
                   struct report *report)
{
    size_t at = offset, end = offset + words * WORD;
    ssize_t stuck = stuck_word(where, offset, end - offset, NULL);

    while (at < end) {
        size_t number = at / CHUNK, next = LEAST((number + 1) * CHUNK, end);
        int broken = stuck >= (ssize_t)at && stuck < (ssize_t)next;
        int whole = !broken && is_whole(offset, end - offset, number);

        if (!whole || !is_as_promised(where, number, is, (at - offset) / WORD)) {
            const char *memory = read_memory(where, at, next - at);
            for (; at < next; at += WORD, memory += WORD) {
                uint32_t got, want = word_of(is, (at - offset) / WORD);
                memcpy(&got, memory, WORD);
                if (got != want)
                    add_to_report(report, (at - offset) / WORD, got, want);
            }
        }
        at = next;
    }
}
