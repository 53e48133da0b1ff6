"""deepsiam, a trainer for Siamese text encoders: the one import name of this project.

Beside this file stand links to the project's folders, so that `deepsiam.trainer` is `trainer/` in a checkout, for
Python, editors and mypy alike; a wheel holds the folders themselves.
"""

from deepsiam.registry import register as register
