#!/usr/bin/python3
"""Writes tests/golden/*.json: numbers of PyTorch that our operators, losses, metrics and
optimizers must reproduce. Run it again only to add cases; needs python3-torch and numpy.

Every number is computed in float64 from inputs that float32 holds exactly (multiples of 1/256),
so the results are right to the last digit of float32. Layout: PyTorch's images are
channels-first, ours channels-last; the conversion happens here, and the files hold our layout.
"""
import json
import os

import numpy as np
import torch
import torch.nn.functional as F

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden")
random = np.random.default_rng(20231)


def draw(*shape):
    """Normal numbers rounded to multiples of 1/256."""
    return torch.tensor(np.round(random.standard_normal(shape) * 256) / 256, dtype=torch.float64)


def flat(tensor):
    return [float("%.9g" % value) for value in tensor.detach().reshape(-1).tolist()]


def image_in(x):
    return x.permute(0, 3, 1, 2)


def image_out(y):
    return y.permute(0, 2, 3, 1)


operator_cases = []


def operator_case(name, operator, rows, input_shapes, function, parameter_shapes=(), inputs=None,
                  **more):
    """Runs function(inputs, parameters) forward and backward, and records all of it."""
    xs = inputs if inputs is not None else [draw(rows, *shape) for shape in input_shapes]
    ps = [draw(*shape) for shape in parameter_shapes]
    for tensor in xs + ps:
        tensor.requires_grad_(True)
    y = function(xs, ps)
    grad_output = draw(*y.shape)
    gradients = torch.autograd.grad(y, xs + ps, grad_output)
    operator_cases.append({
        "name": name,
        "operator": operator,
        "rows": rows,
        "training": True,
        "input_shapes": input_shapes,
        "inputs": [flat(x) for x in xs],
        "parameters": [flat(p) for p in ps],
        "output_shape": list(y.shape[1:]),
        "output": flat(y),
        "grad_output": flat(grad_output),
        "grad_inputs": [flat(g) for g in gradients[:len(xs)]],
        "grad_parameters": [flat(g) for g in gradients[len(xs):]],
        **more,
    })


def dense(name, rows, shape, units, bias=True):
    operator_case(name, {"kind": "dense", "units": units, "bias": bias}, rows, [shape],
                  lambda x, p: F.linear(x[0], *p),
                  [[units, shape[-1]]] + ([[units]] if bias else []))


