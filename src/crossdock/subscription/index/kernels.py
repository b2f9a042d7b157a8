"""The matching loops compiled by numba. Importing this module fails where numba is missing; nothing else does.

Two things make them fast and long: indexes and codes are unsigned, since a signed index is tested for wrap-around on
every access; and no array is passed to another function in a loop, since that counts references to it each time.
"""

from __future__ import annotations

# numba infers the types of these functions from the arrays they are given.
# mypy: disallow-untyped-defs=False, check-untyped-defs=False
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from crossdock.subscription.index.codes import HASH_FACTOR, HASH_SEED


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile on first use and keep the machine code on disk, where a folder for it can be written."""
    try:
        return numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:
        return numba.njit(nogil=True, error_model="numpy")(function)


_U64 = np.uint64
_SEED, _FACTOR = _U64(HASH_SEED), _U64(HASH_FACTOR)
_ZERO, _ONE, _TWO, _THREE = _U64(0), _U64(1), _U64(2), _U64(3)
_PROPERTY_SHIFT, _PROPERTY_MASK = _U64(50), _U64(0xFFF)
_LOW_SHIFT, _CODE_MASK, _KIND_SHIFT = _U64(25), _U64(0x1FFFFFF), _U64(62)
_LENGTH_MASK, _SPECIAL_MASK, _BY_REFERENCE = _U64(0xFFFF), _U64(0xFFFF0000), _U64(1 << 31)
_ORDINAL_SHIFT, _ORDINAL_MASK, _SUBSCRIPTION_SHIFT = _U64(16), _U64(0x7FFF), _U64(32)
_SEVEN, _EIGHT_BITS = _U64(7), _U64(3)


@compiled
def lowered(byte, lower):
    return byte + np.uint8(32) if lower and 65 <= byte <= 90 else byte


@compiled
def encode_numbers(values, validity, offset, keys, table, shift, codes):
    """Look up the slice of values that a value lies in, then search the few constants there."""
    count, nulls, width = _U64(len(keys)), len(validity) > 0, _U64(shift)
    lowest, highest = (keys[0], keys[count - _ONE]) if count else (0, 0)
    for at in range(_U64(len(codes))):
        bit = at + _U64(offset)
        if nulls and not (validity[bit >> _EIGHT_BITS] >> (bit & _SEVEN)) & 1:
            codes[at] = 0
            continue
        value = values[at]
        if count == _ZERO or value < lowest:
            codes[at] = 2
            continue
        if value > highest:
            codes[at] = _TWO + _TWO * count
            continue
        part = (_U64(value) - _U64(lowest)) >> width
        first, last = _U64(table[part]), _U64(table[part + _ONE])
        while first < last:
            middle = (first + last) >> _ONE
            if keys[middle] < value:
                first = middle + _ONE
            else:
                last = middle
        codes[at] = _TWO + _TWO * first + _U64(keys[first] == value)


@compiled
def encode_decimals(halves, validity, offset, highs, lows, table, shift, codes):
    """The same over 128-bit integers, each a low and a signed high half."""
    count, nulls = _U64(len(highs)), len(validity) > 0
    for at in range(_U64(len(codes))):
        bit = at + _U64(offset)
        if nulls and not (validity[bit >> _EIGHT_BITS] >> (bit & _SEVEN)) & 1:
            codes[at] = 0
            continue
        low, high = _U64(halves[_TWO * at]), halves[_TWO * at + _ONE]
        if count == _ZERO or high < highs[0] or (high == highs[0] and low < lows[0]):
            codes[at] = 2
            continue
        end = count - _ONE
        if high > highs[end] or (high == highs[end] and low > lows[end]):
            codes[at] = _TWO + _TWO * count
            continue
        distance = _U64(high) - _U64(highs[0]) - _U64(low < lows[0])
        if shift >= 64:
            part = distance >> _U64(shift - 64)
        else:
            part = (low - lows[0]) >> _U64(shift)
            if shift > 0:
                part |= distance << _U64(64 - shift)
        first, last = _U64(table[part]), _U64(table[part + _ONE])
        while first < last:
            middle = (first + last) >> _ONE
            if highs[middle] < high or (highs[middle] == high and lows[middle] < low):
                first = middle + _ONE
            else:
                last = middle
        codes[at] = _TWO + _TWO * first + _U64(highs[first] == high and lows[first] == low)


@compiled
def encode_texts(positions, data, validity, offset, lower, ordered, offsets, constants, table, entries, codes, foreign):
    """Fold ASCII on the way, hash and compare; only ordered properties need the gap of an unknown text. Returns how
    many rows hold more than ASCII where case is folded: `foreign` lists them, for Python to fold."""
    foreigners, nulls, mask = 0, len(validity) > 0, _U64(len(table) - 2)
    for at in range(_U64(len(codes))):
        bit = at + _U64(offset)
        codes[at] = 0
        if nulls and not (validity[bit >> _EIGHT_BITS] >> (bit & _SEVEN)) & 1:
            continue
        begin, end = _U64(positions[at]), _U64(positions[at + _ONE])
        while end > begin and data[end - _ONE] == 32:
            end -= _ONE
        hashed, mixed = _SEED, np.uint8(0)
        for place in range(begin, end):
            mixed |= data[place]
            hashed = (hashed ^ _U64(lowered(data[place], lower))) * _FACTOR
        if lower and mixed >= 128:
            foreign[foreigners] = at
            foreigners += 1
            continue
        bucket = (hashed ^ (hashed >> _U64(32))) & mask
        length, code = end - begin, _TWO
        for entry in range(_U64(table[bucket]), _U64(table[bucket + _ONE])):
            number = _U64(entries[entry])
            start = _U64(offsets[number])
            if _U64(offsets[number + _ONE]) - start != length:
                continue
            place = _ZERO
            while place < length and lowered(data[begin + place], lower) == constants[start + place]:
                place += _ONE
            if place == length:
                code = _THREE + _TWO * number
                break
        if ordered and code == _TWO:
            first, last = _ZERO, _U64(len(offsets) - 1)
            while first < last:
                middle = (first + last) >> _ONE
                start, stop = _U64(offsets[middle]), _U64(offsets[middle + _ONE])
                shorter = min(length, stop - start)
                place = _ZERO
                while place < shorter and lowered(data[begin + place], lower) == constants[start + place]:
                    place += _ONE
                if place < shorter:
                    above = lowered(data[begin + place], lower) > constants[start + place]
                else:
                    above = length > stop - start
                if above:
                    first = middle + _ONE
                else:
                    last = middle
            code = _TWO + _TWO * first
        codes[at] = code
    return foreigners


@compiled
def encode_message(given, text, lower, facts, starts, keys, high, low, offsets, data, table, entries, no_nulls, codes):
    """One message given by property: a row of states (0 absent, 1 NaN, 2 there, 3 text already folded), and two rows
    with the number, the halves of the decimal, or where the text begins and ends in `text`."""
    position, foreign = np.empty(2, np.int32), np.empty(1, np.int64)
    halves = np.empty(2, np.int64)
    for number in range(len(facts)):
        state, code = given[0, number], codes[number]
        if state < 2:
            code[0] = state
            continue
        kind, shift = facts[number, 0], facts[number, 2]
        slices = table[starts[5, number] : starts[5, number + 1]]
        if kind == 0:
            position[0], position[1] = given[1, number], given[2, number]
            encode_texts(
                position, text, no_nulls, 0, lower and state == 2, facts[number, 3] == 1,
                offsets[starts[3, number] : starts[3, number + 1]], data[starts[4, number] : starts[4, number + 1]],
                slices, entries[starts[6, number] : starts[6, number + 1]], code, foreign,
            )  # fmt: skip
        elif kind == 2:
            halves[0], halves[1] = given[2, number], given[1, number]
            highs, lows = (
                high[starts[1, number] : starts[1, number + 1]],
                low[starts[2, number] : starts[2, number + 1]],
            )
            encode_decimals(halves, no_nulls, 0, highs, lows, slices, shift, code)
        else:
            mine = keys[starts[0, number] : starts[0, number + 1]]
            encode_numbers(given[1, number : number + 1], no_nulls, 0, mine, slices, shift, code)


@compiled
def fill_buckets(codes, columns, column_start, range_bucket, buckets):
    """Codes by property and message into buckets by column and message."""
    for number in range(len(columns)):
        mine, filled = codes[columns[number] >> 1], buckets[number]
        if columns[number] & 1:
            start = _U64(column_start[number])
            for at in range(_U64(len(mine))):
                filled[at] = range_bucket[start + _U64(mine[at])]
        else:
            for at in range(_U64(len(mine))):
                filled[at] = (mine[at] - np.uint32(1)) >> np.uint32(1) if mine[at] & np.uint32(1) else np.uint32(0)


@compiled
def match_messages(
    schemas, cell_row, row_word, words, first_clause, clause_word, set_start, set_codes, masks,
    by_property, codes, buckets, raw, bit_count, resume, messages, subscriptions,
):  # fmt: skip
    """Schema by schema, so that one directory and its rows stay in the cache. Stops when the next cell might not fit
    the output any more and notes in `resume` where to go on; returns the number of pairs."""
    found, capacity = _ZERO, _U64(len(messages))
    properties, many, start_message = _U64(by_property.shape[0]), _U64(by_property.shape[1]), _U64(resume[1])
    for schema in range(resume[0], len(schemas)):
        a, b, ordered_by, direction = schemas[schema, 0], schemas[schema, 1], schemas[schema, 2], schemas[schema, 3]
        first_cell, per_a = _U64(schemas[schema, 4]), _U64(schemas[schema, 5])
        bucket_a, bucket_b, bound = buckets[max(a, 0)], buckets[max(b, 0)], by_property[max(ordered_by, 0)]
        for message in range(start_message, many):
            cell = first_cell
            if a >= 0:
                if bucket_a[message] == 0:
                    continue
                cell += _U64(bucket_a[message]) * per_a
            if b >= 0:
                cell += _U64(bucket_b[message])
            row, end = _U64(cell_row[cell]), _U64(cell_row[cell + _ONE])
            if row == end:
                continue
            limit = _U64(bound[message])
            if direction != 0 and limit < _TWO:
                continue
            if found + (end - row) > capacity:
                resume[0], resume[1] = schema, message
                return found
            base = message * properties
            after = _U64(row_word[row])
            while row < end:
                row += _ONE
                at = after
                header = words[at]
                at += _ONE
                after = at + (header & _LENGTH_MASK)
                stop = after
                if direction != 0:
                    # The first word is the ordering one: beyond its bound no later row of the cell can hold.
                    low, width = (words[at] >> _LOW_SHIFT) & _CODE_MASK, words[at] & _CODE_MASK
                    if limit - low > width:
                        if (direction == 1) == (limit < low):
                            break
                        continue
                    at += _ONE
                special, subscription = header & _SPECIAL_MASK, header >> _SUBSCRIPTION_SHIFT
                wanted, earlier = True, _ZERO
                # First the words of the row; then, for a special one, its clause kept by reference, which must hold,
                # and the earlier clauses of the subscription, which must not: so each pair is given once.
                while True:
                    holds = True
                    while at < stop:
                        word = words[at]
                        at += _ONE
                        code = _U64(codes[base + ((word >> _PROPERTY_SHIFT) & _PROPERTY_MASK)])
                        low, width = (word >> _LOW_SHIFT) & _CODE_MASK, word & _CODE_MASK
                        kind = word >> _KIND_SHIFT
                        if kind == _ZERO:
                            holds = code - low <= width
                        elif kind == _ONE:
                            holds = code >= _TWO and code - low > width
                        elif kind == _TWO:
                            common = raw[message * _U64(bit_count) + (width >> _ONE)] & masks[low]
                            holds = code != _ZERO and (common != 0) != (width & _ONE == _ONE)
                        else:
                            first, last = _U64(set_start[low]), _U64(set_start[low + _ONE]) - _ONE
                            while first < last:
                                middle = (first + last) >> _ONE
                                if _U64(set_codes[middle]) < code:
                                    first = middle + _ONE
                                else:
                                    last = middle
                            holds = code >= _TWO and (_U64(set_codes[first]) == code) != (width & _ONE == _ONE)
                        if not holds:
                            break
                    if holds != wanted or special == _ZERO:
                        break
                    if special & _BY_REFERENCE:
                        clause = _U64(first_clause[subscription]) + ((special >> _ORDINAL_SHIFT) & _ORDINAL_MASK)
                        special &= ~_BY_REFERENCE
                    elif earlier < (special >> _ORDINAL_SHIFT) & _ORDINAL_MASK:
                        clause = _U64(first_clause[subscription]) + earlier
                        earlier += _ONE
                        wanted = False
                    else:
                        break
                    at, stop = _U64(clause_word[clause]), _U64(clause_word[clause + _ONE])
                if holds == wanted:
                    messages[found] = message
                    subscriptions[found] = subscription
                    found += _ONE
        start_message = _ZERO
    resume[0], resume[1] = len(schemas), 0
    return found
