"""The Python interface: what `import deepsiam` offers, and what the commands are written on."""
