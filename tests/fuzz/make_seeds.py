#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets under corpus/: good files, and hostile ones that a parser is
likely to trust. Files that fuzzing has found are added by hand and stay. Usage: make_seeds.py"""
import gzip
import hashlib
import json
import pathlib
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"


def write(target, name, data):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def idx(kind, extents, data):
    return bytes([0, 0, kind, len(extents)]) + b"".join(struct.pack(">I", e) for e in extents) + data


def zipped(data):
    return gzip.compress(data, mtime=0)


def idx_seeds():
    images = idx(0x08, [2, 2, 2], bytes(range(8)))
    w = lambda name, data: write("fuzz_idx", name, data)
    w("good_bytes", images)
    w("good_gzip", zipped(images))
    w("good_floats", idx(0x0D, [2, 1], struct.pack(">2f", 0.5, -1)))
    w("good_doubles", idx(0x0E, [1, 2], struct.pack(">2d", 0.5, -1)))
    w("good_shorts", idx(0x0B, [3], struct.pack(">3h", -1, 0, 7)))
    w("bad_empty", b"")
    w("bad_magic", b"\x01" + images[1:])
    w("bad_type", idx(0x0A, [1], b"\0"))
    w("bad_no_axes", idx(0x08, [], b""))
    w("bad_255_axes", bytes([0, 0, 8, 255]) + b"\0\0\0\1" * 20)
    w("bad_huge_count", idx(0x08, [0xFFFFFFFF] * 4, b"x"))
    w("bad_product_overflows", idx(0x0E, [0x80000000, 0x80000000, 4], b"x" * 8))
    w("bad_zero_extent", idx(0x08, [2, 0], b""))
    w("bad_truncated", images[:-1])
    w("bad_trailing", images + b"x")
    w("bad_nan", idx(0x0D, [1], struct.pack(">f", float("nan"))))
    w("bad_gzip_truncated", zipped(images)[:-9])
    w("bad_gzip_header_only", zipped(images)[:10])
    w("bad_gzip_checksum", zipped(images)[:-8] + b"\0" * 8)
    w("bad_gzip_bomb", zipped(idx(0x08, [0xFFFFFFFF], bytes(200000))))


def npy(header, data, version=1):
    text = header.encode("latin1")
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + data


def npy_header(descr="<f4", order="False", shape="(2, 2)"):
    return "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }\n" % (descr, order, shape)


def npy_seeds():
    values = struct.pack("<4f", 1, 2, 3, 4)
    w = lambda name, data: write("fuzz_npy", name, data)
    w("good_floats", npy(npy_header(), values))
    w("good_version_2", npy(npy_header(), values, 2))
    w("good_version_3", npy(npy_header(), values, 3))
    w("good_bytes", npy(npy_header("|u1", shape="(4,)"), b"\1\2\3\4"))
    w("good_longs", npy(npy_header("<i8", shape="(1,)"), struct.pack("<q", -5)))
    w("bad_empty", b"")
    w("bad_magic", b"\x94" + npy(npy_header(), values)[1:])
    w("bad_version", npy(npy_header(), values, 9))
    w("bad_header_length", b"\x93NUMPY\2\0\xff\xff\xff\xff{")
    w("bad_no_dictionary", npy("[1, 2]", values))
    w("bad_unclosed", npy("{'descr': '<f4", values))
    w("bad_no_shape", npy("{'descr': '<f4', 'fortran_order': False}", values))
    w("bad_twice", npy("{'shape': (1,), 'shape': (4,), 'descr': '<f4', 'fortran_order': False}", values))
    w("bad_code", npy(npy_header(shape="__import__('os')"), values))
    w("bad_object", npy(npy_header("|O"), values))
    w("bad_big_endian", npy(npy_header(">f4"), values))
    w("bad_fortran", npy(npy_header(order="True"), values))
    w("bad_scalar", npy(npy_header(shape="()"), values))
    w("bad_zero", npy(npy_header(shape="(0, 2)"), b""))
    w("bad_negative", npy(npy_header(shape="(-2, -2)"), values))
    w("bad_huge", npy(npy_header(shape="(18446744073709551615, 4)"), values))
    w("bad_too_huge", npy(npy_header(shape="(99999999999999999999999,)"), values))
    w("bad_product_overflows", npy(npy_header(shape="(4294967296, 4294967296)"), values))
    w("bad_many_axes", npy(npy_header(shape="(" + "1, " * 200 + ")"), values))
    w("bad_truncated", npy(npy_header(), values[:-1]))
    w("bad_infinite", npy(npy_header(shape="(1,)"), struct.pack("<f", float("inf"))))


def safetensors(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(shape, begin, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors_seeds():
    two = {"a": tensor([2], 0, 8), "b": tensor([1, 1], 8, 12)}
    w = lambda name, data: write("fuzz_safetensors", name, data)
    w("good_two", safetensors(two, bytes(12)))
    w("good_metadata", safetensors({"__metadata__": {"k": "v"}, "a": tensor([1], 0, 4)}, bytes(4)))
    w("good_padded", safetensors(json.dumps(two).encode() + b"   ", bytes(12)))
    w("good_none", safetensors({}))
    w("good_doubles", safetensors({"a": tensor([1], 0, 8, "F64")}, bytes(8)))
    w("good_other_types", safetensors({"a": tensor([1], 0, 8, "I64"), "b": tensor([1], 8, 9, "U8")}, bytes(9)))
    w("good_escapes", safetensors(b'{"\\u00e9\\ud83d\\ude00\\n":' + json.dumps(tensor([1], 0, 4)).encode() + b"}", bytes(4)))
    w("bad_empty", b"")
    w("bad_length_only", struct.pack("<Q", 2))
    w("bad_huge_length", safetensors(two, bytes(12), (1 << 64) - 1))
    w("bad_not_json", safetensors(b"pickle"))
    w("bad_array", safetensors(b"[]"))
    w("bad_deep", safetensors(b"[" * 5000))
    w("bad_deep_objects", safetensors(b'{"a":' * 2000))
    w("bad_unclosed", safetensors(b'{"a'))
    w("bad_escape", safetensors(b'{"\\ud800":1}'))
    w("bad_utf8", safetensors(b'{"\xff\xfe":1}'))
    w("bad_dtype", safetensors({"a": tensor([1], 0, 4, "BF17")}, bytes(4)))
    w("bad_overlap", safetensors({"a": tensor([2], 0, 8), "b": tensor([2], 4, 12)}, bytes(12)))
    w("bad_hole", safetensors({"a": tensor([1], 0, 4), "b": tensor([1], 8, 12)}, bytes(12)))
    w("bad_backwards", safetensors({"a": tensor([1], 4, 0)}, bytes(4)))
    w("bad_past_end", safetensors({"a": tensor([1], 0, 4)}, bytes(3)))
    w("bad_offset_huge", safetensors({"a": tensor([1], (1 << 64) - 4, 1 << 64)}, bytes(4)))
    w("bad_shape_overflows", safetensors({"a": tensor([1 << 32, 1 << 32], 0, 0)}))
    w("bad_negative", safetensors({"a": tensor([-1], 0, 4)}, bytes(4)))
    w("bad_fraction", safetensors({"a": tensor([1.5], 0, 4)}, bytes(4)))
    w("bad_exponent", safetensors(b'{"a":{"dtype":"F32","shape":[1e99],"data_offsets":[0,4]}}', bytes(4)))
    w("bad_twice", safetensors(b'{"a":' + json.dumps(tensor([1], 0, 4)).encode() + b',"a":' + json.dumps(tensor([1], 0, 4)).encode() + b"}", bytes(4)))
    w("bad_trailing", safetensors(two, bytes(13)))


LAYER = "[[model.layers]]\ntype = \"dense\"\nunits = 4\n"


def job_seeds():
    w = lambda name, text: write("fuzz_job", name, text.encode() if isinstance(text, str) else text)
    examples = pathlib.Path(__file__).parent.parent.parent / "examples"
    for path in sorted(examples.glob("*.toml")):
        lines = (line.split(" #")[0].rstrip() for line in path.read_text().splitlines())
        w("good_" + path.stem, "\n".join(line for line in lines if line and line[0] != "#") + "\n")
    w("good_small", LAYER)
    w("good_set", LAYER + "\0training.epochs=5")
    w("good_set_text", LAYER + "\0name=\"a b\"")
    w("good_escapes", 'name = "a\\u0001\\"\\\\é"\n' + LAYER)
    w("good_every_section", "[data]\nsource = \"synthetic\"\nfeatures = [2, 2]\n[training.early_stopping]\n"
      "[training.save_best]\n[optimizer.schedule]\nname = \"step\"\nmilestones = [1, 2]\n[checkpoint]\nkeep = 1\n" + LAYER)
    w("bad_empty", "")
    w("bad_not_toml", "a = = 1")
    w("bad_unclosed", 'name = "')
    w("bad_utf8", b'name = "\xff\xfe"\n' + LAYER.encode())
    w("bad_unknown_key", "sede = 1\n" + LAYER)
    w("bad_type", 'seed = "many"\n' + LAYER)
    w("bad_negative", "[training]\nbatch = -1\n" + LAYER)
    w("bad_huge", "[training]\nbatch = 9223372036854775807\n" + LAYER)
    w("bad_nan", "[optimizer]\nlearning_rate = nan\n" + LAYER)
    w("bad_infinite", "[optimizer]\nlearning_rate = inf\n" + LAYER)
    w("bad_date", "seed = 2020-01-01T00:00:00Z\n" + LAYER)
    w("bad_section_as_value", "training = 3\n" + LAYER)
    w("bad_layers_as_value", "[model]\nlayers = 3\n")
    w("bad_layers_mixed", "[model]\nlayers = [3, {}]\n")
    w("bad_deep_layers", "[model]\nlayers = " + "[{type = \"sequence\", layers = " * 40 + "[]" + "}]" * 40 + "\n")
    w("bad_deep_arrays", "a = " + "[" * 2000)
    w("bad_deep_keys", ".".join("a" * 300) + " = 1\n")
    w("bad_shape", "[model]\ninput = [0, -1, 99999999999]\n" + LAYER)
    w("bad_set_key", LAYER + "\0a.b.c=1")
    w("bad_set_no_value", LAYER + "\0training.epochs=")
    w("bad_set_no_key", LAYER + "\0=1")
    w("bad_set_two_lines", LAYER + "\0seed=1\nlanes=2")


def frame(length, tag, data=b"", view=0, kind=1, magic=b"SLF1"):
    return magic + struct.pack("<IQQQ", kind, length, tag, view) + data


def hello(version=1, verdict=0, rank=1, world=2, connection=0, connections=1, view=0, magic=b"STARLING"):
    numbers = struct.pack("<IIIIQ", rank, world, connection, connections, view)
    return magic + struct.pack("<II", version, verdict) + bytes(range(16)) + numbers + bytes(8)


def frames_seeds():
    # The first byte is the size of the pieces in which the stream comes; 0: all at once.
    w = lambda name, data, piece=0: write("fuzz_frames", name, bytes([piece]) + data)
    both = frame(16, 1, b"x" * 16) + frame(3, 2, b"abc")
    w("good_two", both)
    w("good_two_in_pieces", both, 1)
    w("good_empty_message", frame(0, 2))
    w("good_unexpected", frame(5, 3, b"later") + both)
    w("good_next_view", frame(5, 3, b"later", view=1) + frame(0, 1, view=1))
    w("good_full", frame(4096, 3, bytes(4096)) + frame(1, 3, b"z") + both)
    w("good_hello", hello())
    w("good_hello_refusal", hello(verdict=4, view=9))
    w("bad_empty", b"")
    w("bad_truncated_header", both[:20], 7)
    w("bad_truncated_message", both[:40])
    w("bad_magic", frame(16, 1, bytes(16), magic=b"SLF2"))
    w("bad_kind", frame(16, 1, bytes(16), kind=9))
    w("bad_in_place", frame(16, 1, bytes(8), kind=2))
    w("bad_length", frame(8193, 1, bytes(100)))
    w("bad_huge_length", frame((1 << 64) - 1, 1, bytes(100)))
    w("bad_other_length", frame(15, 1, bytes(15)) + both)
    w("bad_too_long_for_receive", frame(17, 1, bytes(17)) + both, 5)
    w("bad_future_view", frame(16, 1, bytes(16), view=(1 << 64) - 1) + both)
    w("bad_hello_rank", hello(rank=2))
    w("bad_hello_connection", hello(connection=1))
    w("bad_hello_huge", hello(world=0xFFFFFFFF, connections=0xFFFFFFFF))
    w("bad_hello_version", hello(version=2))
    w("bad_hello_verdict", hello(verdict=77))
    w("bad_hello_magic", hello(magic=b"STARLINK"))


def stretch(log, version=0, end=1, optimizer="adam", head="stretch 0 %d 4"):
    fields = ("schedule=step learning_rate=0.001 momentum=0.9 beta1=0.9 beta2=0.999 epsilon=1e-08 "
              "weight_decay=0 clip_norm=0.5 warmup_steps=0 every=0 milestones=3,9 gamma=0.1 floor=0")
    return (head % version + "\nshards 2\nnumbers 0.1.0 avx2\noptimizer %s %s\nupdate 16 2 0.3\nworkers 0 1\n" % (optimizer, fields) + log +
            "averaged 0 1\nend %d " % end).encode()


def record_seeds():
    w = lambda name, data: write("fuzz_record", name, data)
    log = "lend 0 0 10\nlend 1 10 20\napply 1:10-20@0\n"
    good = stretch(log)
    w("good_stretch", good)  # the target adds its hash
    w("good_not_finite", stretch("lend 0 0 10\nlend 1 10 20\napply 0:0-10@0 1:10-20@0!\n"))
    w("good_drop", stretch("lend 0 0 10\ndrop 0\n", end=0))
    w("good_record", b"starling-record 1\n" + good + hashlib.sha256(good).hexdigest().encode() + b"\n")
    w("bad_empty", b"")
    w("bad_hash", b"starling-record 1\n" + good + b"0" * 64 + b"\n")
    w("bad_end", stretch(log, end=2))
    w("bad_order", stretch(log + "borrow 1 2\n"))
    w("bad_push", stretch("lend 0 0 10\napply 0:0-10\n"))
    w("bad_push_backwards", stretch("lend 0 0 10\napply @-:\n"))
    w("bad_not_lent", stretch("apply 0:0-10@0\n"))
    w("bad_huge", stretch("lend 0 0 18446744073709551616\n", end=0))
    w("bad_optimizer", stretch(log, optimizer="adamant"))
    w("bad_epoch", stretch(log, head="stretch 4294967296 %d 4"))
    w("bad_truncated", good[:-20])


idx_seeds()
npy_seeds()
safetensors_seeds()
job_seeds()
frames_seeds()
record_seeds()
