// Programs for tests of generators: cases that models and random programs may miss.
#pragma once

namespace millrace {

// Two partitions that differ only in a number.
inline constexpr const char* kTwoFactors = R"(
N = 24
def f(x: float32[N], y: float32[N]):
    return np.exp(x) * 2.0, np.exp(y) * 3.0
)";

// Two dropouts that differ only in their subsequence.
inline constexpr const char* kTwoDropouts = R"(
B = 4
J = 24


def dropped(x: float16[B, J], y: float16[B, J]):
    return dropout(x, p=0.5), dropout(y, p=0.5)
)";

// Extents: one, less than a vector, a vector, and more with a remainder.
inline constexpr const char* kCorners = R"(
A = 19
B = 16
C = 35
D = 1
E = 5


def corners(x: float32[A, C], y: float32[A, C], row: float32[C], column: float32[A], one: float32[D, E, D],
            square: float32[A, A], wide: float32[B, A, A], scale: float32, shift: float32[E]):
    masked = softmax(causal_mask(square))
    chosen = np.where(x < y, x * scale, np.maximum(y, row[None, :]))
    highest = np.max(chosen, axis=1)
    lowest = np.min(chosen, axis=0, keepdims=True)
    spread = chosen - lowest + np.minimum(column, 0.25)[:, None]
    diagonal = np.einsum("ii->i", square) + np.einsum("bii->i", wide)
    dropped = dropout(gelu(spread), p=0.3)
    widened = dropout(wide + masked[None, :, :], p=0.5)
    ones = dropout(softmax(one) + shift[None, :, None], p=0.4)
    means = np.mean(widened, axis=(0, 2)) * highest + diagonal
    powers = np.abs(spread) ** 1.5 + np.square(chosen) + silu(x) * np.tanh(y) + relu(x) ** 3
    return dropped, widened, ones, means, np.sum(powers, axis=0), np.max(wide, axis=(0, 1)), rmsnorm(y, row)
)";

// Booleans that forward saves for backward: of relu, maximum and the program's own comparisons; read along other axes
// than computed, once for each row, and with a last axis of whole bytes, of a remainder, and of one element.
inline constexpr const char* kPredicates = R"(
A = 24
B = 40
C = 7
D = 1


def predicates(x: float32[A, B], y: float32[B, A], z: float32[A, C], u: float32[C, A, B], one: float32[C, D],
               w: float32[B, B], v: float32[C, B], row: float32[B]):
    hidden = dropout(relu(np.einsum("ab,bc->ac", x, w) + row), p=0.3)
    kept = np.where(x < np.einsum("ba->ab", y), np.tanh(x), hidden)
    rows = softmax(relu(kept))
    columns = softmax(np.maximum(kept, 0.25), axis=0)
    short = softmax(np.abs(z))
    even = softmax(np.abs(v))
    broad = np.where(u <= kept[None, :, :], np.exp(u), kept[None, :, :])
    thin = np.where(one < 0.5, np.tanh(one), 2 * one)
    return np.einsum("ab,bc->ac", hidden, w), rows, columns, short, even, broad, thin
)";

// The functions that transformers do not need, over whole and partial vectors, in rows, and with positions of a row, of
// a column and of one element.
inline constexpr const char* kFunctions = R"(
A = 19
B = 35
C = 6
D = 1


def functions(x: float32[A, B], y: float32[A, B], z: float32[C, A, B], row: float32[B], one: float32[C, D]):
    waves = np.sin(7 * x) * np.cos(np.arange(B) * y) + np.sign(x - 0.375) * np.arange(A)[:, None]
    smooth = sigmoid(x) + softplus(4 * y) + erf(2 * x) + np.log1p(np.abs(y)) * np.expm1(x)
    inside = np.logical_and(np.logical_not(np.greater(x, 0.625)), np.logical_or(y < 0.25, x <= row))
    chosen = np.where(inside, smooth, np.clip(waves, -0.5, 0.5))
    likely = log_softmax(chosen, axis=0) + logsumexp(y, axis=1, keepdims=True)
    joint = softmax(z, axis=(0, 2)) * np.std(z, axis=(1, 2), keepdims=True)
    images = batchnorm(z, row, axis=2) + layernorm(z, axis=(0, 1)) + rmsnorm(z, axis=(1, 2))
    thin = np.eye(C, D) + np.tril(one) + np.triu(one, k=-2) * np.linalg.norm(one + 2) + np.full((C, D), 0.75)
    return likely, joint, images, thin, np.matmul(chosen, row), np.tensordot(z, chosen)
)";

