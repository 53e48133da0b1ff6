"""Fine-tune a Siamese encoder: `deepspeed --module trainer.finetune RECIPE [--resume] [key=value ...]`."""

from __future__ import annotations

from data_prep.common.errors import InputError
from data_prep.common.imports import without_collecting

with without_collecting():
    import torch

    from models.trunk import build_trunk
    from trainer.checkpoints.load import load_trained
    from trainer.data.open_data import pair_data
    from trainer.recipe.build import build_model, check_length, settings_of
    from trainer.recipe.schema import FinetuneRecipe
    from trainer.run.command import main
    from trainer.run.job import Job, make_job


def build(recipe: FinetuneRecipe) -> Job:
    """Make the job of training a pre-trained trunk, or the same with random weights, on labelled pairs."""
    pretrained = load_trained(recipe.init_from)
    wanted, learned = (1 + method.added_tokens for method in (recipe.method, pretrained.recipe.method))
    if wanted != learned:
        raise InputError(
            f"method.special_tokens: {wanted}, but {recipe.init_from} was trained with {learned}; "
            f"set method.special_tokens={learned}"
        )
    data = pair_data(recipe, pretrained.tokenizer)
    trunk = pretrained.model.trunk
    if recipe.random_weights:
        torch.manual_seed(recipe.seed)
        trunk = build_trunk(settings_of(trunk.config))
    own = recipe.method.added_tokens
    check_length("method.max_query_tokens", recipe.method.max_query_tokens + own, trunk)
    check_length("method.max_document_tokens", recipe.method.max_document_tokens + own, trunk)
    return make_job(recipe, build_model(recipe.method, trunk.train()), data)


if __name__ == "__main__":
    main("trainer.finetune", FinetuneRecipe, build)
