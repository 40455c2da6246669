"""Makes embedding_losses.json: losses of sentence-transformers, and gradients.

pip install torch==2.13.0 transformers==5.24.0 sentence-transformers==6.2.0
PYTHONPATH=. python tests/testdata/make_embedding_losses.py
"""

import json
import pathlib

import sentence_transformers
import torch
from sentence_transformers.sentence_transformer import losses

from tests.modeling import embedding_vectors


def main() -> None:
    """Computes each loss from the same vectors."""
    golden = {"sentence-transformers": sentence_transformers.__version__}
    for name, (texts, scale) in embedding_vectors.CASES.items():
        values = [torch.tensor(x) for x in embedding_vectors.vectors(texts)]
        for x in values:
            x.requires_grad_()
        labels = torch.tensor(embedding_vectors.SCORES)
        if scale is None:
            loss = losses.CosineSimilarityLoss(torch.nn.Identity())
        else:
            loss = losses.MultipleNegativesRankingLoss(
                torch.nn.Identity(), scale=scale
            )
        value = loss.compute_loss_from_embeddings(values, labels)
        value.backward()
        golden[name] = {
            "loss": value.item(),
            "gradients": [
                [[round(y, 8) for y in row] for row in x.grad.tolist()]
                for x in values
            ],
        }
    target = pathlib.Path(__file__).with_name("embedding_losses.json")
    target.write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
