"""The pre-training methods: one file each."""
