// A stand-in for NVIDIA's libnvidia-ml.so.1. It reads its GPUs and slices from environment variables.
// NVML_GPUS: `whole` or the number of slices, for each GPU. NVML_USED: the bytes in use on each device.
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned long long total, free, used; } memory;

static char *word(unsigned number) {
    static char text[256];
    const char *said = getenv("NVML_GPUS");
    if (said == NULL) return NULL;
    strncpy(text, said, sizeof text - 1);
    char *found = strtok(text, " ");
    while (found != NULL && number-- > 0) found = strtok(NULL, " ");
    return found;
}

int nvmlInit_v2(void) { return getenv("NVML_GPUS") == NULL ? 9 : 0; }  // 9: the driver is not loaded

int nvmlDeviceGetCount_v2(unsigned *count) {
    for (*count = 0; word(*count) != NULL; ++*count) {}
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned number, void **device) {
    *device = (void *)(size_t)(0x100000000ULL + 100 * (number + 1));  // more than 32 bits, as pointers are
    return 0;
}

static unsigned gpu_of(void *device) { return (unsigned)((size_t)device - 0x100000000ULL) / 100 - 1; }

int nvmlDeviceGetMigMode(void *device, unsigned *mode, unsigned *pending) {
    char *said = word(gpu_of(device));
    if (strcmp(said, "old") == 0) return 3;  // not supported
    *mode = *pending = strcmp(said, "whole") != 0;
    return 0;
}

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count) {
    *count = 7;
    return 0;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned number, void **slice) {
    if ((int)number % 2 == 0 || (int)number / 2 >= atoi(word(gpu_of(device)))) return 6;  // no such slice
    *slice = (char *)device + 1 + number;
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, memory *found) {
    found->used = strtoull(getenv("NVML_USED"), NULL, 10);
    found->total = 40ULL << 30;
    found->free = found->total - found->used;
    return 0;
}
