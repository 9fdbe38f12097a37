/* The least that TVM-FFI loads as a function: takes anything and gives back the integer 42. */
#include <stdint.h>

typedef struct {
    int32_t type_index;
    uint32_t padding;
    int64_t value;
} Any;

int __tvm_ffi_answer(void *self, const Any *arguments, int32_t count, Any *result) {
    result->type_index = 1; /* kTVMFFIInt */
    result->padding = 0;
    result->value = 42;
    return 0;
}
