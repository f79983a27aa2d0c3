/* A stand-in for libcublasLt: the same calls, a plain fp32 product on the CPU by columns, as cuBLASLt defines it.
   Sizes of attributes are checked as the real library checks them. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int compute, scale, transpose[2]; } Desc;
typedef struct { int type; uint64_t rows, cols; int64_t ld; int32_t batch; int64_t stride; } Layout;
typedef struct { uint64_t workspace; uint32_t alignment[4]; } Preference;
typedef struct { uint64_t words[8]; size_t workspace; int state; float waves; int reserved[4]; } Result;

int runs[8], last_compute, last_alignment[4];
enum { INVALID = 7, NOT_SUPPORTED = 15 };

int cublasLtCreate(void **handle) { *handle = (void *)0x123456789abcull; return 0; }
int cublasLtMatmulDescCreate(Desc **desc, int compute, int scale) {
  *desc = calloc(1, sizeof(Desc));
  (*desc)->compute = compute;
  (*desc)->scale = scale;
  return 0;
}
int cublasLtMatmulDescSetAttribute(Desc *desc, int attribute, const void *value, size_t size) {
  if (size != 4 || attribute < 3 || attribute > 4) return INVALID;
  memcpy(&desc->transpose[attribute - 3], value, 4);
  return 0;
}
int cublasLtMatrixLayoutCreate(Layout **layout, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  if (ld < (int64_t)rows) return INVALID;
  Layout made = {type, rows, cols, ld, 1, 0};
  *layout = malloc(sizeof made);
  **layout = made;
  return 0;
}
int cublasLtMatrixLayoutSetAttribute(Layout *layout, int attribute, const void *value, size_t size) {
  if (attribute == 5 && size == 4) memcpy(&layout->batch, value, 4);
  else if (attribute == 6 && size == 8) memcpy(&layout->stride, value, 8);
  else return INVALID;
  return 0;
}
int cublasLtMatmulPreferenceCreate(Preference **preference) { *preference = calloc(1, sizeof(Preference)); return 0; }
int cublasLtMatmulPreferenceSetAttribute(Preference *preference, int attribute, const void *value, size_t size) {
  if (attribute == 1 && size == 8) memcpy(&preference->workspace, value, 8);
  else if (attribute >= 5 && attribute <= 8 && size == 4) memcpy(&preference->alignment[attribute - 5], value, 4);
  else return INVALID;
  return 0;
}
int cublasLtMatmulAlgoGetHeuristic(void *handle, Desc *desc, Layout *a, Layout *b, Layout *c, Layout *d,
                                   Preference *preference, int wanted, Result *results, int *found) {
  if (handle != (void *)0x123456789abcull || preference->workspace < 1 << 20) return INVALID;
  last_compute = desc->compute;
  for (int i = 0; i < 4; i++) last_alignment[i] = preference->alignment[i];
  /* Four proposals: the second cannot be used, and the third will refuse when it is run. */
  *found = wanted < 4 ? wanted : 4;
  for (int i = 0; i < *found; i++) {
    memset(&results[i], 0, sizeof(Result));
    results[i].words[0] = 40 + i;
    results[i].words[7] = 0xfeed0000ull + i;
    results[i].workspace = 100 * i;
    results[i].state = i == 1 ? NOT_SUPPORTED : 0;
  }
  return 0;
}
static float at(const float *x, const Layout *l, int transposed, uint64_t row, uint64_t col) {
  return transposed ? x[col + row * l->ld] : x[row + col * l->ld];
}
int cublasLtMatmul(void *handle, Desc *desc, const float *alpha, const float *A, Layout *a, const float *B, Layout *b,
                   const float *beta, const float *C, Layout *c, float *D, Layout *d, const uint64_t *algorithm,
                   void *workspace, size_t workspace_bytes, void *stream) {
  int id = (int)algorithm[0] - 40;
  if (id < 0 || id > 3 || algorithm[7] != 0xfeed0000ull + id || !workspace || workspace_bytes < 1 << 20) return INVALID;
  if (id == 2) return NOT_SUPPORTED;
  int ta = desc->transpose[0], tb = desc->transpose[1];
  uint64_t m = ta ? a->cols : a->rows, k = ta ? a->rows : a->cols, n = tb ? b->rows : b->cols;
  if ((tb ? b->cols : b->rows) != k || d->rows != m || d->cols != n || a->batch != d->batch) return INVALID;
  for (int z = 0; z < d->batch; z++)
    for (uint64_t i = 0; i < m; i++)
      for (uint64_t j = 0; j < n; j++) {
        float sum = 0;
        for (uint64_t l = 0; l < k; l++)
          sum += at(A + z * a->stride, a, ta, i, l) * at(B + z * b->stride, b, tb, l, j);
        float old = *beta == 0 ? 0 : *beta * C[z * c->stride + i + j * c->ld];
        D[z * d->stride + i + j * d->ld] = *alpha * sum + old;
      }
  runs[id]++;
  return 0;
}
