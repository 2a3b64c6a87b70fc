// INCRBYFLOAT in the C compiler's `long double`, with the functions that redis-server uses: what
// `extended.rs` calls. Nothing here keeps state or allocates.

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX_BYTES = 5 * 1024 };

_Static_assert(sizeof(long double) <= 16, "Extended has 16 bytes");
_Static_assert(LDBL_MAX_10_EXP + 24 < TEXT_MAX_BYTES, "a written number fits");

// Reads a number that is the whole text. Returns 0 when it is none, or beyond what is finite or zero.
int darter_extended_parse(const char *text, size_t bytes, long double *value) {
    char copy[TEXT_MAX_BYTES];
    char *end;
    if (bytes == 0 || bytes >= sizeof copy || strchr(" \t\n\v\f\r", text[0])) return 0;
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    errno = 0;
    *value = strtold(copy, &end);
    if (end != copy + bytes || isnan(*value)) return 0;
    return errno != ERANGE || (!isinf(*value) && *value != 0);
}

// The sum. Returns 0 when it is not finite.
int darter_extended_add(const long double *one, const long double *other, long double *sum) {
    *sum = *one + *other;
    return isfinite(*sum);
}

void darter_extended_negate(const long double *value, long double *negated) { *negated = -*value; }

// Less than 0, 0 or more, as `one` is less than, equal to or more than `other`.
int darter_extended_compare(const long double *one, const long double *other) {
    return (*one > *other) - (*one < *other);
}

void darter_extended_max(long double *value) { *value = LDBL_MAX; }

// Writes `%.17Lf` into TEXT_MAX_BYTES. Returns its length.
int darter_extended_format(const long double *value, char *text) {
    return snprintf(text, TEXT_MAX_BYTES, "%.17Lf", *value);
}
