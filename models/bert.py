"""BERT's pre-training: from token ids through two layers and both heads to the loss, a number.

P: projection size; H: heads; I: embedding; B: batch; J: sequence length; U: width of the
feed-forward network; N: layers; V: vocabulary; T: segments; M: positions that the model knows. The
defaults are BERT base's, but for the number of layers. Weights of all layers are stacked.

The masked language model predicts a token at every position, with the table of the word embedding
as its last matrix; labels has the tokens. The pooled first position predicts whether the second
segment follows the first; follows has the answers (0: it does).
"""

import numpy as np
from millrace.numpy import cross_entropy, dropout, float16, gelu, int32, layernorm, softmax

P = 64
H = 12
I = P * H
B = 8
J = 128
U = 4 * I
N = 2
V = 30522
T = 2
M = 512

SIZES = {
    "tiny": {"P": 4, "H": 2, "B": 2, "J": 6, "V": 12, "M": 8},
    "odd": {"P": 3, "H": 1, "B": 3, "J": 7, "U": 5, "N": 1, "V": 13, "M": 7},
    "base": {"B": 4},
    "large": {"H": 16, "J": 512},
}


def attention(x, wq, bq, wk, bk, wv, bv):
    qq = (x @ wq + bq).reshape(B, J, H, P)
    kk = (x @ wk + bk).reshape(B, J, H, P)
    vv = (x @ wv + bv).reshape(B, J, H, P)
    beta = np.einsum("bjhp,bkhp->bhjk", qq, kk) / np.sqrt(P)
    alpha = dropout(softmax(beta))
    return np.einsum("bhjk,bkhp->bjhp", alpha, vv).reshape(B, J, I)


def bert(
    ids: int32[B, J], segments: int32[B, J], labels: int32[B, J], follows: int32[B],
    words: float16[V, I], positions: float16[M, I], kinds: float16[T, I],
    ln0_weight: float16[I], ln0_bias: float16[I],
    wq: float16[N, I, I], bq: float16[N, I],
    wk: float16[N, I, I], bk: float16[N, I],
    wv: float16[N, I, I], bv: float16[N, I],
    wo: float16[N, I, I], bo: float16[N, I],
    ln1_weight: float16[N, I], ln1_bias: float16[N, I],
    w1: float16[N, I, U], b1: float16[N, U],
    w2: float16[N, U, I], b2: float16[N, I],
    ln2_weight: float16[N, I], ln2_bias: float16[N, I],
    pooler_weight: float16[I, I], pooler_bias: float16[I],
    head_weight: float16[I, I], head_bias: float16[I],
    ln3_weight: float16[I], ln3_bias: float16[I],
    vocabulary_bias: float16[V],
    follows_weight: float16[I, 2], follows_bias: float16[2],
):
    embedded = words[ids] + kinds[segments] + positions[:J]
    x = dropout(layernorm(embedded, ln0_weight, ln0_bias, eps=1e-12))

    for n in range(N):
        gamma = attention(x, wq[n], bq[n], wk[n], bk[n], wv[n], bv[n])
        attn_residual = x + dropout(gamma @ wo[n] + bo[n])
        attn_norm = layernorm(attn_residual, ln1_weight[n], ln1_bias[n], eps=1e-12)
        hidden = gelu(attn_norm @ w1[n] + b1[n])
        out_residual = attn_norm + dropout(hidden @ w2[n] + b2[n])
        x = layernorm(out_residual, ln2_weight[n], ln2_bias[n], eps=1e-12)

    transformed = gelu(x @ head_weight + head_bias)
    predicted = layernorm(transformed, ln3_weight, ln3_bias, eps=1e-12)
    word_scores = predicted @ words.T + vocabulary_bias
    pooled = np.tanh(x[:, 0] @ pooler_weight + pooler_bias)
    follows_scores = pooled @ follows_weight + follows_bias
    loss = cross_entropy(word_scores, labels) + cross_entropy(follows_scores, follows)
    return loss
