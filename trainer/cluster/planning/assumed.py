"""What a plan assumes of a device unless options say otherwise; without torch, for the help."""

PRODUCTS = 0.58  # of a device's peak: large products attain 72 % of the 800 TFLOP/s that an H100 sustains, of 989
LAUNCH = 2e-6  # seconds from the end of a kernel to the start of the next
START = 10e-6  # seconds that Python takes to start a kernel, forward and backward
