// All of Starling's public interface.
#pragma once

#include "starling/callback.h"
#include "starling/data.h"
#include "starling/error.h"
#include "starling/history.h"
#include "starling/layer.h"
#include "starling/loss.h"
#include "starling/model.h"
#include "starling/operator.h"
#include "starling/optimizer.h"
#include "starling/precision.h"
#include "starling/shape.h"
#include "starling/trainer.h"
