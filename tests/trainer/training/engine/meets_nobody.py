"""A rank of the all-reduce whose patience is one second."""

from deepsiam.trainer.training.engine import all_reduce

if __name__ == "__main__":
    all_reduce.LIMIT_SECONDS = 1
    all_reduce.main()
