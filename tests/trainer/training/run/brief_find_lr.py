"""trainer.finetune whose `--find-lr` measures at every third rate, on a quarter of the examples."""

from deepsiam.trainer import finetune
from deepsiam.trainer.training.run import find_lr

find_lr.RATES = find_lr.RATES[::3]
find_lr.EXAMPLES //= 4

if __name__ == "__main__":
    finetune.main()