// Positions from integers: rows and columns of tables, one element of each row, tables and ids of several axes, ids
// that the program makes; booleans and integers that are compared; and the sums of gradients, over whole and partial
// vectors.
inline constexpr const char* kGathers = R"(
A = 19
B = 35
C = 6
D = 1


def gathers(table: float32[A, B], wide: float32[C, A, B], ids: int32[C, A], columns: int64[C], labels: int32[A],
            along: int64[C, A, D], kinds: int32[C, D], flags: bool_[B], one: float32[D, B]):
    rows = np.tanh(table[ids]) * wide
    taken = np.take(wide, columns, axis=2) + table[:, columns[:4]].sum()
    chosen = np.take_along_axis(wide, along, axis=-1) * np.take_along_axis(wide, kinds[:, None], axis=1)
    own = table[np.arange(A)[::-1]] + np.take(one, kinds[:, 0], axis=0).sum()
    masked = np.where(flags & (ids[..., None] == 3), rows, np.where(kinds[:, :, None] < 2, 0.5, wide))
    softened = softmax(masked * wide)
    loss = cross_entropy(table, labels) + cross_entropy(wide[:, 0, :A], np.arange(C))
    return taken, chosen, own, softened, loss
)";

// Slices, joins, windows and split axes: vectors that run along a joined index, with borders of parts inside a vector,
// parts of extent one, and inputs that do not run along it.
inline constexpr const char* kParts = R"(
A = 4
B = 6
C = 19
D = 2


def parts(x: float32[A, B], y: float32[A, B], z: float32[A, C], v: float32[A], w: float32[A, 4 * D]):
    stacked = np.stack([np.tanh(x), y, x * y], axis=1)
    pairs = np.stack([np.tanh(v), v * v], axis=-1)
    turned = np.concatenate([-z[:, C // 2:], z[:, :C // 2]], axis=-1) * z
    padded = np.pad(z[:, 1::2] + z[:, :-1:2], ((1, 0), (2, 3))) * 0.5
    blocks = np.concatenate([x, v[:, None], y[:, ::-1], np.broadcast_to(v[:, None], (A, 3))], axis=1)
    kept = np.concatenate([v[:, None], np.where(x < 0.25, np.tanh(y), v[:, None])], axis=1)
    folded = np.roll(w, 3, axis=1).reshape(A, D, 4) + np.flip(w.reshape(A, D, 4), axis=2)
    windows = np.lib.stride_tricks.sliding_window_view(z, 3, axis=1).sum(axis=-1)
    return softmax(stacked), pairs, turned, padded, softmax(blocks), kept, folded, np.tanh(windows)
)";

// Contractions of every kind, for libraries and for generated loops.
inline constexpr const char* kContractions = R"(
A = 5
B = 3
C = 7
D = 1


def contractions(x: float32[A, B], y: float32[B, C], t: float32[A, B, C], u: float32[A, B, C], v: float32[A],
                 w: float32[C], s: float32[A, A], one: float32[D, B], scale: float32):
    outer = np.einsum("a,c->ac", v, w)
    matrix = scale * np.einsum("ab,bc->ac", x, y)
    batched = np.einsum("abc,abc->ab", t, u)
    swapped = np.einsum("abc,bc->ca", t, y)
    diagonal = np.einsum("aa,ab->ab", s, x)
    one_sided = np.einsum("abc,ab->c", t, x)
    unreduced = np.einsum("abc,ab->bca", t, x)
    dot = np.einsum("abc,abc->", t, u)
    thin = np.einsum("db,bc->dc", one, y)
    own = np.einsum("ab,db->da", x, one)
    summed = np.einsum("abc,c->a", t, w) + np.einsum("abc,c->a", u, w)
    square = np.einsum("ab,cb->ac", s, s)
    return outer, matrix, batched, swapped, diagonal, one_sided, unreduced, dot, thin, own, summed, square
)";

}  // namespace millrace
