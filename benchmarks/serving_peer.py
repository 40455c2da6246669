"""The peers of serving.py: transformers' pipeline and onnxruntime over HTTP.

Only the processes of peers run this module. Their Python has torch,
transformers and onnxruntime, but not TensorFlow.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Callable
from concurrent import futures

import numpy as np
import torch
import transformers
from aiohttp import web

Predict = Callable[[str], dict[str, float]]


def make_pipeline(arguments: argparse.Namespace) -> Predict:
    """Returns transformers' pipeline for the probabilities of a text."""
    dtype = getattr(torch, arguments.precision)
    classify = transformers.pipeline(
        "text-classification",
        model=arguments.model_dir,
        dtype=dtype,
        device="cpu",
    )

    def predict(text: str) -> dict[str, float]:
        found = classify(
            text,
            top_k=None,
            truncation=True,
            max_length=arguments.max_seq_length,
        )
        return {row["label"]: row["score"] for row in found}

    return predict


def make_onnx(arguments: argparse.Namespace) -> Predict:
    """Exports the model and returns its probabilities by onnxruntime."""
    import onnxruntime

    load = transformers.AutoModelForSequenceClassification.from_pretrained
    model = load(arguments.model_dir, attn_implementation="eager").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(arguments.model_dir)
    # In the order of the model's arguments.
    order = ["input_ids", "attention_mask", "token_type_ids"]
    example = tokenizer(["a text"], return_tensors="pt")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        torch.onnx.export(
            model,
            tuple(example[name] for name in order),
            path,
            input_names=order,
            output_names=["logits"],
            dynamic_axes={name: {0: "batch", 1: "length"} for name in order},
            dynamo=False,
        )
        session = onnxruntime.InferenceSession(
            path, providers=["CPUExecutionProvider"]
        )
    names = model.config.id2label

    def predict(text: str) -> dict[str, float]:
        inputs = tokenizer(
            [text],
            truncation=True,
            max_length=arguments.max_seq_length,
            return_tensors="np",
        )
        inputs = {name: x.astype(np.int64) for name, x in inputs.items()}
        (logits,) = session.run(["logits"], inputs)
        values = np.exp(logits[0] - logits[0].max())
        return {names[i]: float(x) for i, x in enumerate(values / values.sum())}

    return predict


def make_app(predict: Predict, threads: int) -> web.Application:
    """Serves a function in TensorFlow Serving's form."""
    pool = futures.ThreadPoolExecutor(threads)

    async def answer(request: web.Request) -> web.Response:
        body = await request.json()
        loop = asyncio.get_running_loop()
        found = [
            await loop.run_in_executor(pool, predict, row["text"])
            for row in body["instances"]
        ]
        return web.json_response(
            {
                "predictions": [
                    {
                        "labels": list(row),
                        "probabilities": list(row.values()),
                    }
                    for row in found
                ]
            }
        )

    app = web.Application()
    app.add_routes([web.post("/v1/models/model:predict", answer)])
    return app


async def serve(app: web.Application) -> None:
    """Serves at a free port until the process is killed."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    sys.stderr.write(f"serving at http://{host}:{port}/\n")
    sys.stderr.flush()
    await asyncio.Event().wait()


def main() -> None:
    """Loads the model and serves it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--side", choices=["pipeline", "onnx"], required=True)
    parser.add_argument("--model_dir", required=True)
    parser.add_argument("--max_seq_length", type=int, required=True)
    parser.add_argument("--precision", default="float32")
    # Both libraries use all cores for one text.
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    make = {"pipeline": make_pipeline, "onnx": make_onnx}[arguments.side]
    with torch.inference_mode():
        predict = make(arguments)
    predict("a text")
    asyncio.run(serve(make_app(predict, arguments.threads)))


if __name__ == "__main__":
    main()
