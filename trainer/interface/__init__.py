"""The Python interface: what `import deepsiam` gives, in a file for each thing that users do."""
