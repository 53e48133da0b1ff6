"""Run DeepSpeed's conversion of a checkpoint for another number of ranks, with files of plain values only.

`checkpoint.resume` starts it as a process of its own, on rank 0, before the first step.
"""

from deepspeed.checkpoint import ds_to_universal

from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.trainer.training.engine.plain_files import plain_values_only

if __name__ == "__main__":
    with exit_on_input_error("conversion"), plain_values_only():
        ds_to_universal.main(ds_to_universal.parse_arguments())
