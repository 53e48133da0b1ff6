"""The job of fine-tuning: what `trainer.finetune` trains, built from its recipe."""

from pathlib import Path

import torch
from transformers import PreTrainedModel

from deepsiam.data_prep.common.errors import InputError, as_input_error
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from deepsiam.models.adapters import Adapters
from deepsiam.models.build_trunk import build_trunk, settings_of
from deepsiam.models.config import resize_embeddings
from deepsiam.models.matching.start_terms import FitsStart
from deepsiam.trainer.interop.causal_lm import add_head_rows
from deepsiam.trainer.interop.cross_encoder import order_classes
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.interop.start import PretrainedEncoder
from deepsiam.trainer.jobs.fit_start import fit_to_groups
from deepsiam.trainer.ranking.while_training.refresh import INDEXES, open_refresh
from deepsiam.trainer.ranking.while_training.retrieval_probe import open_retrieval_probe
from deepsiam.trainer.training.checkpoints.base import base_of
from deepsiam.trainer.training.checkpoints.init_from import copy_heads, load_start
from deepsiam.trainer.training.checkpoints.load import saved_trunk
from deepsiam.trainer.training.checkpoints.start_keys import open_start
from deepsiam.trainer.training.data.group_source import GroupSource
from deepsiam.trainer.training.data.open_pairs import pair_data
from deepsiam.trainer.training.data.opened import Data
from deepsiam.trainer.training.engine.world import say
from deepsiam.trainer.training.recipe.build import build_model, check_length, new_trunk
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.run.job import Job, make_ready


def build(recipe: FinetuneRecipe, resume_from: Path | None = None) -> Job:
    """Make the job of training on labelled pairs: a trained encoder, its shape with random weights, or a new one.

    To resume, the checkpoint is enough, with the base of its adapters: the engine loads what is trained.
    """
    recipe, start = open_start(recipe, resume_from)
    data = pair_data(recipe)
    say(*data.remarks)
    torch.manual_seed(recipe.seed)  # of new weights: all ranks draw the same
    trunk, encoder = open_trunk(recipe, data.tokenizer, start, resume_from)
    recipe = recipe.model_copy(update={"method": recipe.method.for_trunk(trunk)})
    for key, tokens in recipe.method.input_lengths.items():
        check_length(key, tokens, trunk)
    model = build_model(recipe.method, trunk.train())
    if getattr(recipe.method, "classes", None) and (classes := classes_of(data)):
        if encoder:  # a label is a row of the head: those of the start must be the collection's
            say(*order_classes(encoder, classes))
        # checkpoints and exports keep the names with the trunk's configuration
        trunk.config.id2label = dict(enumerate(classes))
        trunk.config.label2id = {name: number for number, name in enumerate(classes)}
    if encoder:
        encoder.heads.pop("log_temperature", None)  # the recipe sets its initial value
        with as_input_error("method"):
            labels = recipe.method.head_tokens(data.tokenizer)
        if labels:
            add_head_rows(encoder, labels)
        say(copy_heads(encoder, model, recipe.method))
        if recipe.method.markers:
            say(_markers(recipe, encoder))
    if isinstance(model, FitsStart) and model.keys.fits_start and not resume_from:  # else it is in the checkpoint
        say(*fit_to_groups(recipe, model, data))
    if recipe.refresh and getattr(model, "kind", None) not in INDEXES:
        raise InputError(
            f"refresh: a {recipe.method.name} cannot mine in the run: only models of one vector, or of "
            "term weights, per text can; set refresh to null"
        )
    recipe = make_ready(model, recipe, resume_from)
    base = base_of(recipe, encoder.path if encoder else None, resume_from)
    return Job(recipe, model, data, open_retrieval_probe(recipe, model), open_refresh(recipe, data), base)


def classes_of(data: Data) -> list[str]:
    """Return the names of the classes that all collections have; none where they differ."""
    sources = [lanes.source for lanes in data.order.sources.values()]
    classes = {tuple(source.collection.classes or ()) for source in sources if isinstance(source, GroupSource)}
    return list(classes.pop()) if len(classes) == 1 else []


def open_trunk(
    recipe: FinetuneRecipe, tokenizer: Tokenizer, start: Folder | None, resume_from: Path | None
) -> tuple[PreTrainedModel, PretrainedEncoder | None]:
    """Load or build the encoder that a recipe starts from, with the special tokens that its method needs.

    Return also the pre-trained encoder with its heads; None if the weights are random, or those of a checkpoint.
    """
    if start is None:
        trunk = saved_trunk(resume_from) if resume_from else new_trunk(recipe.trunk or {}, tokenizer)
        resize_embeddings(recipe.method, trunk, tokenizer)
        return trunk, None
    encoder = load_start(recipe, start, tokenizer)
    if encoder.added_tokens not in (None, recipe.method.added_tokens):
        raise InputError(_other_special_tokens(recipe, 1 + (encoder.added_tokens or 0)))
    resize_embeddings(recipe.method, encoder.trunk, tokenizer, encoder.rows_for(recipe.method))
    if not recipe.random_weights:
        return encoder.trunk, encoder
    torch.manual_seed(recipe.seed)  # loading an encoder has used the generator
    return build_trunk(settings_of(encoder.trunk.config)), None


def _markers(recipe: FinetuneRecipe, encoder: PretrainedEncoder) -> str:
    """Return a line that says whether the markers of queries and documents are learned or new."""
    if encoder.rows_for(recipe.method):
        return "the markers of queries and documents are those of the start"
    trained = recipe.optimizer.train
    train = "lora" if isinstance(trained, Adapters) else trained
    return "the markers of queries and documents are new, drawn at random" + (
        f", and stay so: optimizer.train={train} does not train the token embedding" if train != "all" else ""
    )


def _other_special_tokens(recipe: FinetuneRecipe, learned: int) -> str:
    method, start = recipe.method, recipe.init_from
    if "special_tokens" in type(method).model_fields:
        return (
            f"method.special_tokens: {1 + method.added_tokens}, but {start} was trained with {learned}; "
            f"set method.special_tokens={learned}"
        )
    return (
        f"init_from: {start} was trained with {learned} special tokens, and method.name={method.name} has [CLS] alone: "
        "start from another encoder, or train a siamese network"
    )
