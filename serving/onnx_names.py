"""The names in a directory of export_model.py --format=onnx."""

MODEL = "model.onnx"
# Feature of our models -> input of the graph.
INPUTS = {
    "input_ids": "input_ids",
    "input_mask": "attention_mask",
    "segment_ids": "token_type_ids",
}
