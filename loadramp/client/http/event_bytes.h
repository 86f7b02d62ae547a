/* event_bytes: where chunks, strings and numbers end, for c_reader.c. Every function is given the end of what was read.
 *
 * What is taken here every parser takes, and reads alike; anything doubtful is refused, and Python's parsers decide.
 */
#include <stdint.h>
#include <string.h>

#define PLAIN_BYTES 8192  /* a longer read is not kept as plain */

static int hex(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    digit |= 0x20;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* The size of the chunk that begins at *at, which moves behind its digits; 0: none begins there. */
static int chunk_size(const char **at, const char *end) {
    int size = 0;
    const char *from = *at;
    for (int digit; *at < end && *at - from < 6 && (digit = hex(**at)) >= 0; ++*at) size = 16 * size + digit;
    return size;
}

/* Where the JSON of a plain read begins: SIZE CR LF "data: {" ... "}" LF LF CR LF, the size right, no other line end.
 * 0: it is something else. */
static int plain_start(const char *data, int length) {
    const char *after = data;
    int size = chunk_size(&after, data + length), at = after - data, start = at + 2 + 6, end = length - 4;
    if (!at || length > PLAIN_BYTES || start + 2 > end || size != length - at - 4) return 0;
    if (memcmp(data + at, "\r\ndata: {", 9) || memcmp(data + end - 1, "}\n\n\r\n", 5)) return 0;
    if (memchr(data + start, '\r', end - start) || memchr(data + start, '\n', end - start)) return 0;
    return start;
}

/* The value of \uXXXX at `at`; -1: it is none. */
static int escaped(const char *at, const char *end) {
    int value = 0;
    if (end - at < 6 || at[0] != '\\' || at[1] != 'u') return -1;
    for (int i = 2, digit; i < 6; i++) {
        if ((digit = hex(at[i])) < 0) return -1;
        value = 16 * value + digit;
    }
    return value;
}

/* Bytes of the character of UTF-8 at `at` that is not ASCII; 0: it is none (Unicode, table 3-7). */
static int utf8(const unsigned char *at, const char *end) {
    int bytes = at[0] < 0xC2 ? 0 : at[0] < 0xE0 ? 2 : at[0] < 0xF0 ? 3 : at[0] < 0xF5 ? 4 : 0;
    if (!bytes || end - (const char *)at < bytes) return 0;
    int least = at[0] == 0xE0 ? 0xA0 : at[0] == 0xF0 ? 0x90 : 0x80;
    int most = at[0] == 0xED ? 0x9F : at[0] == 0xF4 ? 0x8F : 0xBF;
    if (at[1] < least || at[1] > most) return 0;
    for (int i = 2; i < bytes; i++)
        if ((at[i] & 0xC0) != 0x80) return 0;
    return bytes;
}

/* Behind the JSON string that begins at `at`; NULL: none does, or one that not every parser takes. */
static const char *string_end(const char *at, const char *end, int *characters) {
    *characters = 0;
    if (at == end || *at++ != '"') return NULL;
    for (; at < end && *at != '"'; ++*characters) {
        unsigned char byte = *at;
        if (byte < 0x20) return NULL;
        if (byte >= 0x80) {
            int bytes = utf8((const unsigned char *)at, end);
            if (!bytes) return NULL;
            at += bytes;
        } else if (byte != '\\') {
            at++;
        } else if (end - at > 1 && at[1] != 'u') {
            if (!at[1] || !strchr("\"\\/bfnrt", at[1])) return NULL;
            at += 2;
        } else {
            int value = escaped(at, end);
            if (value < 0 || (value >= 0xDC00 && value < 0xE000)) return NULL;
            at += 6;
            if (value >= 0xD800 && value < 0xE000) { /* half a character: the other half must follow */
                value = escaped(at, end);
                if (value < 0xDC00 || value >= 0xE000) return NULL;
                at += 6;
            }
        }
    }
    return at < end ? at + 1 : NULL;
}

/* Behind the number that begins at `at`, a whole one without sign or needless zero; NULL: none does. */
static const char *number_end(const char *at, const char *end, int64_t *value) {
    const char *from = at;
    for (*value = 0; at < end && at - from < 18 && *at >= '0' && *at <= '9'; at++) *value = 10 * *value + *at - '0';
    return at == from || (*from == '0' && at - from > 1) ? NULL : at;
}

/* The end of the line that goes on at `at`: where its CR is. NULL: it holds what a header may not. */
static const char *line_end(const char *at, const char *end) {
    for (; at < end && *at != '\r'; at++)
        if ((unsigned char)*at < 0x20 || (unsigned char)*at >= 0x7F) return NULL;
    return at < end ? at : NULL;
}
