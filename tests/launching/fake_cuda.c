/* A stand-in for libcuda, built against the real cuda.h: it records what it is called with, and launches nothing.
   So the layout of every structure that crosses the boundary is checked by a C compiler, without a GPU. */
#include "cuda.h"
#include <string.h>

#define MAX_PARAMETERS 64
static struct {
  unsigned parameter_count, parameter_sizes[MAX_PARAMETERS];
} kernel;
unsigned char recorded_parameters[8192];
unsigned recorded_config[9];
unsigned long long recorded_stream, recorded_function, recorded_context;
unsigned long long recorded_map[16];
int recorded_shared_limit, recorded_loads, recorded_launches, recorded_retains;
int recorded_attribute, recorded_attribute_value;
int driver_version = 12080, context_missing, shared_limit = 232448, capture_mode;

void expect_parameters(unsigned count, const unsigned *sizes) {
  kernel.parameter_count = count;
  memcpy(kernel.parameter_sizes, sizes, count * sizeof(unsigned));
}

CUresult cuInit(unsigned flags) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *version) { *version = driver_version; return 0; }
CUresult cuGetErrorName(CUresult e, const char **s) { *s = e == 1 ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_X"; return 0; }
CUresult cuGetErrorString(CUresult e, const char **s) { *s = "in words"; return 0; }
CUresult cuDeviceGet(CUdevice *d, int i) { *d = 100 + i; return 0; }
CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d) {
  if (a != CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) return CUDA_ERROR_INVALID_VALUE;
  *v = shared_limit;
  return 0;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) { recorded_retains++; *c = (CUcontext)(size_t)(d * 16); return 0; }
CUresult cuCtxSetCurrent(CUcontext c) { recorded_context = (size_t)c; context_missing = 0; return 0; }
CUresult cuModuleLoadData(CUmodule *m, const void *image) {
  if (memcmp(image, "\177ELF", 4)) return CUDA_ERROR_INVALID_IMAGE;
  recorded_loads++;
  *m = (CUmodule)0x1111222233334444ull;
  return 0;
}
CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) {
  if (m != (CUmodule)0x1111222233334444ull || !name[0]) return CUDA_ERROR_NOT_FOUND;
  *f = (CUfunction)0x5555666677778888ull;
  return 0;
}
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v) {
  if (f != (CUfunction)0x5555666677778888ull || a != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return 1;
  recorded_shared_limit = v;
  return 0;
}
CUresult cuFuncSetCacheConfig(CUfunction f, CUfunc_cache c) {
  return f == (CUfunction)0x5555666677778888ull && c == CU_FUNC_CACHE_PREFER_SHARED ? 0 : 1;
}
CUresult cuFuncGetAttribute(int *v, CUfunction_attribute a, CUfunction f) {
  if (f != (CUfunction)0x5555666677778888ull || a != CU_FUNC_ATTRIBUTE_NUM_REGS) return 1;
  *v = 168;
  return 0;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction f, int threads, size_t shared_bytes) {
  if (f != (CUfunction)0x5555666677778888ull) return 1;
  *blocks = shared_bytes + 1024 > 233472 ? 0 : 2048 / threads;
  return 0;
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  CUstreamCaptureMode before = capture_mode;
  capture_mode = *mode;
  *mode = before;
  return 0;
}
CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                const cuuint64_t *shape, const cuuint64_t *strides, const cuuint32_t *box,
                                const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  if ((size_t)map % 64 || (size_t)address % 16 || rank != 2 || steps[0] != 1 || steps[1] != 1) return 1;
  if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) return 1;
  if (promotion != CU_TENSOR_MAP_L2_PROMOTION_L2_128B || strides[0] % 16) return 1;
  unsigned long long words[16] = {type, (size_t)address, shape[0], shape[1], strides[0], box[0], box[1], swizzle, 99};
  memcpy(map->opaque, words, sizeof words);
  memcpy(recorded_map, words, sizeof words);
  return 0;
}
CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **parameters, void **extra) {
  if (context_missing) return CUDA_ERROR_INVALID_CONTEXT;
  if (extra || c->gridDimX == 0) return CUDA_ERROR_INVALID_VALUE;
  unsigned config[9] = {c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ,
                        c->sharedMemBytes, c->numAttrs, c->attrs != 0};
  memcpy(recorded_config, config, sizeof config);
  recorded_attribute = c->numAttrs ? c->attrs[0].id : 0;
  recorded_attribute_value = c->numAttrs ? c->attrs[0].value.programmaticStreamSerializationAllowed : 0;
  recorded_stream = (size_t)c->hStream;
  recorded_function = (size_t)f;
  unsigned end = 0;
  for (unsigned i = 0; i < kernel.parameter_count; i++) {
    memcpy(recorded_parameters + end, parameters[i], kernel.parameter_sizes[i]);
    end += kernel.parameter_sizes[i];
  }
  recorded_launches++;
  return CUDA_SUCCESS;
}
