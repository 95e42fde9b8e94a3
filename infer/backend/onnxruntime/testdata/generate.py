# Writes the small graphs the tests run: python3 generate.py (python3-onnx, python3-numpy).
import numpy as np
import onnx
from onnx import TensorProto as T, helper as h


def save(name, nodes, inputs, outputs, init=()):
    g = h.make_graph(nodes, name, [h.make_tensor_value_info(*i) for i in inputs],
                     [h.make_tensor_value_info(*o) for o in outputs], list(init))
    m = h.make_model(g, opset_imports=[h.make_opsetid("", 13)], producer_name="vedette")
    m.ir_version = 7
    onnx.checker.check_model(m)
    onnx.save(m, name + ".onnx")


# SUM = A + B, DIFF = A - B over any batch of four.
save("addsub", [h.make_node("Add", ["A", "B"], ["SUM"]), h.make_node("Sub", ["A", "B"], ["DIFF"])],
     [("A", T.FLOAT, ["n", 4]), ("B", T.FLOAT, ["n", 4])], [("SUM", T.FLOAT, ["n", 4]), ("DIFF", T.FLOAT, ["n", 4])])

# Strings, whole numbers, bools and halves as they are.
save("echo", [h.make_node("Identity", [i], ["OUT_" + i]) for i in ("S", "I", "B", "H", "D")],
     [("S", T.STRING, [-1]), ("I", T.INT64, [-1]), ("B", T.BOOL, [2]), ("H", T.FLOAT16, [3]), ("D", T.DOUBLE, [2, 2])],
     [("OUT_S", T.STRING, [-1]), ("OUT_I", T.INT64, [-1]), ("OUT_B", T.BOOL, [2]), ("OUT_H", T.FLOAT16, [3]), ("OUT_D", T.DOUBLE, [2, 2])])

# Tensors whose size nobody knows beforehand, and one without dimensions.
save("open", [h.make_node("Identity", [i], ["OUT_" + i]) for i in ("H", "B", "X", "S")] + [h.make_node("ReduceSum", ["X"], ["SUM"], keepdims=0)],
     [("H", T.FLOAT16, ["h"]), ("B", T.BFLOAT16, ["b"]), ("X", T.FLOAT, ["x"]), ("S", T.STRING, ["s"])],
     [("OUT_H", T.FLOAT16, ["h"]), ("OUT_B", T.BFLOAT16, ["b"]), ("OUT_X", T.FLOAT, ["x"]), ("OUT_S", T.STRING, ["s"]), ("SUM", T.FLOAT, [])])

# An operator that cannot do without elements.
save("product", [h.make_node("Einsum", ["X", "X"], ["Y"], equation="ij,kj->ik")],
     [("X", T.FLOAT, ["n", "m"])], [("Y", T.FLOAT, ["n", "n"])])

# An input that is an output too, and a constant.
save("through", [h.make_node("Neg", ["X"], ["Y"]), h.make_node("Constant", [], ["C"], value=h.make_tensor("v", T.FLOAT, [1, 2], [7, 8]))],
     [("X", T.FLOAT, ["n", 2])], [("X", T.FLOAT, ["n", 2]), ("Y", T.FLOAT, ["n", 2]), ("C", T.FLOAT, [1, 2])])

# Nothing is asked.
save("nothing", [h.make_node("Constant", [], ["C"], value=h.make_tensor("v", T.FLOAT, [1], [7]))], [], [("C", T.FLOAT, [1])])

# As many ones as N says: an output whose size nobody knows beforehand.
save("ones", [h.make_node("ConstantOfShape", ["N"], ["ONES"], value=h.make_tensor("v", T.INT32, [1], [1]))],
     [("N", T.INT64, [1])], [("ONES", T.INT32, ["m"])])

# A sum that the server keeps: OUTPUT = STATE_IN + INPUT, dropped when START is 1.
save("accumulate", [
    h.make_node("Sub", ["one", "START"], ["keep"]), h.make_node("Mul", ["STATE_IN", "keep"], ["kept"]),
    h.make_node("Add", ["kept", "INPUT"], ["OUTPUT"]), h.make_node("Identity", ["OUTPUT"], ["STATE_OUT"]),
], [("INPUT", T.FLOAT, ["n", 1]), ("START", T.FLOAT, ["n", 1]), ("STATE_IN", T.FLOAT, ["n", 1])],
    [("OUTPUT", T.FLOAT, ["n", 1]), ("STATE_OUT", T.FLOAT, ["n", 1])], [h.make_tensor("one", T.FLOAT, [1], [1])])

# Ragged rows behind one another, with their ends: both come back.
save("ragged", [h.make_node("Mul", ["VALUES", "two"], ["DOUBLED"]), h.make_node("Identity", ["ENDS"], ["OUT_ENDS"])],
     [("VALUES", T.FLOAT, [-1]), ("ENDS", T.FLOAT, [-1])], [("DOUBLED", T.FLOAT, [-1]), ("OUT_ENDS", T.FLOAT, [-1])],
     [h.make_tensor("two", T.FLOAT, [1], [2])])

# A default that a request may replace, and a number without dimensions.
save("default", [h.make_node("Mul", ["X", "FACTOR"], ["y"]), h.make_node("Add", ["y", "OFFSET"], ["Y"])],
     [("X", T.FLOAT, [2]), ("OFFSET", T.FLOAT, []), ("FACTOR", T.FLOAT, [2])], [("Y", T.FLOAT, [2])],
     [h.make_tensor("FACTOR", T.FLOAT, [2], [10, 100])])

# Tree models: a stump of the machine learning operators.
n = h.make_node("TreeEnsembleRegressor", ["X"], ["Y"], domain="ai.onnx.ml", n_targets=1,
                nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2], nodes_featureids=[0, 0, 0], nodes_values=[0.5, 0.0, 0.0],
                nodes_hitrates=[1.0, 1.0, 1.0], nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_truenodeids=[1, 0, 0],
                nodes_falsenodeids=[2, 0, 0], nodes_missing_value_tracks_true=[0, 0, 0], target_treeids=[0, 0],
                target_nodeids=[1, 2], target_ids=[0, 0], target_weights=[-1.0, 1.0])
g = h.make_graph([n], "tree", [h.make_tensor_value_info("X", T.FLOAT, ["n", 2])], [h.make_tensor_value_info("Y", T.FLOAT, ["n", 1])])
m = h.make_model(g, opset_imports=[h.make_opsetid("", 13), h.make_opsetid("ai.onnx.ml", 1)], producer_name="vedette")
m.ir_version = 7
onnx.save(m, "tree.onnx")

# A small convolution, enough for an accelerator to have something to do.
rng = np.random.default_rng(1)
w = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
save("conv", [h.make_node("Conv", ["X", "w"], ["c"], pads=[1, 1, 1, 1]), h.make_node("Relu", ["c"], ["Y"])],
     [("X", T.FLOAT, ["n", 3, 16, 16])], [("Y", T.FLOAT, ["n", 4, 16, 16])],
     [h.make_tensor("w", T.FLOAT, [4, 3, 3, 3], w.flatten().tolist())])
