"""What a training or a preparation of data will take on machines that you do not have: computed, not measured."""