def same_padding(size, kernel, stride):
    """[before, after]: the odd one after."""
    total = max(0, (-(-size // stride) - 1) * stride + kernel - size)
    return [total // 2, total - total // 2]


def sides(shape, kernel, stride, padding):
    """[top, bottom, left, right] of a padding that may be "same"."""
    if padding != "same":
        return padding
    return (same_padding(shape[0], kernel[0], stride[0]) +
            same_padding(shape[1], kernel[1], stride[1]))


def pad(x, padding, value):
    top, bottom, left, right = padding
    return F.pad(x, [left, right, top, bottom], value=value)


def conv2d(name, rows, shape, filters, kernel, stride=(1, 1), padding=(0, 0, 0, 0), groups=1,
           bias=True):
    padded = sides(shape, kernel, stride, padding)
    operator_case(
        name,
        {"kind": "conv2d", "filters": filters, "kernel": kernel, "stride": stride,
         "padding": padding, "groups": groups, "bias": bias},
        rows, [shape],
        lambda x, p: image_out(F.conv2d(pad(image_in(x[0]), padded, 0.0), *p, stride=stride,
                                        groups=groups)),
        [[filters, shape[2] // groups, *kernel]] + ([[filters]] if bias else []))


def pool2d(name, kind, rows, shape, kernel, stride, padding=(0, 0, 0, 0), inputs=None):
    top, bottom, left, right = sides(shape, kernel, stride, padding)

    def run(x, _):
        image = image_in(x[0])
        if kind == "max_pool2d":
            return image_out(F.max_pool2d(pad(image, (top, bottom, left, right), -np.inf), kernel,
                                          stride))
        if top == bottom and left == right:
            return image_out(F.avg_pool2d(image, kernel, stride, (top, left),
                                          count_include_pad=False))
        # PyTorch has no lopsided padding: the sum inside, divided by the places inside.
        total = F.avg_pool2d(pad(image, (top, bottom, left, right), 0.0), kernel, stride)
        inside = F.avg_pool2d(pad(torch.ones_like(image), (top, bottom, left, right), 0.0), kernel,
                              stride)
        return image_out(total / inside)

    operator_case(name, {"kind": kind, "kernel": kernel, "stride": stride, "padding": padding},
                  rows, [shape], run, inputs=inputs)


def global_pool(name, kind, rows, shape):
    def run(x, _):
        return x[0].mean((1, 2)) if kind == "global_average_pool2d" else x[0].amax((1, 2))
    operator_case(name, {"kind": kind}, rows, [shape], run)


def elementwise(name, operator, rows, shape, function, inputs=None):
    operator_case(name, operator, rows, [shape], lambda x, _: function(x[0]), inputs=inputs)


def batch_norm(name, rows, shape, momentum, epsilon):
    """Training: the batch's own statistics, and the running ones after the step."""
    channels = shape[-1]
    mean, variance = draw(channels), draw(channels) ** 2 + 0.5
    mean_after, variance_after = mean.clone(), variance.clone()

    def run(x, p):
        channels_second = x[0].movedim(-1, 1)
        y = F.batch_norm(channels_second, mean_after, variance_after, p[0], p[1], True, momentum,
                         epsilon)
        return y.movedim(1, -1)

    x = draw(rows, *shape) * 2 + draw(channels)
    values = x.reshape(-1, channels)
    operator = {"kind": "batch_norm", "momentum": momentum, "epsilon": epsilon}
    operator_case(name, operator, rows, [shape], run, [[channels], [channels]], inputs=[x],
                  batch_mean=flat(values.mean(0)),
                  batch_m2=flat(((values - values.mean(0)) ** 2).sum(0)),
                  running_mean=flat(mean), running_variance=flat(variance))
    operator_cases[-1]["running_mean_after"] = flat(mean_after)
    operator_cases[-1]["running_variance_after"] = flat(variance_after)

    # Inference with the same: no gradients, training never goes through it.
    case = operator_cases[-1]
    scale, shift = (torch.tensor(p, dtype=torch.float64) for p in case["parameters"])
    y = F.batch_norm(x.detach().movedim(-1, 1), mean, variance, scale, shift, False, momentum,
                     epsilon).movedim(1, -1)
    operator_cases.append({
        "name": name.replace("training", "inference"), "operator": operator, "rows": rows,
        "training": False, "input_shapes": [shape], "inputs": [flat(x)],
        "parameters": case["parameters"], "output_shape": shape, "output": flat(y),
        "grad_output": [], "grad_inputs": [], "grad_parameters": [],
        "running_mean": flat(mean), "running_variance": flat(variance),
    })


def mix64(value):
    """splitmix64's finaliser, as in src/base/random.cc."""
    value = (value + 0x9E3779B97F4A7C15) % 2**64
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
    return value ^ (value >> 31)


def philox(counter, key):
    """Philox4x32-10, written from its paper: what our masks are drawn with."""
    c, k = list(counter), [key % 2**32, key >> 32]
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ k[0], q % 2**32, (p >> 32) ^ c[3] ^ k[1], p % 2**32]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return c


def dropout(name, shape, rate, seed, epoch, samples):
    """PyTorch draws other masks, so it is given ours, of a model's first operator."""
    operator_id, purpose = 0, 2  # Draw::kDropout
    key = mix64(mix64(seed ^ (operator_id + 1) << 32) ^ mix64(purpose))
    size = int(np.prod(shape))
    kept = [[(philox([e // 4, epoch, sample % 2**32, sample >> 32], key)[e % 4] >> 8) / 2**24
             >= rate for e in range(size)] for sample in samples]
    mask = torch.tensor(kept, dtype=torch.float64).reshape(len(samples), *shape)
    operator_case(name, {"kind": "dropout", "rate": rate}, len(samples), [shape],
                  lambda x, _: x[0] * mask / (1 - rate),
                  draws={"seed": seed, "epoch": epoch, "samples": samples})


def write_operators():
    global random
    dense("dense", 3, [5], 4)
    dense("dense_no_bias", 3, [5], 4, bias=False)
    dense("dense_one_row_one_unit", 1, [7], 1)
    dense("dense_rank_3", 2, [3, 2, 4], 5)
    dense("dense_wider", 5, [33], 17)

    conv2d("conv2d", 2, [6, 5, 3], 4, [3, 3])
    conv2d("conv2d_1x1", 2, [3, 4, 5], 6, [1, 1])
    conv2d("conv2d_stride_2", 2, [7, 8, 2], 3, [3, 3], stride=[2, 2])
    conv2d("conv2d_lopsided_kernel", 2, [6, 6, 2], 3, [1, 4])
    conv2d("conv2d_padding", 1, [4, 5, 2], 3, [3, 3], padding=[1, 1, 2, 2])
    conv2d("conv2d_lopsided_padding", 1, [5, 4, 2], 3, [3, 2], padding=[0, 2, 1, 0])
    conv2d("conv2d_same", 2, [5, 5, 2], 3, [3, 3], padding="same")
    conv2d("conv2d_same_even_kernel", 1, [5, 6, 2], 2, [4, 2], padding="same")
    conv2d("conv2d_same_stride_2", 2, [5, 6, 2], 3, [3, 3], stride=[2, 2], padding="same")
    conv2d("conv2d_same_stride_beyond_kernel", 1, [7, 5, 2], 2, [1, 2], stride=[3, 3],
           padding="same")
    conv2d("conv2d_groups_2", 2, [5, 4, 4], 6, [3, 2], groups=2)
    conv2d("conv2d_depthwise", 2, [5, 5, 4], 4, [3, 3], padding="same", groups=4)
    conv2d("conv2d_depthwise_multiplied", 1, [4, 4, 3], 6, [3, 3], groups=3)
    conv2d("conv2d_no_bias", 2, [5, 5, 2], 3, [3, 3], bias=False)
    conv2d("conv2d_whole_image", 2, [3, 4, 2], 3, [3, 4])
    conv2d("conv2d_wider", 2, [6, 6, 16], 8, [3, 3], padding="same")

    for kind in "max_pool2d", "average_pool2d":
        pool2d(kind, kind, 2, [6, 4, 3], [2, 2], [2, 2])
        pool2d(kind + "_odd_sizes", kind, 2, [7, 5, 3], [2, 2], [2, 2])
        pool2d(kind + "_overlapping", kind, 2, [7, 6, 2], [3, 3], [2, 2])
        pool2d(kind + "_stride_beyond_kernel", kind, 1, [7, 8, 2], [2, 1], [3, 2])
        pool2d(kind + "_padding", kind, 2, [5, 6, 2], [3, 3], [2, 2], [1, 1, 1, 1])
        pool2d(kind + "_lopsided_padding", kind, 1, [5, 4, 3], [3, 2], [2, 1], [2, 1, 0, 1])
        pool2d(kind + "_same", kind, 2, [5, 5, 2], [2, 2], [2, 2], "same")
        pool2d(kind + "_same_stride_1", kind, 1, [4, 5, 3], [3, 3], [1, 1], "same")
    # Equal values and negative ones in the padding's reach: the first of equals wins, zero never.
    ties = torch.tensor(random.integers(-4, 0, (2, 5, 6, 2)), dtype=torch.float64)
    pool2d("max_pool2d_ties", "max_pool2d", 2, [5, 6, 2], [3, 3], [2, 2], [1, 1, 1, 1], [ties])
    global_pool("global_max_pool2d", "global_max_pool2d", 2, [3, 5, 4])
    global_pool("global_average_pool2d", "global_average_pool2d", 2, [5, 3, 4])

    shape = [3, 7]
    wide = torch.tensor([[-30.0, -8.0, -3.0, -1.0, -0.25, 0.0, 0.25, 1.0, 3.0, 8.0, 30.0]],
                        dtype=torch.float64)
    for kind, options, function in [
            ("relu", {}, F.relu),
            ("leaky_relu", {"slope": 0.01}, lambda x: F.leaky_relu(x, 0.01)),
            ("leaky_relu", {"slope": 0.25}, lambda x: F.leaky_relu(x, 0.25)),
            ("gelu", {}, F.gelu),
            ("sigmoid", {}, torch.sigmoid),
            ("tanh", {}, torch.tanh)]:
        name = "_".join([kind] + [str(v).replace(".", "_") for v in options.values()])
        elementwise(name, {"kind": kind, **options}, 2, shape, function)
        elementwise(name + "_wide_range", {"kind": kind, **options}, 1, [11], function,
                    [wide.clone()])
    elementwise("softmax", {"kind": "softmax"}, 3, [6], lambda x: F.softmax(x, -1))
    elementwise("softmax_rank_2", {"kind": "softmax"}, 2, [3, 4], lambda x: F.softmax(x, -1))
    elementwise("softmax_large_logits", {"kind": "softmax"}, 2, [5], lambda x: F.softmax(x, -1),
                [draw(2, 5) * 64 + 1000])

    batch_norm("batch_norm_training", 4, [3, 2, 3], 0.1, 1e-5)
    batch_norm("batch_norm_training_vector", 6, [5], 0.25, 1e-3)
    batch_norm("batch_norm_training_one_row", 1, [4, 4, 2], 0.1, 1e-5)

    operator_case("add", {"kind": "add"}, 2, [[3, 2, 2], [3, 2, 2]], lambda x, _: x[0] + x[1])
    elementwise("flatten", {"kind": "flatten"}, 2, [3, 2, 2], lambda x: x.reshape(2, -1))
    elementwise("reshape", {"kind": "reshape", "target": [4, 3]}, 2, [3, 2, 2],
                lambda x: x.reshape(2, 4, 3))

    # With numbers of their own: what is drawn after these stays as it was.
    others, random = random, np.random.default_rng(20232)
    dropout("dropout", [37], 0.25, 11, 2, [1, 8, 5_000_000_000])
    dropout("dropout_image", [3, 4, 5], 0.75, 2**63 + 5, 0, [0, 7])
    dropout("dropout_none", [6], 0.0, 3, 1, [4])
    random = others
    write("operators.json", operator_cases)


def loss_case(name, loss, shape, prediction, labels, function, scale):
    prediction.requires_grad_(True)
    losses = function(prediction, labels)
    gradient, = torch.autograd.grad(scale * losses.sum(), prediction)
    return {"name": name, "loss": loss, "rows": len(prediction), "shape": shape,
            "prediction": flat(prediction), "labels": flat(labels.double()),
            "losses": flat(losses), "scale": scale, "grad_prediction": flat(gradient)}


def per_sample(losses):
    return losses.flatten(1).mean(1)


def write_losses():
    def cross_entropy(x, y):
        return F.cross_entropy(x, y, reduction="none")

    def binary(x, y):
        return per_sample(F.binary_cross_entropy_with_logits(x, y, reduction="none"))

    def squared(x, y):
        return per_sample(F.mse_loss(x, y, reduction="none"))

    def classes(rows, k):
        return torch.tensor(random.integers(0, k, rows))

    def shares(*shape):
        return torch.tensor(random.integers(0, 257, shape) / 256, dtype=torch.float64)

    extreme = torch.tensor([[-1000.0], [-40.0], [-20.0], [0.0], [20.0], [40.0], [1000.0]],
                           dtype=torch.float64)
    write("losses.json", [
        loss_case("softmax_cross_entropy", "softmax_cross_entropy", [5], draw(4, 5), classes(4, 5),
                  cross_entropy, 0.25),
        loss_case("softmax_cross_entropy_two_classes", "softmax_cross_entropy", [2], draw(3, 2),
                  classes(3, 2), cross_entropy, 1.0),
        loss_case("softmax_cross_entropy_large_logits", "softmax_cross_entropy", [10],
                  draw(4, 10) * 256, classes(4, 10), cross_entropy, 0.5),
        loss_case("binary_cross_entropy", "binary_cross_entropy", [1], draw(5, 1),
                  classes(5, 2).double().reshape(5, 1), binary, 0.125),
        loss_case("binary_cross_entropy_soft_labels", "binary_cross_entropy", [2, 3],
                  draw(3, 2, 3), shares(3, 2, 3), binary, 1.0),
        loss_case("binary_cross_entropy_large_logits", "binary_cross_entropy", [1], extreme,
                  torch.tensor([[0.0], [1.0], [0.0], [1.0], [1.0], [0.0], [0.5]],
                               dtype=torch.float64), binary, 1.0),
        loss_case("mean_squared_error", "mean_squared_error", [4], draw(3, 4), draw(3, 4), squared,
                  0.5),
        loss_case("mean_squared_error_rank_2", "mean_squared_error", [2, 3], draw(2, 2, 3),
                  draw(2, 2, 3), squared, 1.0),
    ])


def write_metrics():
    cases = []
    for name, k, rows, classes in [("accuracy", 1, 16, 5), ("top_2", 2, 16, 5),
                                   ("top_3", 3, 16, 7)]:
        prediction = draw(rows, classes)
        labels = torch.tensor(random.integers(0, classes, rows))
        hits = (prediction.topk(k, dim=1).indices == labels[:, None]).any(1).double()
        cases.append({"name": name, "metric": "accuracy" if k == 1 else "top_k", "k": k,
                      "rows": rows, "shape": [classes], "prediction": flat(prediction),
                      "labels": flat(labels.double()), "values": flat(hits)})
    prediction, labels = draw(4, 3), draw(4, 3)
    cases.append({"name": "absolute_error", "metric": "absolute_error", "rows": 4, "shape": [3],
                  "prediction": flat(prediction), "labels": flat(labels),
                  "values": flat(per_sample(F.l1_loss(prediction, labels, reduction="none")))})
    write("metrics.json", cases)


def write_optimizers():
    """Five steps from the same weights with the same gradients; a trajectory is the weights after
    each step. Weight decay of sgd and adam is L2 (added to the gradient), of adamw decoupled."""
    steps, size = 5, 7
    weights = draw(size)
    gradients = [draw(size) for _ in range(steps)]

    def trajectory(make, groups):
        """`groups` are sizes of parameter groups and their weight decay; None: the optimizer's."""
        sizes = [size for size, _ in groups]
        parts = [part.clone().requires_grad_(True) for part in weights.split(sizes)]
        optimizer = make([{"params": [part]} if decay is None else
                          {"params": [part], "weight_decay": decay}
                          for part, (_, decay) in zip(parts, groups)])
        result = []
        for gradient in gradients:
            for part, g in zip(parts, gradient.split(sizes)):
                part.grad = g.clone()
            optimizer.step()
            result.append(flat(torch.cat(parts)))
        return result

    def case(name, kind, make, groups=((size, None),), **options):
        return {"name": name, "optimizer": {"kind": kind, **options}, "groups": groups,
                "trajectory": trajectory(lambda w: make(w, **options), groups)}

    def sgd(w, learning_rate, weight_decay=0.0, momentum=0.0):
        return torch.optim.SGD(w, learning_rate, momentum=momentum, weight_decay=weight_decay)

    def nesterov(w, learning_rate, momentum, weight_decay=0.0):
        return torch.optim.SGD(w, learning_rate, momentum=momentum, weight_decay=weight_decay,
                               nesterov=True)

    def adam_like(optimizer):
        return lambda w, learning_rate, beta1, beta2, epsilon, weight_decay=0.0: optimizer(
            w, learning_rate, (beta1, beta2), epsilon, weight_decay)

    adam, adamw = adam_like(torch.optim.Adam), adam_like(torch.optim.AdamW)
    some = ((2, None), (3, 0.3), (2, 0.0))
    usual = {"learning_rate": 0.01, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
    write("optimizers.json", {"weights": flat(weights), "gradients": [flat(g) for g in gradients],
                              "cases": [
        case("sgd", "sgd", sgd, learning_rate=0.1),
        case("sgd_decay", "sgd", sgd, learning_rate=0.1, weight_decay=0.05),
        case("momentum", "momentum", sgd, learning_rate=0.1, momentum=0.9),
        case("momentum_decay", "momentum", sgd, learning_rate=0.1, momentum=0.9,
             weight_decay=0.05),
        case("nesterov", "nesterov", nesterov, learning_rate=0.1, momentum=0.9),
        case("nesterov_decay", "nesterov", nesterov, learning_rate=0.1, momentum=0.9,
             weight_decay=0.05),
        case("adam", "adam", adam, **usual),
        case("adam_other_betas", "adam", adam, learning_rate=0.02, beta1=0.8, beta2=0.95,
             epsilon=1e-4),
        case("adam_l2", "adam", adam, **usual, weight_decay=0.05),
        case("adamw_no_decay", "adamw", adamw, **usual),
        case("adamw", "adamw", adamw, **usual, weight_decay=0.05),
        case("sgd_groups", "sgd", sgd, some, learning_rate=0.1, weight_decay=0.05),
        case("momentum_groups", "momentum", sgd, some, learning_rate=0.1, momentum=0.9),
        case("adam_groups", "adam", adam, some, **usual, weight_decay=0.05),
        case("adamw_groups", "adamw", adamw, some, **usual, weight_decay=0.05),
    ]})


def lines_of_json(value):
    """JSON with each field of a case on a line, and lists of numbers on one line."""
    if isinstance(value, dict) and ("name" in value or "cases" in value):
        fields = [json.dumps(k) + ": " + lines_of_json(v) for k, v in value.items()]
        return "{" + ",\n ".join(fields) + "}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(lines_of_json(v) for v in value) + "\n]"
    return json.dumps(value, separators=(",", ":"))


def write(name, content):
    os.makedirs(FOLDER, exist_ok=True)
    with open(os.path.join(FOLDER, name), "w") as file:
        file.write(lines_of_json(content) + "\n")


if __name__ == "__main__":
    write_operators()
    write_losses()
    write_metrics()
    write_optimizers()
