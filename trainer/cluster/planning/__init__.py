"""What a training or a preparation of data will take on machines that one does not have: computed, not measured."""
