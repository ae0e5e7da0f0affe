// How dense layers multiply (tensor/gemm.h): in bf16 by a product that rounds its operands itself
// (tensor/gemm_bf16.h), where the processor has one.
#pragma once

#include "starling/precision.h"
#include "tensor/gemm.h"

namespace starling {

GemmWay dense_product(Precision precision);

// Whether its operands have to be rounded to bf16 before.
bool wants_rounded_operands(Precision precision);

}  // namespace starling
